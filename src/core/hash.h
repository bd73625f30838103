// A hash of bytes (FNV-1a), the same on every machine: for facts that ranks compare, not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325ull;

/// Goes on from `hash`, so that a sequence of parts can be hashed one after the other.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t hash = kHashSeed) {
  const auto* next = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ next[i]) * 0x100000001b3ull;
  return hash;
}

}  // namespace tutti
