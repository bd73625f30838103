// Buffers of a measurement, rotated so that caches do not flatter the figures.
//
// Element i of a rank's input is a small whole number from a hash of (i, rank, slot). Sums over up to 8 ranks
// stay below 256, so they are exact in float32, float16 and bfloat16 in any order. No offset maps the
// sequence onto itself.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "request.h"

namespace peers {

/// 8 ranks: 8 * 31 < 256, the largest range that bfloat16 holds exactly.
inline constexpr uint32_t kValueMask = 31;

inline uint32_t input_value(uint64_t index, int rank, size_t slot) {
  const uint32_t mixed = (static_cast<uint32_t>(index) + static_cast<uint32_t>(rank) * 977u +
                          static_cast<uint32_t>(slot) * 131'071u) *
                         2'654'435'761u;
  return (mixed >> 17) & kValueMask;
}

/// Bits of the whole number n, 0 <= n < 256, in a 16-bit float with the given exponent width and bias.
inline uint16_t encode_16(uint32_t n, int mantissa_bits, int bias) {
  if (n == 0) return 0;
  const int exponent = std::bit_width(n) - 1;
  const uint32_t mantissa = (n << (mantissa_bits - exponent)) & ((1u << mantissa_bits) - 1);
  const uint32_t biased = static_cast<uint32_t>(exponent + bias);
  return static_cast<uint16_t>((biased << mantissa_bits) | mantissa);
}

/// Codes of 0..255 in one of the 16-bit types.
inline std::array<uint16_t, 256> encode_table(ElementType type) {
  std::array<uint16_t, 256> table{};
  for (uint32_t n = 0; n < table.size(); ++n) {
    table[n] = type == ElementType::kFloat16 ? encode_16(n, 10, 15) : encode_16(n, 7, 127);
  }
  return table;
}

/// Writes value(i), a whole number below 256, for each of `count` elements.
template <class Value>
void fill(void* buffer, size_t count, ElementType type, Value value) {
  if (type == ElementType::kFloat32) {
    float* out = static_cast<float*>(buffer);
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int32_t>(value(i)));
    return;
  }
  const std::array<uint16_t, 256> table = encode_table(type);
  uint16_t* out = static_cast<uint16_t*>(buffer);
  for (size_t i = 0; i < count; ++i) out[i] = table[value(i)];
}

/// Number of elements that are not value(i).
template <class Value>
int64_t count_wrong(const void* buffer, size_t count, ElementType type, Value value) {
  int64_t wrong = 0;
  if (type == ElementType::kFloat32) {
    const float* in = static_cast<const float*>(buffer);
    for (size_t i = 0; i < count; ++i) wrong += in[i] != static_cast<float>(static_cast<int32_t>(value(i)));
    return wrong;
  }
  const std::array<uint16_t, 256> table = encode_table(type);
  const uint16_t* in = static_cast<const uint16_t*>(buffer);
  for (size_t i = 0; i < count; ++i) wrong += in[i] != table[value(i)];
  return wrong;
}

/// One call's buffers. `count` is the count argument of the collective: the elements of one block if there
/// are blocks.
struct Slot {
  void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
};

/// Element counts of a collective: the count argument, and the elements in each buffer.
struct Shape {
  size_t count;
  size_t send_count;
  size_t recv_count;
};

inline Shape shape_of(const Request& request, int rank_count) {
  const size_t ranks = static_cast<size_t>(rank_count);
  const size_t total = request.bytes / element_bytes(request.type);
  const size_t block = std::max<size_t>(total / ranks, 1);
  switch (request.collective) {
    case Collective::kAllGather: return {block, block, block * ranks};
    case Collective::kReduceScatter: return {block, block * ranks, block};
    case Collective::kAllToAll: return {block, block * ranks, block * ranks};
    case Collective::kBarrier: return {0, 0, 0};
    default: return {total, total, total};
  }
}

/// The rotated buffers of one measurement: as many as make the request's footprint with those of the other
/// ranks, but at most one for each MiB of it, which is 256 or more. So messages of 256 KiB and more always
/// come from memory. Memory is kept between measurements, because a first touch costs microseconds a page.
class BufferRing {
 public:
  using Allocate = std::function<void*(size_t)>;
  using Release = std::function<void(void*)>;

  BufferRing(Allocate allocate, Release release)
      : allocate_(std::move(allocate)), release_(std::move(release)) {}
  ~BufferRing() { drop(); }
  BufferRing(const BufferRing&) = delete;
  BufferRing& operator=(const BufferRing&) = delete;

