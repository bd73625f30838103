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

/// Flips each output bit with probability 1/2 for each input bit: the finaliser of MurmurHash3 (Appleby,
/// public domain).
constexpr uint64_t mix_bits(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

/// A history is a hash of all calls up to now. This is the history after one more call. `seed` must be mixed.
/// Two histories that differ stay different while the same calls follow, and their upper bits differ anew in
/// each call: what collides in one call shows in the next.
constexpr uint64_t next_history(uint64_t history, uint64_t seed) {
  return (history ^ seed) * 0x9e3779b97f4a7c15ull;
}

inline constexpr uint32_t kSignatureBits = 28;
/// What flag words show of a history.
constexpr uint32_t history_signature(uint64_t history) {
  return static_cast<uint32_t>(history >> (64 - kSignatureBits));
}

}  // namespace tutti
