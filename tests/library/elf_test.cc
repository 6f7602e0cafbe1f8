#include "library/elf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "fake_package.h"

namespace dovetail::library {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Reads everything that can be read; returns whether the file was accepted.
bool reads(const std::string& bytes) {
  try {
    const ElfFile elf(bytes_of(bytes), "test.so");
    elf.arch();
    elf.exported_symbols();
    elf.section(".dovetail.metadata");
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ElfFile, ReadsSectionsAndSymbols) {
  const std::string bytes = read_file(test::fake_library());
  const ElfFile elf(bytes_of(bytes), "fake.so");
#if defined(__x86_64__)
  EXPECT_EQ(elf.arch(), "x86_64");
#endif
  const auto section = elf.section(".dovetail.metadata");
  ASSERT_TRUE(section);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(section->data()), 22), R"({"model_type":"fake",")");
  EXPECT_FALSE(elf.section(".no.such.section"));
  EXPECT_EQ(elf.section(".bss")->size(), 0u);
  const std::vector<std::string> symbols = elf.exported_symbols();
  EXPECT_TRUE(std::binary_search(symbols.begin(), symbols.end(), "__tvm_ffi_decode_tokens"));
  // Needed from another library, not exported.
  EXPECT_FALSE(std::binary_search(symbols.begin(), symbols.end(), "TVMFFIErrorSetRaised"));
}

TEST(ElfFile, RefusesOtherFiles) {
  for (const std::string& text : {std::string(),
                                  std::string("\x7f"
                                              "EL"),
                                  std::string("MZ\x90"), std::string(100, 'x')}) {
    EXPECT_THROW(ElfFile(bytes_of(text), "x"), Error);
  }
  std::string bytes = read_file(test::fake_library());
  bytes[4] = 1;  // 32 bits
  EXPECT_THROW(ElfFile(bytes_of(bytes), "x"), Error);
  bytes[4] = 2;
  bytes[16] = 1;  // an object file
  EXPECT_THROW(ElfFile(bytes_of(bytes), "x"), Error);
}

TEST(ElfFile, RefusesEveryTruncation) {
  const std::string bytes = read_file(test::fake_library());
  // The section table is the last thing in the file.
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 997) {
    EXPECT_FALSE(reads(bytes.substr(0, size))) << size;
  }
  EXPECT_FALSE(reads(bytes.substr(0, bytes.size() - 1)));
  EXPECT_TRUE(reads(bytes));
}

TEST(ElfFile, RefusesOffsetsThatOverflow) {
  std::string bytes = read_file(test::fake_library());
  for (const uint64_t offset : {~uint64_t{0}, ~uint64_t{63}, uint64_t{1} << 63, uint64_t{bytes.size()}}) {
    std::memcpy(bytes.data() + 40, &offset, sizeof(offset));
    EXPECT_FALSE(reads(bytes)) << offset;
  }
}

TEST(ElfFile, SurvivesRandomDamage) {
  const std::string good = read_file(test::fake_library());
  uint64_t table = 0;
  std::memcpy(&table, good.data() + 40, sizeof(table));
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 4; ++i) {
      const size_t at = round % 2 == 0 ? random() % 64 : table + random() % (bytes.size() - table);
      bytes[at] = static_cast<char>(random());
    }
    reads(bytes);
  }
}

}  // namespace
}  // namespace dovetail::library
