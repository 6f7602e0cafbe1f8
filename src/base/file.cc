#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace dovetail {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void throw_errno(const fs::path& path, const char* action) {
  const int number = errno;
  const ErrorCode code = number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  Problem problem{.message = std::string(action) + " failed: " + std::strerror(number),
                  .source = path.string()};
  if (number == ENOSPC)
    problem.hint = "free some disk space and run the command again; nothing was left half-written";
  throw Error(code, std::move(problem));
}

[[noreturn]] void throw_occupied(const fs::path& path) {
  throw Error(ErrorCode::kIo, Problem{.message = "output exists and is not an empty directory",
                                      .source = path.string(),
                                      .hint = "choose another output folder, or remove this one first"});
}

// What a link to an output leads to.
fs::path target_of(const fs::path& path) {
  std::error_code ec;
  fs::path target = fs::canonical(path, ec);
  if (ec)
    throw Error(ErrorCode::kIo,
                Problem{.message = "is a symbolic link to nothing",
                        .source = path.string(),
                        .hint = "choose another name for the output, or remove this link first"});
  return target;
}

// Of an empty folder that is to be replaced: its own name, no link and no ".". Refuses one that rename()
// can't replace, and the current folder, which would be gone for the shell.
fs::path replaceable(const fs::path& path) {
  std::error_code ec;
  const fs::path folder = target_of(path);
  struct stat info {
  }, above{};
  const bool mounted = ::stat(folder.c_str(), &info) == 0 &&
                       ::stat(folder.parent_path().c_str(), &above) == 0 && info.st_dev != above.st_dev;
  const bool current = fs::equivalent(folder, fs::current_path(ec), ec);
  if (mounted || current)
    throw Error(ErrorCode::kIo, Problem{.message = current ? "output is the current folder"
                                                           : "output is where a disk is mounted",
                                        .source = path.string(),
                                        .hint = "give the name of a folder in it"});
  return folder;
}

// Owns a file descriptor.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int64_t open_regular(const fs::path& path, Descriptor& out) {
  out.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (out.fd < 0) throw_errno(path, "opening");
  struct stat info {};
  if (::fstat(out.fd, &info) != 0) throw_errno(path, "reading the size");
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, Problem{.message = S_ISDIR(info.st_mode) ? "is a directory, not a file"
                                                                         : "is not a regular file",
                                        .source = path.string()});
  }
  return info.st_size;
}

void sync_directory(const fs::path& path) {
  Descriptor dir{::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (dir.fd >= 0) ::fsync(dir.fd);
}

fs::path temporary_name(const fs::path& path) {
  static std::atomic<int> counter{0};
  fs::path name = path;
  name += ".part-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  return name;
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path& path) {
  Descriptor file;
  const int64_t size = open_regular(path, file);
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  if (size > 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) throw_errno(path, "mapping");
    mapped->data_ = static_cast<const std::byte*>(data);
    mapped->size_ = static_cast<size_t>(size);
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t size) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + size, size_) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

std::string read_file(const fs::path& path, int64_t limit) {
  Descriptor file;
  const int64_t size = open_regular(path, file);
  if (size > limit) {
    throw Error(ErrorCode::kLimit, Problem{.message = "file is too large",
                                           .source = path.string(),
                                           .expected = "at most " + std::to_string(limit) + " bytes",
                                           .actual = std::to_string(size)});
  }
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path, "reading");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) throw Error(ErrorCode::kUsage, "the name of the output file is empty");
  // The rename at the end would take the place of a device or a pipe.
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo,
                Problem{.message = S_ISDIR(info.st_mode) ? "output is a folder, not a file"
                                                         : "output exists and is not a regular file",
                        .source = path_.string(),
                        .hint = "choose another name for the output"});
  }
  // … and the rename that of a link, also of one that leads to a file.
  std::error_code ec;
  if (fs::is_symlink(path_, ec)) path_ = target_of(path_);
  part_ = temporary_name(path_);
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_errno(path_, "creating");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(part_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path_, "writing");
    data = data.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) throw_errno(path_, "flushing");
  if (::rename(part_.c_str(), path_.c_str()) != 0) throw_errno(path_, "renaming to");
  ::close(std::exchange(fd_, -1));
  sync_directory(path_.parent_path());
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicDirectory::AtomicDirectory(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) throw Error(ErrorCode::kUsage, "the name of the output folder is empty");
  if (!path_.has_filename()) path_ = path_.parent_path();
  std::error_code ec;
  if (fs::exists(path_, ec) && !(fs::is_directory(path_, ec) && fs::is_empty(path_, ec)))
    throw_occupied(path_);
  if (fs::exists(fs::symlink_status(path_, ec))) path_ = replaceable(path_);
  fs::create_directories(path_.has_parent_path() ? path_.parent_path() : fs::path("."), ec);
  staging_ = temporary_name(path_);
  fs::create_directory(staging_, ec);
  if (ec) {
    throw Error(ErrorCode::kIo,
                Problem{.message = "creating the folder failed: " + ec.message(), .source = path_.string()});
  }
}

AtomicDirectory::~AtomicDirectory() {
  if (!done_) {
    std::error_code ec;
    fs::remove_all(staging_, ec);
  }
}

void AtomicDirectory::commit() {
  sync_directory(staging_);
  if (::rename(staging_.c_str(), path_.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) throw_occupied(path_);  // somebody else was quicker
    throw_errno(path_, "renaming to");
  }
  done_ = true;
  sync_directory(path_.parent_path());
}

}  // namespace dovetail
