// Goal: a receive from any rank works over every transport between hosts. Method: three ranks of this
// process, each with its HostExecutor, as if on three hosts.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <array>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/host_executor.h"
#include "core/clock.h"
#include "engine/call.h"
#include "health/control_plane.h"
#include "net/control_thread.h"
#include "tests/support/rank_pages.h"
#include "tests/transports/mesh.h"

namespace tutti::test {
namespace {

constexpr uint32_t kRanks = 3;
constexpr uint16_t kTag = 7;
constexpr SegmentShape kShape{.rank_count = kRanks,
                              .published = kRanks,
                              .channels = channels_of_stripes(1),
                              .slots = 8,
                              .slot_bytes = 4096};

class ReceiveAnyTest : public testing::TestWithParam<size_t> {
 protected:
  ReceiveAnyTest() {
    heap_.reset(*SymmetricHeap::create(1 << 20));
    config_ = under_test().config;
    config_.heartbeat_ms = 0;
    std::array<NetworkConnections::Transports, kRanks> transports;
    std::array<std::vector<NetworkConnections::Peer>, kRanks> peers;
    std::array<std::vector<ControlPlane::Peer>, kRanks> controls;
    control_ = std::move(*ControlThread::start());
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto transport = under_test().entry->open({.rank = rank,
                                                 .rank_count = kRanks,
                                                 .shape = kShape.peer_ring(),
                                                 .channels = kShape.channels,
                                                 .config = config_,
                                                 .derive_key = key_of_label});
      EXPECT_TRUE(transport.is_ok()) << transport.status().text();
      transports[rank].push_back(std::move(*transport));
    }
    for (uint32_t low = 0; low < kRanks; ++low) {
      for (uint32_t high = low + 1; high < kRanks; ++high) {
        NetworkConnections::Peer to_high{.rank = high, .address = transports[high][0]->address()};
        NetworkConnections::Peer to_low{.rank = low, .address = transports[low][0]->address()};
        for (uint32_t i = 0; i < transports[low][0]->socket_count(); ++i) {
          auto ends = connect_ends(under_test().over_loopback);
          to_high.sockets.push_back(std::move(ends[0]));
          to_low.sockets.push_back(std::move(ends[1]));
        }
        peers[low].push_back(std::move(to_high));
        peers[high].push_back(std::move(to_low));
        int ends[2] = {-1, -1};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        controls[low].push_back({.rank = high, .socket = FileDescriptor(ends[0])});
        controls[high].push_back({.rank = low, .socket = FileDescriptor(ends[1])});
      }
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) introduce(rank, std::move(controls[rank]));
    on_all_ranks(
        [&](uint32_t rank) { make_rank(rank, std::move(transports[rank]), std::move(peers[rank])); });
  }
  ~ReceiveAnyTest() override {
    on_all_ranks([&](uint32_t rank) {
      if (ranks_[rank] != nullptr) leave(rank);
    });
  }

  const TransportCase& under_test() const { return transport_cases()[GetParam()]; }
  HostExecutor& rank(uint32_t number) { return *ranks_[number]; }
  template <class Body>
  static void on_all_ranks(const Body& body) {
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  }
  void leave(uint32_t number) {
    EXPECT_TRUE(rank(number).leave());
    ranks_[number].reset();
    peers_[number]->show_left();
  }

  static Message message(std::vector<char>& data, uint32_t peer, bool sending, uint16_t tag = kTag) {
    return {.buffer = data.data(),
            .bytes = data.size(),
            .peer = peer,
            .sending = sending,
            .seed = message_seed(DataType::kUint8, tag, data.size()),
            .tag = tag};
  }
  void send(uint32_t from, std::vector<char>& data, uint16_t tag = kTag) {
    const Status sent = rank(from).run(message(data, 0, true, tag));
    EXPECT_TRUE(sent) << sent.text();
  }
  /// Rank 0's call. Returns the sender; 0: it failed.
  uint32_t receive(std::vector<char>& data) {
    const Message wanted = message(data, 0, false);
    const auto sender = rank(0).await_sender(wanted.seed);
    EXPECT_TRUE(sender.is_ok()) << sender.status().text();
    if (!sender.is_ok()) return 0;
    const Status received = rank(0).run(message(data, *sender, false));
    EXPECT_TRUE(received) << received.text();
    return received ? *sender : 0;
  }

