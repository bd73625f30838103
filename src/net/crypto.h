// The little cryptography that a bootstrap needs, by OpenSSL: a keyed digest, keys from texts, randomness.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "core/result.h"

namespace tutti {

/// A secret that all ranks of one communicator, and nobody else, know.
using Key = std::array<std::byte, 32>;
/// 32 bytes never used before.
using Nonce = std::array<std::byte, 32>;
/// HMAC-SHA256.
using Mac = std::array<std::byte, 32>;
/// Public name of one bootstrap: tells which key is meant.
using BootstrapTag = std::array<std::byte, 16>;

/// What a rank needs to take part in one bootstrap.
struct Credentials {
  Key key{};
  BootstrapTag tag{};
};

/// HMAC-SHA256 of `message`.
Mac authenticate(const Key& key, std::span<const std::byte> message);
/// Credentials from a secret text, different for every `purpose` (such as a host:port).
Credentials credentials_from_text(std::string_view secret, std::string_view purpose);
/// Compares in a time that does not depend on where the two differ; false when sizes differ.
bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b);
/// Errors: kSystemError.
Status fill_random(std::span<std::byte> bytes);

}  // namespace tutti
