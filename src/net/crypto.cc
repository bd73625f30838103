#include "net/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tutti {
namespace {

/// Call it before any use of OpenSSL: threads may use OpenSSL while the process exits, so it must not clean
/// up.
void keep_openssl_at_exit() {
  static const int kInitialized = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  static_cast<void>(kInitialized);
}

const unsigned char* as_chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

Key digest_of(std::string_view text) {
  keep_openssl_at_exit();
  Key key{};
  unsigned bytes = 0;
  // Fails only in a library without SHA-256.
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(key.data()), &bytes, EVP_sha256(),
                 nullptr) != 1) {
    std::abort();
  }
  return key;
}

}  // namespace

Mac authenticate(const Key& key, std::span<const std::byte> message) {
  keep_openssl_at_exit();
  Mac mac{};
  unsigned bytes = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), as_chars(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &bytes) == nullptr ||
      bytes != mac.size()) {
    std::abort();
  }
  return mac;
}

Credentials credentials_from_text(std::string_view secret, std::string_view purpose) {
  const auto labelled = [&](std::string_view label) {
    const Mac mac =
        authenticate(digest_of(secret), std::as_bytes(std::span(std::string(label).append(purpose))));
    return mac;
  };
  Credentials credentials;
  credentials.key = labelled("tutti key for ");
  const Mac tag = labelled("tutti tag for ");
  std::copy_n(tag.begin(), credentials.tag.size(), credentials.tag.begin());
  return credentials;
}

bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti
