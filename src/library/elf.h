// A reader for 64-bit little-endian ELF files that runs nothing: sections by name and exported symbols. A
// compiled library keeps its metadata in a section, so that it can be judged before any of its code is
// loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::library {

class ElfFile {
 public:
  // Checks the header and the section table; `bytes` must outlive the object. `source` names the file in
  // errors. Throws Error kMalformed (not ELF, truncated, an offset outside the file) or kUnsupported (not
  // 64-bit little-endian, not a shared object).
  ElfFile(std::span<const std::byte> bytes, std::string source);

  // "x86_64", "aarch64", or "machine <number>".
  std::string arch() const;
  // The contents of the first section of that name. Throws kMalformed when it reaches past the end of the
  // file.
  std::optional<std::span<const std::byte>> section(std::string_view name) const;
  // Names of the defined functions and objects of the dynamic symbol table, sorted, each once.
  std::vector<std::string> exported_symbols() const;

 private:
  struct Section {
    std::string_view name;
    uint32_t type = 0;
    uint32_t link = 0;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t entry_size = 0;
  };

  std::span<const std::byte> slice(uint64_t offset, uint64_t size, const std::string& what) const;
  std::string_view string_at(std::span<const std::byte> table, uint64_t offset,
                             const std::string& what) const;
  std::span<const std::byte> contents(const Section& section, const std::string& what) const;

  std::span<const std::byte> bytes_;
  std::string source_;
  uint16_t machine_ = 0;
  std::vector<Section> sections_;
};

}  // namespace dovetail::library