 private:
  /// What the rank knows of the others: their pages, for which it asks them.
  void introduce(uint32_t rank, std::vector<ControlPlane::Peer> controls) {
    std::vector<PeerSegment> memory = pages_.of(rank).memory();
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) memory[peer] = {.segment = memory[peer].segment, .is_remote = true};
    }
    peers_[rank] = std::make_unique<Peers>(rank, kRanks);
    peers_[rank]->set_hosts({0, 1, 2});
    peers_[rank]->set_own_page(pages_.header(rank));
    peers_[rank]->set_memory(memory);
    auto plane =
        ControlPlane::open(*control_, std::move(controls), 0,
                           {.on_alert = [](uint32_t, const Status&) {},
                            .on_left = [](uint32_t) {},
                            .on_lost = [](uint32_t, bool, const Status&) {},
                            .report = [this, rank](uint32_t) { return StatusCopy::of(pages_.status(rank)); },
                            .on_members = [](uint32_t, std::span<const std::byte>) {}});
    ASSERT_TRUE(plane.is_ok()) << plane.status().text();
    peers_[rank]->set_control_plane(*plane);
  }
  void make_rank(uint32_t rank, NetworkConnections::Transports transports,
                 std::vector<NetworkConnections::Peer> peers) {
    auto network = NetworkConnections::open(std::move(transports), std::move(peers), kShape.peer_ring(),
                                            kRanks, {.deadline_ns = deadline_after_ms(60'000)});
    ASSERT_TRUE(network.is_ok()) << network.status().text();
    ranks_[rank] =
        std::make_unique<HostExecutor>(HostExecutorOptions{.peers = *peers_[rank],
                                                           .config = config_,
                                                           .heap = *heap_,
                                                           .shape = kShape,
                                                           .timeout_ms = 60'000,
                                                           .network_traits = *under_test().entry->traits,
                                                           .network = std::move(*network)});
  }

  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{kShape};
  std::unique_ptr<ControlThread> control_;
  std::array<std::unique_ptr<Peers>, kRanks> peers_;
  std::array<std::unique_ptr<HostExecutor>, kRanks> ranks_;
};

// Goal: every message comes once, whole, with its sender, in the order of that sender. Method: short
// messages, and long ones from and to registered buffers, which a transport may carry without copies.
TEST_P(ReceiveAnyTest, MessagesOfSeveralSendersComeInTheirOrder) {
  constexpr int kMessages = 10;
  std::barrier<> next_size(kRanks);
  on_all_ranks([&](uint32_t number) {
    for (const size_t bytes : {size_t{0}, size_t{8}, size_t{5'000}, size_t{300'000}}) {
      std::vector<char> data(bytes);
      const auto registered = rank(number).register_buffer(reinterpret_cast<std::byte*>(data.data()), bytes);
      EXPECT_TRUE(registered.is_ok()) << registered.status().text();
      std::array<int, kRanks> seen = {};
      for (int i = 0; i < (number == 0 ? 2 * kMessages : kMessages); ++i) {
        if (number != 0) {
          data.assign(bytes, static_cast<char>(kMessages * static_cast<int>(number) + i));
          send(number, data);
          continue;
        }
        const uint32_t sender = receive(data);
        EXPECT_NE(sender, 0u);
        const auto expected = static_cast<char>(kMessages * static_cast<int>(sender) + seen[sender]++);
        EXPECT_EQ(data, std::vector<char>(bytes, expected));
      }
      if (registered.is_ok() && *registered != 0) rank(number).deregister_buffer(*registered);
      next_size.arrive_and_wait();
    }
  });
}

// Goal: receives from any rank and from a named one follow each other. Method: rank 1 sends a second message,
// with another tag, behind each of its messages for any rank.
TEST_P(ReceiveAnyTest, NamedReceivesFollowReceivesFromAnyRank) {
  constexpr int kTurns = 20;
  on_all_ranks([&](uint32_t number) {
    std::vector<char> data(100, static_cast<char>(number));
    std::array<int, kRanks> seen = {};
    for (int turn = 0; turn < (number == 0 ? 2 * kTurns : kTurns); ++turn) {
      if (number != 0) {
        send(number, data);
        if (number == 1) send(1, data, kTag + 1);
        continue;
      }
      const uint32_t sender = receive(data);
      ++seen[sender];
      if (sender != 1) continue;
      const Status second = rank(0).run(message(data, 1, false, kTag + 1));
      EXPECT_TRUE(second) << second.text();
    }
    if (number == 0) {
      EXPECT_EQ(seen, (std::array{0, kTurns, kTurns}));
    }
  });
}

// Goal: what ranks have sent before they left still comes; afterwards the call tells that nobody is left.
TEST_P(ReceiveAnyTest, RanksThatHaveLeftSendNoMore) {
  on_all_ranks([&](uint32_t number) {
    std::vector<char> data(3'000, 'm');
    if (number != 0) {
      send(number, data);
      leave(number);
      return;
    }
    EXPECT_NE(receive(data), 0u);
    EXPECT_NE(receive(data), 0u);
    const auto nobody = rank(0).await_sender(0);
    EXPECT_EQ(nobody.status().code(), Code::kPeerLost) << nobody.status().text();
  });
}

std::vector<size_t> between_hosts() {
  std::vector<size_t> cases;
  for (size_t i = 0; i < transport_cases().size(); ++i) {
    if (!transport_cases()[i].entry->traits->needs_shared_rings) cases.push_back(i);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Transports, ReceiveAnyTest, testing::ValuesIn(between_hosts()),
                         [](const auto& one) { return transport_cases()[one.param].name; });

}  // namespace
}  // namespace tutti::test
