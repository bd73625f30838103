// How a thread loads and stores words, elements and parts of packets.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/cuda/device.h"

namespace tutti::cuda {

template <class Word>
TUTTI_DEVICE Word load_word(const unsigned char* from) {
  if constexpr (std::is_same_v<Word, Packet>) {
    return device::load_packet(from);
  } else {
    return *reinterpret_cast<const Word*>(from);
  }
}
template <class Word>
TUTTI_DEVICE void store_word(unsigned char* to, Word word) {
  if constexpr (std::is_same_v<Word, Packet>) {
    device::store_packet(to, word);
  } else {
    *reinterpret_cast<Word*>(to) = word;
  }
}

/// One element as a word of its size; where the address is not aligned to it, byte by byte.
template <class Bits>
TUTTI_DEVICE Bits load_element(const unsigned char* from) {
  if (reinterpret_cast<uint64_t>(from) % sizeof(Bits) == 0) return load_word<Bits>(from);
  Bits bits = 0;
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Bits); ++i)
    bits = static_cast<Bits>(bits | static_cast<Bits>(from[i]) << (8 * i));
  return bits;
}
template <class Bits>
TUTTI_DEVICE void store_element(unsigned char* to, Bits bits) {
  if (reinterpret_cast<uint64_t>(to) % sizeof(Bits) == 0) return store_word<Bits>(to, bits);
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Bits); ++i) to[i] = static_cast<unsigned char>(bits >> (8 * i));
}

/// The first `bytes` of a packet, at most all, from and to memory that is aligned to nothing.
TUTTI_DEVICE Packet load_part(const unsigned char* from, uint64_t bytes) {
  Packet packet = {};
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Packet); ++i) {
    if (i < bytes) packet.words[i / 4] |= static_cast<uint32_t>(from[i]) << (8 * (i % 4));
  }
  return packet;
}
TUTTI_DEVICE void store_part(unsigned char* to, const Packet& packet, uint64_t bytes) {
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Packet); ++i) {
    if (i < bytes) to[i] = static_cast<unsigned char>(packet.words[i / 4] >> (8 * (i % 4)));
  }
}

}  // namespace tutti::cuda