  /// Lays the slots out for the request and writes this rank's inputs into all of them. Skips the writing if
  /// the inputs are there from the last request and no check is requested.
  void prepare(const Request& request, int rank, int rank_count) {
    const size_t ring_bytes = request.footprint_bytes / static_cast<size_t>(rank_count);
    const size_t slots_max = request.footprint_bytes >> 20;
    const Shape shape = shape_of(request, rank_count);
    const size_t send_bytes = round_up(shape.send_count * element_bytes(request.type));
    const size_t recv_bytes = round_up(shape.recv_count * element_bytes(request.type));
    const size_t slot_bytes = std::max<size_t>(send_bytes + recv_bytes, 64);
    const size_t automatic = std::clamp<size_t>((ring_bytes + slot_bytes - 1) / slot_bytes, 1, slots_max);
    const size_t slot_count = request.slots == 0 ? automatic : request.slots;
    const Layout layout{request.collective, request.type, request.bytes, slot_count};
    if (layout == layout_ && !request.check && !slots_.empty()) return;
    layout_ = layout;
    reserve(slot_bytes * slot_count);
    slots_.clear();
    for (size_t s = 0; s < slot_count; ++s) {
      char* base = memory_ + s * slot_bytes;
      slots_.push_back({base, base + send_bytes, shape.count});
      fill(base, shape.send_count, request.type, [&](size_t i) { return input_value(i, rank, s); });
    }
  }

  const std::vector<Slot>& slots() const { return slots_; }

 private:
  struct Layout {
    Collective collective;
    ElementType type;
    size_t bytes;
    size_t slot_count;
    bool operator==(const Layout&) const = default;
  };

  static size_t round_up(size_t bytes) { return (bytes + 63) & ~size_t{63}; }

  void reserve(size_t bytes) {
    if (bytes <= capacity_bytes_) return;
    drop();
    memory_ = static_cast<char*>(allocate_(bytes));
    capacity_bytes_ = bytes;
    std::memset(memory_, 0, bytes);
  }
  void drop() {
    if (memory_ != nullptr) release_(memory_);
    memory_ = nullptr;
    capacity_bytes_ = 0;
  }

  Allocate allocate_;
  Release release_;
  char* memory_ = nullptr;
  size_t capacity_bytes_ = 0;
  Layout layout_{};
  std::vector<Slot> slots_;
};

inline void poison(const Slot& slot, const Request& request, int rank_count) {
  const size_t bytes = shape_of(request, rank_count).recv_count * element_bytes(request.type);
  std::memset(slot.recv, 0xFF, bytes);  // a NaN in every float type
}

/// Wrong elements of this rank's output in slot s, after one call on the inputs from `prepare`.
inline int64_t check_slot(const Slot& slot, size_t s, const Request& request, int rank, int rank_count) {
  const ElementType type = request.type;
  const size_t count = slot.count;
  const auto sum_at = [&](size_t index) {
    uint32_t sum = 0;
    for (int r = 0; r < rank_count; ++r) sum += input_value(index, r, s);
    return sum;
  };
  const auto blocks = [&](size_t offset) {
    int64_t wrong = 0;
    for (int r = 0; r < rank_count; ++r) {
      const char* block =
          static_cast<const char*>(slot.recv) + static_cast<size_t>(r) * count * element_bytes(type);
      wrong += count_wrong(block, count, type, [&](size_t i) { return input_value(offset + i, r, s); });
    }
    return wrong;
  };
  const size_t own = static_cast<size_t>(rank) * count;
  switch (request.collective) {
    case Collective::kAllReduce: return count_wrong(slot.recv, count, type, sum_at);
    case Collective::kReduce: return rank == 0 ? count_wrong(slot.recv, count, type, sum_at) : 0;
    case Collective::kReduceScatter:
      return count_wrong(slot.recv, count, type, [&](size_t i) { return sum_at(own + i); });
    case Collective::kBroadcast:
      return rank == 0 ? 0
                       : count_wrong(slot.recv, count, type, [&](size_t i) { return input_value(i, 0, s); });
    case Collective::kAllGather: return blocks(0);
    case Collective::kAllToAll: return blocks(own);
    case Collective::kPingPong:
      return rank > 1
                 ? 0
                 : count_wrong(slot.recv, count, type, [&](size_t i) { return input_value(i, 1 - rank, s); });
    case Collective::kBarrier: return 0;
  }
  return 0;
}

}  // namespace peers
