// The layout of links between devices and the number of blocks per call: all ranks compute the same numbers.
#include <algorithm>
#include <bit>

#include "device/device_rank.h"
#include "engine/cuda/program.h"
#include "engine/links.h"
#include "transports/link.h"

namespace tutti {
namespace {

constexpr uint64_t kRingsBytes = 64ull << 20;
constexpr uint32_t kMostStripes = 32;
// Shorter slices spend their time on flags. With longer slices, a block has nothing to overlap.
constexpr uint32_t kLeastSlot = 8192;
constexpr uint32_t kMostSlot = 65536;
// The bytes that a block copies in the time of two flags (33 GB/s a multiprocessor; an estimate).
constexpr uint64_t kStripeBytes = 32768;

// The bytes that a block stores as packets, and loads from each rank, in the time of one flag (an estimate).
constexpr uint64_t kShortStripeBytes = 4096;

uint64_t rings_bytes(uint32_t rank_count, uint32_t stripes, const RingShape& ring) {
  return uint64_t{channels_of_stripes(stripes)} * rank_count * ring.ring_bytes();
}

}  // namespace

DeviceShape DeviceShape::of(uint32_t rank_count) {
  const bool has_mail = rank_count > 1 && rank_count <= cuda::kMaxShortRanks;
  DeviceShape shape{.stripes = kMostStripes,
                    .slots = 16,
                    .slot_bytes = kMostSlot,
                    .short_bytes = has_mail ? cuda::kMostShortBytes : 0};
  const auto fits = [&] {
    return rings_bytes(rank_count, shape.stripes, {.slots = shape.slots, .slot_bytes = shape.slot_bytes}) <=
           kRingsBytes;
  };
  while (!fits() && shape.slot_bytes > kLeastSlot) shape.slot_bytes /= 2;
  while (!fits() && shape.stripes > 1) shape.stripes /= 2;
  while (!fits() && shape.slot_bytes > 1024) shape.slot_bytes /= 2;
  return shape;
}

uint32_t device_stripes(uint64_t call_bytes, const DeviceShape& shape, uint32_t multiprocessors,
                        uint32_t ranks_on_device) {
  const uint32_t blocks = std::max(1u, multiprocessors / std::max(1u, ranks_on_device));
  const auto useful = static_cast<uint32_t>(std::min<uint64_t>(call_bytes / kStripeBytes, kMostStripes));
  return std::clamp(std::min(useful, blocks), 1u, shape.stripes);
}

uint32_t short_stripes(uint64_t call_bytes, uint32_t multiprocessors, uint32_t ranks_on_device) {
  const uint32_t blocks = std::max(1u, multiprocessors / std::max(1u, ranks_on_device));
  const uint32_t most = std::min(cuda::kMaxShortLanes, blocks);
  return std::clamp(static_cast<uint32_t>(call_bytes / kShortStripeBytes), 1u, most);
}

}  // namespace tutti
