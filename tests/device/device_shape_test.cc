// Goal: long calls are cut into long slices and spread over many blocks, and the links of a rank take a
// bounded part of its device. Method: the shape, the layout and the tables that binding makes of a call of
// 256 MiB.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "device/device_rank.h"
#include "device/link_layout.h"
#include "engine/cuda/bind.h"

namespace tutti::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kMultiprocessors = 132;

/// Gives every link the same index.
class OneIndex final : public cuda::LinkIndex {
 public:
  uint32_t send(uint32_t, cuda::LinkName) override { return 0; }
  uint32_t receive(uint32_t, cuda::LinkName) override { return 0; }
  uint32_t send_multicast(uint32_t, uint32_t, cuda::Multicast) override { return 0; }
  uint32_t receive_multicast(uint32_t, uint32_t, cuda::Multicast) override { return 0; }
};

/// The slices that a lane moves, one after another.
uint64_t slices_of(const cuda::Image& image, const cuda::Lane& lane) {
  uint64_t slices = 0;
  for (uint32_t round = 0; round < lane.round_count; ++round) {
    const uint64_t start = lane.round_count == 1 ? 0 : round * lane.round_bytes;
    for (uint32_t s = 0; s < lane.step_count; ++s) {
      const cuda::Step& step = image.steps[lane.first_step + s];
      for (uint32_t k = 0; k < step.chunk_count; ++k) {
        const uint64_t chunk = image.chunk_bytes[step.first_chunk + k];
        const uint64_t piece = std::min(chunk - std::min(chunk, start), lane.round_bytes);
        slices += (piece + step.slice_bytes - 1) / step.slice_bytes;
      }
    }
  }
  return slices;
}

/// What rank 0's part in an all_reduce of `bytes` becomes, as DeviceExecutor::bind decides it.
cuda::Image bind_call(const char* name, uint32_t ranks, uint64_t bytes, bool multicast) {
  const DeviceShape shape = DeviceShape::of(ranks);
  const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, name);
  const Request request{.collective = Collective::kAllReduce,
                        .rank_count = ranks,
                        .block_bytes = bytes,
                        .type = DataType::kFloat32};
  const Facts facts{.can_publish = false,
                    .can_multicast = multicast,
                    .can_reference = true,
                    .slots = shape.slots / 2,
                    .slot_bytes = shape.slot_bytes};
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(algorithm->make(request, facts, rank));
  const DeviceCut cut = DeviceCut::of(plans, shape);
  const uint32_t count = device_stripes(bytes, cut.most_stripes, kMultiprocessors, 1);
  std::vector<Geometry> stripes;
  for (uint32_t i = 0; i < count; ++i) stripes.push_back(Geometry::uniform(plans[0], bytes, {i, count}));
  OneIndex index;
  return cuda::bind(plans[0], stripes,
                    {.type = DataType::kFloat32,
                     .slots = cut.slots,
                     .slot_bytes = cut.slice_bytes,
                     .least_slice_bytes = 32768},
                    index);
}

uint64_t most_slices(const cuda::Image& image) {
  uint64_t most = 0;
  for (const cuda::Lane& lane : image.lanes) most = std::max(most, slices_of(image, lane));
  return most;
}

TEST(DeviceShapeTest, ServersOfUpTo8DevicesHaveSlotsOf64KiBIn32Stripes) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    const DeviceShape shape = DeviceShape::of(ranks);
    EXPECT_EQ(shape.stripes, 32u) << ranks;
    EXPECT_EQ(shape.slot_bytes, 65536u) << ranks;
    EXPECT_EQ(shape.slots_per_slice * shape.slot_bytes, 256u << 10) << ranks;
  }
}

TEST(DeviceShapeTest, TheLinksOfARankTakeABoundedPartOfItsDevice) {
  EXPECT_EQ(LinkLayout(2, DeviceShape::of(2)).bytes() / kMiB, 59u);
  EXPECT_EQ(LinkLayout(4, DeviceShape::of(4)).bytes() / kMiB, 148u);
  EXPECT_EQ(LinkLayout(8, DeviceShape::of(8)).bytes() / kMiB, 310u);
  for (uint32_t ranks = 1; ranks <= 200; ++ranks)
    EXPECT_LE(LinkLayout(ranks, DeviceShape::of(ranks)).bytes(), 320 * kMiB) << ranks;
}

TEST(DeviceShapeTest, NothingOverlapsInTheMemoryOfARank) {
  for (const uint32_t ranks : {2u, 3u, 8u}) {
    const LinkLayout layout(ranks, DeviceShape::of(ranks));
    std::vector<std::pair<size_t, size_t>> pieces = {{0, sizeof(ExposedBuffer)}};
    const RingShape ring = layout.ring();
    for (uint32_t number = 0; number < layout.rings(); ++number) {
      for (uint32_t reader = 0; reader < ranks; ++reader) {
        if (reader == 1) continue;  // the owner
        pieces.emplace_back(layout.cells_at(1, reader, number), ring.cells_bytes() + sizeof(Credit));
        pieces.emplace_back(layout.slots_at(1, reader, number), layout.slots_bytes(ring.slots));
      }
    }
    for (uint32_t writer = 0; writer < ranks; ++writer)
      pieces.emplace_back(layout.mailbox_at(writer), size_t{cuda::kMailboxBytes});
    for (uint32_t link = 0; link < layout.multicast_link_count(); ++link)
      pieces.emplace_back(layout.multicast_cells_at(link),
                          layout.multicast_ring().cells_bytes() + sizeof(Credit));
    std::sort(pieces.begin(), pieces.end());
    for (size_t i = 1; i < pieces.size(); ++i) {
      ASSERT_GE(pieces[i].first, pieces[i - 1].first + pieces[i - 1].second) << i;
      EXPECT_EQ(pieces[i].first % 16, 0u);
    }
    EXPECT_LE(pieces.back().first + pieces.back().second, layout.bytes());
    const size_t slots = layout.slots_at(1, 0, 0);
    EXPECT_EQ(slots, layout.zeroed_bytes()) << "cells, credits and mailboxes begin as zero";
  }
}

