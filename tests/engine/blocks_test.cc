// Goal: an all_to_all_v by the plan of an all_to_all: ranks hand on blocks whose sizes only two others know.
// Method: ranks on emulated hosts over the sim transport, with few small slots.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/operation.h"
#include "tests/sim/cluster.h"
#include "tests/support/placements.h"

namespace tutti::test {
namespace {

constexpr uint64_t kMostBytes = 100;
constexpr uint32_t kSlotBytes = 128;

using Bytes = std::vector<std::byte>;

/// All ranks of a placement, each with its operation.
class Ranks {
 public:
  Ranks(const Placement& placement, uint64_t seed)
      : count_(placement.rank_count()),
        random_(seed),
        cluster_({.rank_count = count_,
                  .seed = seed,
                  .slots = kSlots,
                  .slot_bytes = kSlotBytes,
                  .stall_ticks = 100}) {
    const Algorithm& algorithm = *find_algorithm(Collective::kAllToAll, "hierarchical");
    const Request request{.collective = Collective::kAllToAll, .rank_count = count_, .variable_counts = true};
    const Facts facts = placement.facts(kSlots / 2);
    for (uint32_t rank = 0; rank < count_; ++rank) {
      const BindOptions options{
          .reference_bytes = seed % 2 == 0 ? 40 : UINT64_MAX, .slots = kSlots, .slot_bytes = kSlotBytes};
      cluster_.set_operation(rank, Operation::bind_blocks(algorithm.make(request, facts, rank), kMostBytes,
                                                          options, cluster_.links(rank)));
    }
    sent_.assign(count_, std::vector<Bytes>(count_));
    got_ = sent_;
  }

  /// New blocks for a call: of no byte, short ones, of the limit and longer ones.
  void draw() {
    for (uint32_t from = 0; from < count_; ++from) {
      for (uint32_t to = 0; to < count_; ++to) {
        if (from != to) draw(from, to, size());
      }
    }
  }
  /// The sender's block, and the room for it at the receiver.
  void draw(uint32_t from, uint32_t to, uint64_t bytes) {
    sent_[from][to].resize(bytes);
    for (std::byte& byte : sent_[from][to]) byte = static_cast<std::byte>(random_.next());
    got_[to][from].assign(bytes, std::byte{0});
  }
  void expect(uint32_t to, uint32_t from, uint64_t bytes) { got_[to][from].assign(bytes, std::byte{0}); }

  std::vector<Outcome> call() {
    ++calls_;
    for (uint32_t rank = 0; rank < count_; ++rank) {
      std::vector<Message> messages;
      for (uint32_t peer = 0; peer < count_; ++peer) {
        if (peer == rank) continue;
        Bytes& out = sent_[rank][peer];
        Bytes& in = got_[rank][peer];
        messages.push_back({.buffer = out.data(),
                            .bytes = out.size(),
                            .peer = peer,
                            .sending = true,
                            .seed = calls_ ^ out.size()});
        messages.push_back(
            {.buffer = in.data(), .bytes = in.size(), .peer = peer, .seed = calls_ ^ in.size()});
      }
      cluster_.operation(rank).set_blocks(messages, 1000 * calls_);
      cluster_.operation(rank).start({}, 0);
      cluster_.restart(rank);
    }
    // A rank that is done may overwrite what it has sent.
    wanted_ = sent_;
    return cluster_.run([&](uint32_t rank) {
      for (Bytes& bytes : sent_[rank]) bytes.assign(bytes.size(), std::byte{0xee});
    });
  }

  bool all_right() const {
    for (uint32_t from = 0; from < count_; ++from) {
      for (uint32_t to = 0; to < count_; ++to) {
        if (got_[to][from] != wanted_[from][to]) return false;
      }
    }
    return true;
  }

 private:
  static constexpr uint32_t kSlots = 32;

  uint64_t size() {
    constexpr std::array<uint64_t, 4> kOthers = {kMostBytes, kMostBytes + 1, 300, 3000};
    if (random_.one_in(4)) return 0;
    return random_.one_in(4) ? kOthers[random_.below(kOthers.size())] : random_.below(kMostBytes);
  }

  uint32_t count_;
  SimRandom random_;
  SimCluster cluster_;
  uint32_t calls_ = 0;
  std::vector<std::vector<Bytes>> sent_;  ///< by sender, receiver
  std::vector<std::vector<Bytes>> got_;   ///< by receiver, sender
  std::vector<std::vector<Bytes>> wanted_;
};

TEST(BlocksTest, EveryBlockArrivesWhereverTheRanksAre) {
  std::vector<Placement> placements = uneven_placements();
  for (const Placement& more : {place_contiguous({3}), place_contiguous({1, 1, 1}), place_contiguous({4, 4}),
                                place_cyclic(3, 3), place_cyclic(8, 2)})
    placements.push_back(more);
  for (const Placement& placement : placements) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Ranks ranks(placement, seed);
      for (int call = 0; call < 4; ++call) {
        ranks.draw();
        const std::vector<Outcome> outcomes = ranks.call();
        ASSERT_TRUE(all_done(outcomes)) << placement.name << ", seed " << seed << ": " << describe(outcomes);
        ASSERT_TRUE(ranks.all_right()) << placement.name << ", seed " << seed << ", call " << call;
      }
    }
  }
}

// Goal: if two ranks do not agree on their block, the receiver finds that, and names the sender, though
// another rank has handed the block on.
TEST(BlocksTest, AnotherSizeIsTheSendersFault) {
  constexpr uint32_t kFrom = 1;
  constexpr uint32_t kTo = 4;
  struct Sizes {
    uint64_t sent;
    uint64_t expected;
  };
  for (const auto& [sent, expected] :
       {Sizes{8, 9}, Sizes{0, 8}, Sizes{8, 0}, Sizes{kMostBytes, kMostBytes + 1}, Sizes{500, 0},
        Sizes{500, 8}, Sizes{0, 500}, Sizes{500, 501}}) {
    Ranks ranks(place_contiguous({3, 3}), 1);
    ranks.draw();
    ASSERT_TRUE(all_done(ranks.call()));
    ranks.draw();
    ranks.draw(kFrom, kTo, sent);
    ranks.expect(kTo, kFrom, expected);
    const Outcome outcome = ranks.call()[kTo];
    EXPECT_EQ(outcome.end, Ending::kMismatch) << sent << " to " << expected;
    EXPECT_EQ(outcome.peer, kFrom) << sent << " to " << expected;
  }
}

}  // namespace
}  // namespace tutti::test
