// Goal: the sim transport does what its tests rely on: one seed is one history, links keep their order and
// overtake each other, faults do what they say, and a deadlock is found. Method: raw links without
// operations, then operations of two ranks that wait for each other.
#include "transports/sim/sim.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/result.h"
#include "tests/sim/cluster.h"

namespace tutti::test {
namespace {

constexpr uint16_t kSignature = 77;

/// Writes as many of `count` numbered messages as the link takes.
void write_all(SendLink& link, uint64_t count) {
  while (link.next < count && link.can_write()) {
    std::memcpy(link.span(sizeof(link.next)), &link.next, sizeof(link.next));
    link.commit(kSignature, sizeof(link.next));
  }
}

/// Reads what has arrived; the numbers in it.
std::string read_all(RecvLink& link) {
  std::string text;
  for (;;) {
    const uint64_t word = link.word();
    if ((word & flag::kAgreedMask) != flag::make(link.next, kSignature, sizeof(uint64_t))) return text;
    uint64_t number = 0;
    std::memcpy(&number, link.span(word), sizeof(number));
    EXPECT_EQ(number, link.next);
    text += format("%llu ", static_cast<unsigned long long>(number));
    link.release(word);
  }
}

/// Rank 0 sends `count` messages to every other rank; what arrived, where, when.
std::string history(const SimOptions& options, uint64_t count) {
  SimNetwork network(options);
  std::string text;
  for (uint32_t rank = 0; rank < options.rank_count; ++rank) network.wake(rank);
  while (const auto rank = network.next_turn()) {
    for (uint32_t peer = 1; peer < options.rank_count && *rank == 0; ++peer) {
      write_all(*network.send_link(0, peer, 0), count);
    }
    const std::string numbers = *rank == 0 ? "" : read_all(*network.recv_link(0, *rank, 0));
    if (!numbers.empty()) {
      text += format("%u@%llu: ", *rank, static_cast<unsigned long long>(network.now())) + numbers + "\n";
    }
    network.progress(*rank);
  }
  for (uint32_t peer = 1; peer < options.rank_count; ++peer) {
    EXPECT_EQ(network.recv_link(0, peer, 0)->next, count);
  }
  return text;
}

TEST(SimNetworkTest, OneSeedIsOneHistory) {
  const SimOptions options{.rank_count = 4, .seed = 42, .slots = 4, .stall_ticks = 100};
  EXPECT_EQ(history(options, 50), history(options, 50));
  std::set<std::string> histories;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    histories.insert(history({.rank_count = 4, .seed = seed, .slots = 4, .stall_ticks = 100}, 50));
  }
  EXPECT_EQ(histories.size(), 20u);
}

TEST(SimNetworkTest, LinksOvertakeEachOther) {
  // Two messages at the same moment on two links: over the seeds either arrives first.
  std::set<uint32_t> first;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = history({.rank_count = 3, .seed = seed, .turn_ticks = 1}, 1);
    first.insert(text.find("1@") < text.find("2@") ? 1 : 2);
  }
  EXPECT_EQ(first.size(), 2u);
}

TEST(SimNetworkTest, AStoppedRankSendsExactlySoManyMessages) {
  for (uint64_t most = 0; most < 8; ++most) {
    SimNetwork network({.rank_count = 2, .seed = most, .slots = 4});
    network.stop_rank_after_messages(0, most);
    network.wake(0);
    while (const auto rank = network.next_turn()) {
      if (*rank == 0) write_all(*network.send_link(0, 1, 0), 20);
      if (*rank == 1) read_all(*network.recv_link(0, 1, 0));
      network.progress(*rank);
    }
    EXPECT_TRUE(network.stopped(0));
    EXPECT_EQ(network.recv_link(0, 1, 0)->next, most);
  }
}

TEST(SimNetworkTest, ATornLinkIsSilentAfterHalfAMessage) {
  SimNetwork network({.rank_count = 2, .seed = 3, .slots = 4});
  network.tear_link(0, 1, 0, 2);
  network.wake(0);
  while (const auto rank = network.next_turn()) {
    if (*rank == 0) write_all(*network.send_link(0, 1, 0), 20);
    if (*rank == 1) read_all(*network.recv_link(0, 1, 0));
    network.progress(*rank);
  }
  EXPECT_EQ(network.recv_link(0, 1, 0)->next, 2u);
  EXPECT_LE(network.send_link(0, 1, 0)->next, 2u + 4u);
}

TEST(SimClusterTest, ADeadlockIsFoundAndEveryRankNamesWhomItWaitsFor) {
  // Each of three ranks first waits for its neighbour's message.
  SimCluster cluster({.rank_count = 3, .seed = 5});
  std::byte buffer[8] = {};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Message receive{.buffer = buffer, .bytes = 8, .peer = (rank + 1) % 3, .seed = 1};
    auto operation = Operation::bind_messages(std::span(&receive, 1), {}, cluster.links(rank));
    operation->start({}, 0);
    cluster.set_operation(rank, std::move(operation));
  }
  const std::vector<Outcome> outcomes = cluster.run([](uint32_t) {});
  EXPECT_EQ(describe(outcomes),
            "rank 0 waits for a message of rank 1 in step 0; rank 1 waits for a message of rank 2 in step 0; "
            "rank 2 waits for a message of rank 0 in step 0");
  EXPECT_FALSE(waits_lead_to_stopped(outcomes));
}

}  // namespace
}  // namespace tutti::test
