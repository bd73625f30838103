// A hash of bytes (FNV-1a), equal on every machine. For facts that ranks compare, not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325ull;

/// Continues from `hash`. To hash several parts, call once for each part.
inline uint64_t hash_bytes(const void* data, size_t bytes, uint64_t hash = kHashSeed) {
  const auto* next = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ next[i]) * 0x100000001b3ull;
  return hash;
}

/// A hash of call number `sequence` by one multiplication. Use the upper bits.
constexpr uint64_t call_hash(uint64_t seed, uint64_t sequence) {
  return (seed + sequence) * 0x9e3779b97f4a7c15ull;
}
/// The signature of the flag words of that call.
constexpr uint16_t call_signature(uint64_t seed, uint64_t sequence) {
  return static_cast<uint16_t>(call_hash(seed, sequence) >> 48);
}

}  // namespace tutti
