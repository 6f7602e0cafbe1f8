// Reads the arrays of a .npz file that numpy wrote: float32, int64, int32 or uint8. For tests: the files are
// our own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dovetail::test {

struct Array {
  std::vector<int64_t> shape;
  std::vector<float> values;      // float32 arrays
  std::vector<int64_t> integers;  // int64 and int32 arrays
  std::vector<uint8_t> bytes;     // uint8 arrays
};

// Throws std::runtime_error for anything that is not such a file.
std::map<std::string, Array> read_npz(const std::filesystem::path& path);

}  // namespace dovetail::test
