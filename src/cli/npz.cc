#include "cli/npz.h"

#include <array>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace dovetail::cli {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0);
    table[i] = value;
  }
  return table;
}

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  crc = ~crc;
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

// Little-endian fields of the zip records.
class Record {
 public:
  Record& u16(uint64_t value) { return append(value, 2); }
  Record& u32(uint64_t value) { return append(value, 4); }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& append(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

constexpr uint64_t kZipVersion = 20;
constexpr uint64_t kDosDate = 0x21;  // 1980-01-01, so that equal arrays make equal files

// Version, flags, method (stored), time, date, checksum, sizes, length of the name: the same in both headers.
void common_fields(Record& record, uint32_t crc, uint64_t size, const std::string& name) {
  record.u16(kZipVersion)
      .u16(0)
      .u16(0)
      .u16(0)
      .u16(kDosDate)
      .u32(crc)
      .u32(size)
      .u32(size)
      .u16(name.size())
      .u16(0);
}

}  // namespace

void NpzFile::add(const std::string& name, std::span<const float> values, const std::vector<int64_t>& shape) {
  add(name, "<f4", std::as_bytes(values), shape);
}

void NpzFile::add(const std::string& name, std::span<const int64_t> values,
                  const std::vector<int64_t>& shape) {
  add(name, "<i8", std::as_bytes(values), shape);
}

void NpzFile::add(const std::string& name, const char* dtype, std::span<const std::byte> values,
                  const std::vector<int64_t>& shape) {
  std::string text = std::string("{'descr': '") + dtype + "', 'fortran_order': False, 'shape': (";
  for (const int64_t dimension : shape) text += std::to_string(dimension) + ", ";
  text += "), }";
  // Magic, version 1.0 and a length of two bytes come first; the whole is padded to 64 bytes and ends a line.
  const size_t unpadded = 10 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  members_.push_back(
      {.name = name + ".npy",
       .header = std::string("\x93NUMPY\x01\x00", 8) + Record().u16(text.size()).bytes() + text,
       .values = values});
}

void NpzFile::write(const std::filesystem::path& path) const {
  uint64_t total = 0;
  for (const Member& member : members_) total += member.header.size() + member.values.size() + 1024;
  if (total > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, Problem{.message = "the arrays are too large for one .npz file",
                                           .source = path.string(),
                                           .expected = "at most 4 GiB",
                                           .actual = std::to_string(total) + " bytes"});
  }
  AtomicFile file(path);
  std::string directory;
  uint64_t offset = 0;
  for (const Member& member : members_) {
    const uint64_t size = member.header.size() + member.values.size();
    const uint32_t crc = crc32(crc32(0, std::as_bytes(std::span(member.header))), member.values);
    Record local;
    local.u32(0x04034b50);
    common_fields(local, crc, size, member.name);
    Record central;
    central.u32(0x02014b50).u16(kZipVersion);
    common_fields(central, crc, size, member.name);
    central.u16(0).u16(0).u16(0).u32(0).u32(offset);
    directory += central.bytes() + member.name;
    file.write(std::string_view(local.bytes()));
    file.write(std::string_view(member.name));
    file.write(std::string_view(member.header));
    file.write(member.values);
    offset += local.bytes().size() + member.name.size() + size;
  }
  file.write(std::string_view(directory));
  Record end;
  end.u32(0x06054b50).u16(0).u16(0).u16(members_.size()).u16(members_.size());
  end.u32(directory.size()).u32(offset).u16(0);
  file.write(std::string_view(end.bytes()));
  file.commit();
}

}  // namespace dovetail::cli
