// A shared library from any bytes: sections and symbols are read or refused, and nothing is read outside the
// file.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "library/elf.h"

using namespace dovetail;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every byte is touched, so that the sanitizer sees a span that reaches too far.
void touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (const std::byte byte : bytes) sum = sum + static_cast<unsigned>(byte);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const library::ElfFile elf(std::as_bytes(std::span(data, size)), "fuzz.so");
    require(!elf.arch().empty());
    for (const char* name : {".dovetail.metadata", ".text", ".bss", ""}) {
      try {
        if (const auto section = elf.section(name)) touch(*section);
      } catch (const Error& error) {
        require(!error.problems().front().text().empty());
      }
    }
    for (const std::string& symbol : elf.exported_symbols()) require(symbol.find('\0') == std::string::npos);
  } catch (const Error& error) {
    require(!error.problems().front().text().empty());
  }
  return 0;
}
