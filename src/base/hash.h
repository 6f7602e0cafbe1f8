// SHA-256 and MD5 through OpenSSL. MD5 is only for MLC's tensor-cache.json, which stores it per shard.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dovetail {

class Hasher {
 public:
  enum class Kind { kSha256, kMd5 };
  explicit Hasher(Kind kind);
  ~Hasher();
  void update(std::span<const std::byte> data);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  // Lower-case hex digits. The hasher can't be used afterwards.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view text);
std::string md5_hex(std::span<const std::byte> data);

}  // namespace dovetail
