#include "library/elf.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace dovetail::library {
namespace {

// Field offsets of the ELF-64 object file format (System V ABI).
constexpr size_t kHeaderSize = 64;
constexpr size_t kSectionHeaderSize = 64;
constexpr size_t kSymbolSize = 24;
constexpr uint16_t kTypeShared = 3;
constexpr uint16_t kMachineX86_64 = 62;
constexpr uint16_t kMachineAArch64 = 183;
constexpr uint32_t kSectionNoBits = 8;
constexpr uint32_t kSectionDynamicSymbols = 11;
constexpr uint16_t kSectionUndefined = 0;
constexpr uint16_t kIndexExtended = 0xffff;
constexpr unsigned kBindLocal = 0;
constexpr unsigned kTypeObject = 1;
constexpr unsigned kTypeFunction = 2;

template <typename T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace

ElfFile::ElfFile(std::span<const std::byte> bytes, std::string source)
    : bytes_(bytes), source_(std::move(source)) {
  static constexpr unsigned char kMagic[4] = {0x7f, 'E', 'L', 'F'};
  if (bytes_.size() < sizeof(kMagic) || std::memcmp(bytes_.data(), kMagic, sizeof(kMagic)) != 0) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "this is not a shared library (no ELF header)",
                                               .source = source_,
                                               .hint = "give a library made by 'dovetail compile'"});
  }
  const std::span<const std::byte> header = slice(0, kHeaderSize, "the file header");
  const auto file_class = load<uint8_t>(header, 4);
  const auto byte_order = load<uint8_t>(header, 5);
  if (file_class != 2 || byte_order != 1) {
    throw Error(ErrorCode::kUnsupported, Problem{.message = "the library is for another kind of machine",
                                                 .source = source_,
                                                 .expected = "64-bit little-endian ELF",
                                                 .actual = "class " + std::to_string(file_class) +
                                                           ", byte order " + std::to_string(byte_order)});
  }
  const auto type = load<uint16_t>(header, 16);
  if (type != kTypeShared) {
    throw Error(ErrorCode::kUnsupported, Problem{.message = "the ELF file is not a shared library",
                                                 .source = source_,
                                                 .expected = "type 3 (shared object)",
                                                 .actual = "type " + std::to_string(type)});
  }
  machine_ = load<uint16_t>(header, 18);
  const auto table_offset = load<uint64_t>(header, 40);
  if (table_offset == 0) return;
  const auto header_size = load<uint16_t>(header, 58);
  if (header_size != kSectionHeaderSize) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "unexpected size of a section header",
                                               .source = source_,
                                               .expected = std::to_string(kSectionHeaderSize),
                                               .actual = std::to_string(header_size)});
  }
  uint64_t count = load<uint16_t>(header, 60);
  uint64_t name_index = load<uint16_t>(header, 62);
  if (count == 0 || name_index == kIndexExtended) {
    // More sections than 16 bits can count: the numbers are in the first section header.
    const std::span<const std::byte> first = slice(table_offset, kSectionHeaderSize, "the section table");
    if (count == 0) count = load<uint64_t>(first, 32);
    if (name_index == kIndexExtended) name_index = load<uint32_t>(first, 40);
  }
  if (count > bytes_.size() / kSectionHeaderSize) {
    throw Error(
        ErrorCode::kMalformed,
        Problem{.message = "the section table does not fit into the file",
                .source = source_,
                .expected = "at most " + std::to_string(bytes_.size() / kSectionHeaderSize) + " sections",
                .actual = std::to_string(count)});
  }
  const std::span<const std::byte> table =
      slice(table_offset, count * kSectionHeaderSize, "the section table");
  sections_.reserve(count);
  std::vector<uint32_t> name_offsets;
  name_offsets.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const std::span<const std::byte> entry = table.subspan(i * kSectionHeaderSize, kSectionHeaderSize);
    name_offsets.push_back(load<uint32_t>(entry, 0));
    sections_.push_back(Section{.type = load<uint32_t>(entry, 4),
                                .link = load<uint32_t>(entry, 40),
                                .offset = load<uint64_t>(entry, 24),
                                .size = load<uint64_t>(entry, 32),
                                .entry_size = load<uint64_t>(entry, 56)});
  }
  if (name_index == 0) return;
  if (name_index >= count) {
    throw Error(ErrorCode::kMalformed, Problem{.message = "the section of the section names does not exist",
                                               .source = source_,
                                               .expected = "below " + std::to_string(count),
                                               .actual = std::to_string(name_index)});
  }
  const std::span<const std::byte> names = contents(sections_[name_index], "the section names");
  for (uint64_t i = 0; i < count; ++i) {
    sections_[i].name = string_at(names, name_offsets[i], "name of section " + std::to_string(i));
  }
}

std::string ElfFile::arch() const {
  if (machine_ == kMachineX86_64) return "x86_64";
  if (machine_ == kMachineAArch64) return "aarch64";
  return "machine " + std::to_string(machine_);
}

std::optional<std::span<const std::byte>> ElfFile::section(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return contents(section, "section " + std::string(name));
  }
  return std::nullopt;
}

std::vector<std::string> ElfFile::exported_symbols() const {
  std::vector<std::string> symbols;
  for (const Section& section : sections_) {
    if (section.type != kSectionDynamicSymbols) continue;
    if (section.entry_size != kSymbolSize || section.link >= sections_.size()) {
      throw Error(ErrorCode::kMalformed,
                  Problem{.message = "the dynamic symbol table is malformed", .source = source_});
    }
    const std::span<const std::byte> table = contents(section, "the dynamic symbol table");
    const std::span<const std::byte> names = contents(sections_[section.link], "the dynamic symbol names");
    for (size_t at = 0; at + kSymbolSize <= table.size(); at += kSymbolSize) {
      const auto info = load<uint8_t>(table, at + 4);
      const auto index = load<uint16_t>(table, at + 6);
      const unsigned bind = info >> 4;
      const unsigned type = info & 0xfu;
      if (index == kSectionUndefined || bind == kBindLocal) continue;
      if (type != kTypeFunction && type != kTypeObject) continue;
      symbols.emplace_back(string_at(names, load<uint32_t>(table, at), "the name of a dynamic symbol"));
    }
  }
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

std::span<const std::byte> ElfFile::slice(uint64_t offset, uint64_t size, const std::string& what) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset) {
    throw Error(ErrorCode::kMalformed,
                Problem{.message = "the library is truncated: " + what + " reaches past the end of the file",
                        .source = source_,
                        .expected = std::to_string(size) + " bytes at offset " + std::to_string(offset),
                        .actual = "a file of " + std::to_string(bytes_.size()) + " bytes",
                        .hint = "compile the library again with 'dovetail compile'"});
  }
  return bytes_.subspan(offset, size);
}

std::string_view ElfFile::string_at(std::span<const std::byte> table, uint64_t offset,
                                    const std::string& what) const {
  const auto* begin = reinterpret_cast<const char*>(table.data());
  const void* end = offset < table.size() ? std::memchr(begin + offset, 0, table.size() - offset) : nullptr;
  if (end == nullptr) {
    throw Error(ErrorCode::kMalformed, Problem{.message = what + " is not in its string table",
                                               .source = source_,
                                               .expected = "an offset below " + std::to_string(table.size()),
                                               .actual = std::to_string(offset)});
  }
  return {begin + offset, static_cast<const char*>(end)};
}

std::span<const std::byte> ElfFile::contents(const Section& section, const std::string& what) const {
  if (section.type == kSectionNoBits) return {};
  return slice(section.offset, section.size, what);
}

}  // namespace dovetail::library
