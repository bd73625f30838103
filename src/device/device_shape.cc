// The layout of links between devices and the number of blocks per call: all ranks compute the same numbers.
#include <algorithm>
#include <bit>

#include "device/device_rank.h"
#include "device/link_layout.h"
#include "engine/cuda/program.h"
#include "engine/cut.h"

namespace tutti {
namespace {

// Room for 32 rings of 16 slots of 64 KiB to each of 7 peers, for messages and for mailboxes.
constexpr uint64_t kRingsBytes = 320ull << 20;
constexpr uint32_t kMostStripes = 32;
// While a block moves a slice it makes the next one ready and tells of the one before: polls, a fence and
// barriers, 2.5 us on an H200, and 4 to 6 where it writes directly to others. A block copies 128 KiB
// meanwhile, so a long slice is longer than that. By value it fills four slots, and four such slices fit a
// ring.
constexpr uint32_t kMostSlot = 65536;
constexpr uint32_t kSlotsPerSlice = 4;
// A rank's slots take less memory rather than have shorter slices, down to here.
constexpr uint32_t kLeastSlot = 8192;
// Stripes of multicast calls: the switch does the work of many blocks, and each stripe has slots for all
// ranks.
constexpr uint32_t kMulticastStripes = 16;
constexpr uint32_t kMulticastSlotsPerSlice = 2;
// All messages of a group with every peer together have about as many parts as a long call has stripes.
constexpr uint32_t kMostMessageParts = 16;
// The bytes that a block copies in the time of two flags (33 GB/s a multiprocessor; an estimate).
constexpr uint64_t kStripeBytes = 32768;

// The bytes that a block stores as packets, and loads from each rank, in the time of one flag (an estimate).
constexpr uint64_t kShortStripeBytes = 4096;

uint32_t parts_of_messages(uint32_t rank_count) {
  return std::clamp(std::bit_floor(kMostStripes / std::max(1u, rank_count - 1)), 1u, kMostMessageParts);
}

/// Channels that the plan's ordinary links use.
uint32_t channels_of(const Plan& plan) {
  uint32_t channels = 1;
  const auto count = [&](const std::vector<End>& ends) {
    for (const End& end : ends) {
      const bool is_plain = end.kind == EndKind::kLink && end.channel < kPlanChannels;
      if (is_plain) channels = std::max(channels, end.channel + 1u);
    }
  };
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      count(step.sources);
      count(step.sinks);
    }
  }
  return channels;
}

bool is_multicast(const Plan& plan) {
  const auto is_common = [](const End& end) {
    return end.kind == EndKind::kCollect || end.kind == EndKind::kPublish ||
           (end.kind == EndKind::kLink && end.channel >= kPlanChannels);
  };
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (std::ranges::any_of(step.sources, is_common) || std::ranges::any_of(step.sinks, is_common))
        return true;
    }
  }
  return false;
}

}  // namespace

DeviceShape DeviceShape::of(uint32_t rank_count) {
  const bool has_mail = rank_count > 1 && rank_count <= kPacketRanksMax;
  const bool has_multicast = rank_count > 1 && rank_count <= cuda::kMaxMulticastRanks;
  DeviceShape shape{.stripes = kMostStripes,
                    .slots = 16,
                    .slot_bytes = kMostSlot,
                    .slots_per_slice = kSlotsPerSlice,
                    .message_parts = parts_of_messages(rank_count),
                    .multicast_stripes = has_multicast ? kMulticastStripes : 0,
                    .short_bytes = has_mail ? kMailboxDataBytes : 0};
  const auto fits = [&] { return LinkLayout(rank_count, shape).bytes() <= kRingsBytes; };
  while (!fits() && shape.slot_bytes > kLeastSlot) shape.slot_bytes /= 2;
  while (!fits() && shape.stripes > kPlanChannels) shape.stripes /= 2;
  while (!fits() && shape.slot_bytes > 1024) shape.slot_bytes /= 2;
  return shape;
}

