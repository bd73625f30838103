// Passed slots between ranks of one host: from which size on a payload is in one, both must know.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/rank_links.h"
#include "transports/shm/memory.h"

namespace tutti::test {
namespace {

constexpr uint32_t kSignature = 7;
constexpr uint32_t kSlots = 64;

SegmentShape shape_of(bool demotes_lines) {
  return {.rank_count = 2,
          .published = 1,
          .channels = kLinkChannels,
          .slots = kSlots,
          .has_wide_slots = true,
          .demotes_lines = demotes_lines};
}

/// Two ranks, whose processors differ.
class PassedSlotSizesTest : public testing::TestWithParam<bool> {
 protected:
  PassedSlotSizesTest() {
    for (const uint32_t rank : {0u, 1u}) {
      auto memory = map_plain(shape(rank).bytes());
      EXPECT_TRUE(memory.is_ok()) << memory.status().text();
      peers_.push_back({.segment = std::make_shared<Segment>(std::move(*memory), shape(rank))});
    }
    for (const uint32_t rank : {0u, 1u}) links_[rank].connect(shape(rank), rank, 0, peers_, nullptr);
  }
  static SegmentShape shape(uint32_t rank) { return shape_of(GetParam() == (rank == 0)); }

  /// Sends a message and reads it. Returns whether it was in a passed slot.
  bool exchange(uint32_t from, uint64_t number, uint64_t bytes) {
    SendLink& send = *links_[from].send_link(1 - from, kMessageChannel);
    RecvLink& recv = *links_[1 - from].recv_link(from, kMessageChannel);
    const auto byte = static_cast<std::byte>(number * 31 + 1);
    EXPECT_TRUE(send.can_write());
    const bool passes = send.passes(bytes);
    std::fill_n(send.span(bytes), bytes, byte);
    send.commit(kSignature, bytes);
    EXPECT_TRUE(recv.has_arrived());
    const std::byte* const payload = recv.span(recv.word());
    EXPECT_EQ(std::count(payload, payload + bytes, byte), static_cast<ptrdiff_t>(bytes))
        << "message " << number;
    recv.release(recv.word());
    return passes;
  }

  std::vector<PeerSegment> peers_;
  std::array<RankLinks, 2> links_;
};

// Goal: a payload arrives whole where the two processors want different sizes: the lower rank's counts.
TEST_P(PassedSlotSizesTest, TheLowerRanksLeastSizeCounts) {
  const uint64_t least = PassedSlots::least_bytes_where(shape(0).demotes_lines);
  for (uint64_t number = 0; number < 8 * kSlots; ++number) {
    const uint64_t bytes = 900 + number * 97 % 4000;
    for (const uint32_t from : {0u, 1u}) {
      const bool passes = exchange(from, number, bytes);
      if (number > 3 * kSlots) {
        EXPECT_EQ(passes, bytes >= least) << bytes;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LowerDemotes, PassedSlotSizesTest, testing::Bool());

}  // namespace
}  // namespace tutti::test