// Goal: a long slice leaves nothing over that would take a turn of the block's threads, and a short one is as
// long as it may be.
TEST(DeviceShapeTest, LongSlicesAreWholeTurns) {
  EXPECT_EQ(longest_slice(256 << 10), 4 * cuda::kTurnBytes);
  EXPECT_EQ(longest_slice(64 << 10), cuda::kTurnBytes);
  EXPECT_EQ(longest_slice(cuda::kTurnBytes - 1), cuda::kTurnBytes - 1);
  EXPECT_EQ(longest_slice(8192), 8192u);
}

// Goal: what travels by reference has as few slices as a message's flag can tell of, all of about one length.
TEST(DeviceShapeTest, ReferencedSlicesAreFewAndAlike) {
  EXPECT_EQ(referenced_slice(0), cuda::kTurnBytes);
  EXPECT_EQ(referenced_slice(cuda::kTurnBytes + 1), 2 * cuda::kTurnBytes);
  EXPECT_EQ(referenced_slice(4 * kMiB), 35 * cuda::kTurnBytes) << "two halves";
  for (const uint64_t bytes : {uint64_t{1}, 3 * kMiB, 4 * kMiB, 100 * kMiB, uint64_t{1} << 33}) {
    const uint64_t slice = referenced_slice(bytes);
    EXPECT_LE(slice, flag::kMaxBytes) << bytes;
    EXPECT_EQ(slice % cuda::kTurnBytes, 0u) << bytes;
  }
}

// Goal: a long call of ranks that share memory is one round of two slices. Method: a stripe of 256 MiB, 2
// ranks.
TEST(DeviceShapeTest, ReferencesTakeOneSlotAndOneRound) {
  const DeviceShape shape = DeviceShape::of(2);
  const DeviceCut cut = DeviceCut{}.by_reference(shape, 4 * kMiB);
  const Rounds rounds =
      Rounds::of(4 * kMiB, cut.slots, 2, {.least = cut.slice_bytes, .most = cut.slice_bytes});
  EXPECT_EQ(rounds.count, 1u);
  EXPECT_EQ((4 * kMiB + rounds.slice_bytes - 1) / rounds.slice_bytes, 2u);
}

// Goal: a plan whose messages can all be references is told from one that sends what it has computed, or
// relays.
TEST(DeviceShapeTest, PlansThatReferAlwaysAreKnown) {
  const auto refers = [](Collective collective, const char* name, ReduceOp op) {
    const Algorithm* algorithm = find_algorithm(collective, name);
    const Request request{
        .collective = collective, .rank_count = 4, .block_bytes = kMiB, .type = DataType::kFloat32};
    std::vector<Plan> plans;
    for (uint32_t rank = 0; rank < 4; ++rank)
      plans.push_back(algorithm->make(
          request, {.can_publish = false, .can_reference = true, .slots = 8, .slot_bytes = 65536}, rank));
    return refers_always(plans, op);
  };
  EXPECT_TRUE(refers(Collective::kAllReduce, "direct_two_shot", ReduceOp::kSum));
  EXPECT_TRUE(refers(Collective::kAllGather, "direct", ReduceOp::kSum));
  EXPECT_FALSE(refers(Collective::kAllReduce, "direct_two_shot", ReduceOp::kPremulSum))
      << "inputs are scaled";
  EXPECT_FALSE(refers(Collective::kBroadcast, "chain", ReduceOp::kSum)) << "a pipeline of relays";
  EXPECT_FALSE(refers(Collective::kReduceScatter, "ring", ReduceOp::kSum))
      << "partial sums are in no user buffer";
}

// Goal: a long call has few slices. Each costs a hand-over besides its bytes, and polls and a fence
// meanwhile.
TEST(DeviceShapeTest, ABlockMovesFewSlicesOfALongCall) {
  for (const auto& [ranks, most] : {std::pair(2u, 54u), std::pair(4u, 63u), std::pair(8u, 75u)}) {
    const cuda::Image image = bind_call("direct_two_shot", ranks, 256 * kMiB, false);
    EXPECT_EQ(image.lanes.size(), 32u);
    EXPECT_LE(most_slices(image), most) << ranks << " ranks";
  }
  const cuda::Image multicast = bind_call("multicast", 8, 256 * kMiB, true);
  EXPECT_EQ(multicast.lanes.size(), 30u) << "10 stripes of 3 lanes";
  EXPECT_LE(most_slices(multicast), 224u);
}

TEST(DeviceShapeTest, APlanWithTwoChannelsHasTwoRingsAStripe) {
  const cuda::Image image = bind_call("double_binary_tree", 8, 256 * kMiB, false);
  EXPECT_EQ(image.lanes.size(), 24u) << "8 stripes, of 4 lanes on most ranks and 3 on this one";
  const DeviceShape shape = DeviceShape::of(8);
  const LinkLayout layout(8, shape);
  EXPECT_EQ(layout.ring_of({.stripe = 15, .channel = 1}, 2), 31u);
  EXPECT_EQ(layout.ring_of({.stripe = 0, .channel = kMessageChannel}, 2), 32u);
  EXPECT_EQ(layout.ring_of({.stripe = 3, .channel = kMessageChannel}, 1), layout.rings() - 1);
}

}  // namespace
}  // namespace tutti::test
