// Cryptography for a bootstrap, by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tutti {

/// A secret of the ranks of one communicator.
using Key = std::array<std::byte, 32>;
/// 32 bytes that are used once.
using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;
/// Public name of one bootstrap. It tells which key is meant.
using BootstrapTag = std::array<std::byte, 16>;

/// What a rank needs to join one bootstrap.
struct Credentials {
  Key key{};
  BootstrapTag tag{};
};

Mac authenticate(const Key& key, std::span<const std::byte> message);
/// The credentials differ for each `purpose` (such as a port).
Credentials credentials_from_text(std::string_view secret, std::string_view purpose);
/// Takes constant time. False if the sizes differ.
bool equal_secrets(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace tutti
