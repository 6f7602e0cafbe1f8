// Files: read-only mappings, whole-file reads with a limit, and writes that never leave a half-written file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dovetail {

// A read-only memory mapping. Empty files have an empty span. Shared by everything that points into it.
// A file that another process truncates while mapped raises SIGBUS on access; sizes are fixed at open.
class MappedFile {
 public:
  // Throws Error kNotFound or kIo.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Drops the pages of a range from this process (they stay in the page cache).
  void release(size_t offset, size_t size) const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Throws Error kNotFound, kIo, or kLimit when the file has more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, int64_t limit = int64_t{1} << 30);

// Writes to "<path>.part-<pid>-<n>", then fsync and rename on commit(). Without commit() the file is removed.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path part_;
  int fd_ = -1;
};

void write_file_atomic(const std::filesystem::path& path, std::string_view text);

// A directory filled under a temporary name beside `path` and renamed when complete. Without commit() it is
// removed. `path` must not exist, or be an empty directory.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::filesystem::path path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path staging_;
  bool done_ = false;
};

}  // namespace dovetail
