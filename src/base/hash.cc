#include "base/hash.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace dovetail {

struct Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Hasher::Hasher(Kind kind) : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, kind == Kind::kMd5 ? EVP_md5() : EVP_sha256(), nullptr) != 1) {
    throw Error(ErrorCode::kInternal, "the OpenSSL on this machine offers no MD5 or SHA-256");
  }
}

Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> data) {
  EVP_DigestUpdate(state_->context, data.data(), data.size());
}

std::string Hasher::hex() {
  static constexpr char kHex[] = "0123456789abcdef";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  return out;
}

std::string sha256_hex(std::string_view text) {
  Hasher hasher(Hasher::Kind::kSha256);
  hasher.update(text);
  return hasher.hex();
}

std::string md5_hex(std::span<const std::byte> data) {
  Hasher hasher(Hasher::Kind::kMd5);
  hasher.update(data);
  return hasher.hex();
}

}  // namespace dovetail
