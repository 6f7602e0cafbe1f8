// NumPy's .npz: a zip archive of .npy arrays, stored without compression.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace dovetail::cli {

class NpzFile {
 public:
  // The product of the shape must be the number of values.
  void add(const std::string& name, std::span<const float> values, const std::vector<int64_t>& shape);
  void add(const std::string& name, std::span<const int64_t> values, const std::vector<int64_t>& shape);

  // Throws Error kLimit when an array or the file exceeds 4 GiB, kIo.
  void write(const std::filesystem::path& path) const;

 private:
  struct Member {
    std::string name;
    std::string header;                 // of the .npy format
    std::span<const std::byte> values;  // the caller's
  };
  void add(const std::string& name, const char* dtype, std::span<const std::byte> values,
           const std::vector<int64_t>& shape);

  std::vector<Member> members_;
};

}  // namespace dovetail::cli
