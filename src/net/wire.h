// Numbers on the wire: little-endian on every machine. The caller checks the bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

inline void put_u32(std::span<std::byte, 4> to, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

inline uint32_t get_u32(std::span<const std::byte, 4> from) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(from[i]) << (8 * i);
  return value;
}

}  // namespace tutti