uint32_t longest_slice(uint32_t most_bytes) {
  if (most_bytes < cuda::kTurnBytes) return most_bytes;
  return most_bytes / cuda::kTurnBytes * cuda::kTurnBytes;
}

bool refers_always(std::span<const Plan> plans, ReduceOp op) {
  const auto is_link = [](const End& end) { return end.kind == EndKind::kLink; };
  for (const Plan& plan : plans) {
    if (plan.scratch_chunks > 0 || is_multicast(plan)) return false;
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (!std::ranges::any_of(step.sinks, is_link)) continue;
        const StepUse use = StepUse::of(plan, step, op);
        const bool relays = use.copies && is_link(step.sources[0]);
        if (relays || !use.refers) return false;
      }
    }
  }
  return true;
}

uint32_t referenced_slice(uint64_t chunk_bytes) {
  constexpr uint64_t kMost = flag::kMaxBytes / cuda::kTurnBytes * cuda::kTurnBytes;
  const uint64_t slices = std::max<uint64_t>(1, (chunk_bytes + kMost - 1) / kMost);
  const uint64_t part = std::max<uint64_t>(1, (chunk_bytes + slices - 1) / slices);
  return static_cast<uint32_t>((part + cuda::kTurnBytes - 1) / cuda::kTurnBytes * cuda::kTurnBytes);
}

DeviceCut DeviceCut::of(std::span<const Plan> plans, const DeviceShape& shape) {
  uint32_t channels = 1;
  size_t lanes = 1;
  bool multicast = false;
  for (const Plan& plan : plans) {
    channels = std::max(channels, channels_of(plan));
    lanes = std::max(lanes, plan.lanes.size());
    multicast = multicast || is_multicast(plan);
  }
  DeviceCut cut{.channels = channels, .most_stripes = std::max(1u, shape.stripes / channels)};
  // A rank borrows no more blocks than a call has stripes of one lane.
  cut.most_stripes = std::clamp(static_cast<uint32_t>(kMostStripes / lanes), 1u, cut.most_stripes);
  uint32_t ring_slots = shape.slots;
  uint32_t most = shape.slots_per_slice;
  if (multicast) {
    cut.most_stripes = std::min(cut.most_stripes, std::max(1u, shape.multicast_stripes));
    ring_slots = shape.multicast_slots;
    most = std::min(most, kMulticastSlotsPerSlice);
  }
  // A plan needs half of a ring's slots at most: so credits may come late.
  const uint32_t per_slice =
      std::clamp(std::bit_floor(ring_slots / 2 / std::max(1u, plans[0].slots_needed)), 1u, most);
  cut.slots = ring_slots / per_slice;
  cut.slice_bytes = longest_slice(per_slice * shape.slot_bytes);
  return cut;
}

DeviceCut DeviceCut::by_reference(const DeviceShape& shape, uint64_t chunk_bytes) const {
  DeviceCut cut = *this;
  cut.slots = shape.slots;
  cut.slice_bytes = referenced_slice(chunk_bytes);
  return cut;
}

uint32_t device_stripes(uint64_t call_bytes, uint32_t most, uint32_t multiprocessors,
                        uint32_t ranks_on_device) {
  const uint32_t blocks = std::max(1u, multiprocessors / std::max(1u, ranks_on_device));
  const auto useful = static_cast<uint32_t>(std::min<uint64_t>(call_bytes / kStripeBytes, kMostStripes));
  return std::clamp(std::min(useful, blocks), 1u, most);
}

uint32_t short_stripes(uint64_t call_bytes, uint32_t multiprocessors, uint32_t ranks_on_device) {
  const uint32_t blocks = std::max(1u, multiprocessors / std::max(1u, ranks_on_device));
  const uint32_t most = std::min(cuda::kMaxShortLanes, blocks);
  return std::clamp(static_cast<uint32_t>(call_bytes / kShortStripeBytes), 1u, most);
}

}  // namespace tutti
