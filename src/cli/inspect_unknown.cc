#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "cli/inspect.h"
#include "media/sniff.h"

namespace dovetail::cli {

std::string looks_like(std::span<const std::byte> bytes) {
  using namespace std::string_view_literals;
  static constexpr std::array<std::pair<std::string_view, const char*>, 15> kStarts{{
      {"version https://git-lfs"sv, "a Git LFS pointer; \"git lfs pull\" brings the file itself"},
      {"PK\3\4"sv, "a zip archive, as PyTorch's .bin and .pt files are"},
      {"\x80\2"sv, "a Python pickle, as older PyTorch files are"},
      {"\x80\4"sv, "a Python pickle"},
      {"\x80\5"sv, "a Python pickle"},
      {"lmgg"sv, "a GGML file from before GGUF"},
      {"tjgg"sv, "a GGML file from before GGUF"},
      {"fmgg"sv, "a GGML file from before GGUF"},
      {"\x93NUMPY"sv, "a NumPy array"},
      {"\x89HDF"sv, "an HDF5 file, as Keras writes"},
      {"\x1f\x8b"sv, "a gzip archive"},
      {"\x28\xb5\x2f\xfd"sv, "a Zstandard archive"},
      {"!<arch>"sv, "a static library"},
      {"\0asm"sv, "a WebAssembly module"},
      {"MZ"sv, "a program or library for Windows"},
  }};
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [start, name] : kStarts) {
    if (text.starts_with(start)) return name;
  }
  const bool zeros = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c == '\0'; });
  return zeros ? "zeros alone, as a download that was never filled" : media::sniff(bytes).description;
}

}  // namespace dovetail::cli
