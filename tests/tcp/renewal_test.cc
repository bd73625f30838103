// Goal: a socket that is torn at any byte, in any state, costs no message and doubles none; a peer that is
// gone is still told; a peer that breaks the protocol ends the connection for good. Method: seeded traffic
// over wires that the test tears (torn_wire.h) and over sockets that are shut down; new ones come late, or
// not at all; fields of a greeting changed one by one.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/clock.h"
#include "tests/support/scope.h"
#include "tests/tcp/alone.h"
#include "tests/tcp/tls_support.h"
#include "tests/tcp/torn_wire.h"

namespace tutti::test {
namespace {

/// Where the sockets of two ranks come from. A descriptor stands for a wire of the test, or is a socket.
class Exchange {
 public:
  class End final : public SocketRenewal {
   public:
    End(Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}
    void request(uint32_t /*peer*/, uint32_t index) override {
      ++requests;
      if (!exchange_.is_silent) exchange_.serve(index);
    }
    uint32_t arrivals() const override { return exchange_.arrivals_; }
    FileDescriptor take(uint32_t /*peer*/, uint32_t index) override {
      return std::exchange(exchange_.ready_[rank_][index], FileDescriptor());
    }
    bool is_in_vain(uint32_t /*peer*/) const override { return is_gone; }
    int requests = 0;
    bool is_gone = false;

   private:
    Exchange& exchange_;
    int rank_;
  };

  /// A new socket for both. Its first bytes are its number.
  void serve(uint32_t index) {
    SocketPair pair = connect_pair(Wire::kUnix);
    for (const FileDescriptor& end : pair.ends)
      ASSERT_EQ(::send(end.get(), &served, sizeof(served), 0), static_cast<ssize_t>(sizeof(served)));
    for (int rank = 0; rank < 2; ++rank) ready_[rank][index] = std::move(pair.ends[rank]);
    ++arrivals_;
    ++served;
  }
  End ends[2] = {End(*this, 0), End(*this, 1)};
  bool is_silent = false;
  uint32_t served = 0;

 private:
  std::map<uint32_t, FileDescriptor> ready_[2];
  uint32_t arrivals_ = 0;
};

struct Case {
  uint32_t streams = 1;
  bool tls = false;
  bool sockets = false;        ///< real ones, shut down now and then
  uint64_t life_bytes = 3000;  ///< of a wire, on average
  RingShape shape{.slots = 8, .slot_bytes = 4096};
  uint64_t patience_ms = 60'000;
  uint64_t ask_every_ms = 0;
};

/// Two ranks, whose streams are torn again and again.
class Torn {
 public:
  Torn(const Case& at, uint64_t seed) : case_(at), random_(seed * 7919) {
    context_ = std::move(*tcp::TlsContext::create());
    tcp::TcpOptions options;
    options.epoch = 3;
    Streams streams[2];
    for (uint32_t i = 0; i < at.streams; ++i) {
      exchange.serve(i);
      for (int rank = 0; rank < 2; ++rank)
        streams[rank].push_back(open(rank, exchange.ends[rank].take(1 - rank, i)));
    }
    shake_hands(streams);
    for (int rank = 0; rank < 2; ++rank) {
      options.rank = static_cast<uint32_t>(rank);
      options.renewal = {
          .sockets = &exchange.ends[rank],
          .open = [this, rank](uint32_t, FileDescriptor socket) -> Result<std::unique_ptr<tcp::Stream>> {
            return open(rank, std::move(socket));
          },
          .patience_ms = case_.patience_ms,
          .ask_every_ms = case_.ask_every_ms,
          .includes_loopback = true};
      sides[rank].connect(std::move(streams[rank]), options);
    }
  }

  /// Tears a socket, as a box in between would.
  void shut_some() {
    if (!case_.sockets || random_.below(20) != 0 || shutters_.empty()) return;
    shut(random_.below(shutters_.size()));
  }
  void shut(size_t end) const { ::shutdown(shutters_[end].get(), SHUT_RDWR); }
  /// What no rank has sent.
  void write(size_t end, const Bytes& bytes) const {
    ASSERT_EQ(::send(shutters_[end].get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  /// The wire with that number: what reaches it, and whether it answers.
  TornWire& wire(uint32_t number) { return *wires_[number]; }
  TrafficSide& side(int rank) { return sides[rank]; }
  tcp::TcpConnection& connection(int rank) { return sides[rank].connection(); }

 private:
  Case case_;

 public:
  Exchange exchange;
  Side sides[2] = {Side(1, case_.shape, 5, 0), Side(0, case_.shape, 5, 0)};
  bool is_quiet = false;  ///< wires last

 private:
  std::unique_ptr<tcp::Stream> open(int rank, FileDescriptor socket) {
    std::unique_ptr<tcp::Stream> stream;
    uint32_t number = 0;
    EXPECT_EQ(::recv(socket.get(), &number, sizeof(number), 0), static_cast<ssize_t>(sizeof(number)));
    if (case_.sockets) {
      shutters_.emplace_back(::dup(socket.get()));
      if (shutters_.size() > 2 * case_.streams) shutters_.erase(shutters_.begin());
      stream = std::move(*tcp::make_socket_stream(std::move(socket), {}));
    } else {
      // Both ends of a socket come here: the first one makes the wire.
      auto& wire = wires_[number];
      const uint64_t life = is_quiet ? UINT64_MAX : 1 + random_.below(2 * case_.life_bytes);
      if (wire == nullptr) wire = std::make_shared<TornWire>(random_.next(), life);
      stream = std::make_unique<TornStream>(wire, rank);
    }
    if (!case_.tls) return stream;
    tcp::TlsOptions options;
    options.is_client = rank == 0;
    return std::move(*tcp::TlsStream::open(context_, std::move(stream), options));
  }
  static void shake_hands(Streams (&streams)[2]) {
    for (size_t i = 0; i < streams[0].size(); ++i) {
      for (int turn = 0; turn < 100; ++turn) {
        for (Streams& end : streams) static_cast<void>(end[i]->shake_hands());
      }
    }
  }

  SimRandom random_;
  std::shared_ptr<tcp::TlsContext> context_;
  std::vector<FileDescriptor> shutters_;
  std::map<uint32_t, std::shared_ptr<TornWire>> wires_;
};

void run(Torn& torn, uint64_t seed, uint64_t messages, const std::string& what) {
  Traffic traffic(torn.side(0), torn.side(1), seed, messages);
  SimRandom random(seed);
  const uint64_t deadline_ns = deadline_after_ms(120'000);
  while (!traffic.complete()) {
    traffic.turn(static_cast<uint32_t>(random.below(2)));
    torn.shut_some();
    ASSERT_EQ(traffic.failure(), "") << what;
    for (int rank = 0; rank < 2; ++rank)
      ASSERT_TRUE(torn.connection(rank).status().is_ok()) << torn.connection(rank).status().text() << what;
    ASSERT_LT(now_ns(), deadline_ns) << "stuck: " << torn.connection(0).route() << " | "
                                     << torn.connection(1).route() << ", " << torn.exchange.served
                                     << " sockets" << what;
  }
}

std::string describe(const Case& at, uint64_t seed) {
  return format(" (%u streams, tls %d, sockets %d, seed %llu)", at.streams, at.tls, at.sockets,
                static_cast<unsigned long long>(seed));
}

TEST(RenewalTest, EveryMessageArrivesOnceThoughSocketsAreTornAtAnyByte) {
  uint32_t served = 0;
  for (uint64_t seed = 1; seed <= runs_of_scope(1, 200); ++seed) {
    for (const Case& at : {Case{}, Case{.streams = 4}, Case{.tls = true, .life_bytes = 60'000},
                           Case{.streams = 4, .tls = true, .life_bytes = 60'000}, Case{.life_bytes = 300}}) {
      Torn torn(at, seed);
      ASSERT_NO_FATAL_FAILURE(run(torn, seed, 60, describe(at, seed)));
      served += torn.exchange.served;
    }
  }
  EXPECT_GT(served, 20u) << "hardly a socket was torn";
}

TEST(RenewalTest, EveryMessageArrivesOnceThoughSocketsAreShutDown) {
  for (uint64_t seed = 1; seed <= runs_of_scope(2, 100); ++seed) {
    for (const bool tls : {false, true}) {
      for (const uint32_t streams : {1u, 4u}) {
        const Case at{.streams = streams, .tls = tls, .sockets = true};
        Torn torn(at, seed);
        ASSERT_NO_FATAL_FAILURE(run(torn, seed, 200, describe(at, seed)));
        EXPECT_GT(torn.exchange.served, streams) << describe(at, seed);
      }
    }
  }
}

/// Gives both ranks turns until `is_done`; false: too long.
bool run_until(Torn& torn, const std::function<bool()>& is_done) {
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  while (!is_done() && now_ns() < deadline_ns) {
    for (int rank = 0; rank < 2; ++rank) torn.connection(rank).advance();
  }
  return is_done();
}

void commit(TrafficSide& side, uint32_t channel, size_t bytes) {
  SendLink& link = side.send(channel);
  const Bytes payload = message_bytes(1, 0, channel, link.next, bytes);
  std::copy(payload.begin(), payload.end(), link.span(bytes));
  link.commit(9, bytes);
}

bool has_come(TrafficSide& side, uint32_t channel) {
  return side.recv(channel).has_arrived();
}

TEST(RenewalTest, FinishingSurvivesATornSocket) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Torn torn({.life_bytes = 200 * seed}, seed);
    for (int i = 0; i < 8; ++i) commit(torn.side(0), 1, 300);
    ASSERT_TRUE(
        run_until(torn, [&] { return torn.connection(0).drained() && torn.connection(1).drained(); }));
    for (int rank = 0; rank < 2; ++rank) torn.connection(rank).finish();
    ASSERT_TRUE(run_until(torn, [&] {
      return torn.connection(0).state() != PeerState::kOpen && torn.connection(1).state() != PeerState::kOpen;
    })) << seed;
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(has_come(torn.side(1), 1)) << "message " << i << ", seed " << seed;
      RecvLink& link = torn.side(1).recv(1);
      link.release(link.word());
    }
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(torn.connection(rank).state(), PeerState::kEnded) << seed;
  }
}

TEST(RenewalTest, OtherStreamsCarryTheTrafficOfATornOne) {
  Torn torn({.streams = 2, .sockets = true}, 1);
  torn.exchange.is_silent = true;
  torn.shut(0);
  ASSERT_TRUE(run_until(torn, [&] { return !torn.connection(0).detour().empty(); }));
  EXPECT_NE(torn.connection(0).detour().find("connection 1 of 2 is torn"), std::string::npos)
      << torn.connection(0).detour();
  for (int i = 0; i < 4; ++i) commit(torn.side(0), 2, 4000);
  EXPECT_TRUE(run_until(torn, [&] { return has_come(torn.side(1), 2) && torn.connection(0).drained(); }));
  torn.exchange.is_silent = false;
  const std::string told = "connection 1 of 2 was replaced (times: 1)";
  EXPECT_TRUE(run_until(torn, [&] { return torn.connection(0).route().find(told) == 0; }))
      << torn.connection(0).route();
}

TEST(RenewalTest, ACallIsNotDoneWhileWhatItSentMayBeLost) {
  Torn torn({.life_bytes = 1}, 1);
  torn.exchange.is_silent = true;
  commit(torn.side(0), 0, 100);
  for (int turn = 0; turn < 100; ++turn) torn.connection(0).advance();
  EXPECT_FALSE(torn.connection(0).drained());
  EXPECT_GT(torn.connection(0).unconfirmed_bytes(), 0u);
  torn.exchange.is_silent = false;
  torn.is_quiet = true;
  EXPECT_TRUE(run_until(torn, [&] { return torn.connection(0).drained() && has_come(torn.side(1), 0); }));
}

TEST(RenewalTest, APeerThatIsGoneIsToldAtOnce) {
  for (const bool finds_out_by_sending : {false, true}) {
    Torn torn({.sockets = true}, 1);
    torn.exchange.is_silent = true;
    torn.exchange.ends[0].is_gone = true;
    torn.shut(0);
    if (finds_out_by_sending) commit(torn.side(0), 0, 100);
    ASSERT_TRUE(run_until(torn, [&] { return torn.connection(0).state() != PeerState::kOpen; }));
    EXPECT_EQ(torn.exchange.ends[0].requests, 0);
    EXPECT_EQ(torn.connection(0).status().code(), Code::kPeerLost);
    EXPECT_TRUE(torn.connection(0).drained() || torn.connection(0).state() == PeerState::kTorn);
  }
}

TEST(RenewalTest, PatienceEnds) {
  Torn torn({.sockets = true, .patience_ms = 1}, 1);
  torn.exchange.is_silent = true;
  torn.shut(0);
  ASSERT_TRUE(run_until(torn, [&] { return torn.connection(1).state() != PeerState::kOpen; }));
  EXPECT_GT(torn.exchange.ends[1].requests, 0);
  EXPECT_EQ(torn.connection(1).status().code(), Code::kPeerLost);
  EXPECT_EQ(torn.connection(1).state(), PeerState::kTorn);
}

// One stream that is lost for good ends the connection: what was on its way there is lost.
TEST(RenewalTest, PatienceEndsAtOneOfTwoStreams) {
  Torn torn({.streams = 2, .sockets = true, .patience_ms = 1}, 1);
  torn.exchange.is_silent = true;
  commit(torn.side(0), 0, 100);
  torn.connection(0).advance();
  torn.shut(0);
  ASSERT_TRUE(run_until(torn, [&] {
    return torn.connection(0).state() != PeerState::kOpen && torn.connection(1).state() != PeerState::kOpen;
  }));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(torn.connection(rank).state(), PeerState::kTorn);
}

// A peer that has ended its connection closes new sockets, and each one began the patience anew. That peer's
// process lives, so more sockets come.
TEST(RenewalTest, PatienceEndsThoughSocketsCome) {
  Torn torn({.sockets = true, .patience_ms = 1, .ask_every_ms = 1}, 1);
  torn.write(1, Bytes(64, std::byte{0xff}));
  ASSERT_TRUE(run_until(torn, [&] { return torn.connection(0).state() != PeerState::kOpen; }));
  torn.shut(1);
  EXPECT_TRUE(run_until(torn, [&] { return torn.connection(1).state() == PeerState::kTorn; }));
}

/// Rank 1 greets on its second socket, and rank 0 does not answer.
void greet_alone(Torn& torn) {
  torn.is_quiet = true;
  torn.wire(0).tear();
  while (torn.exchange.served < 2) torn.connection(1).advance();
  for (int turn = 0; turn < 10; ++turn) torn.connection(1).advance();
  ASSERT_EQ(torn.connection(1).state(), PeerState::kOpen);
}

// A rank whose new socket brought no greeting never learned that its peer had gone.
TEST(RenewalTest, APeerThatIsGoneDoesNotGreet) {
  Torn torn({}, 1);
  ASSERT_NO_FATAL_FAILURE(greet_alone(torn));
  torn.exchange.ends[1].is_gone = true;
  torn.connection(1).advance();
  EXPECT_NE(torn.connection(1).state(), PeerState::kOpen);
}

// The same for a host that vanished behind the new socket: the rank asks for another socket.
TEST(RenewalTest, AHostThatIsSilentDoesNotGreet) {
  Torn torn({}, 1);
  ASSERT_NO_FATAL_FAILURE(greet_alone(torn));
  torn.wire(1).silent_ms = 60'000;
  std::vector<pollfd> polls;
  torn.connection(1).prepare_wait(polls);
  EXPECT_TRUE(polls.empty());
  torn.connection(1).advance();
  EXPECT_EQ(torn.exchange.served, 3u);
}

TEST(RenewalTest, MemoryComesBackThoughNothingIsConfirmed) {
  Torn torn({.life_bytes = 1 << 20}, 1);
  const Bytes payload(4000, std::byte{7});
  torn.side(0).send(0).commit_reference(9, payload.size(), payload.data());
  for (int turn = 0; turn < 20; ++turn) torn.connection(0).advance();  // the peer's host sees no turn
  EXPECT_TRUE(torn.side(0).send(0).references_returned());
}

TEST(RenewalTest, WhatBreaksTheProtocolEndsTheConnectionForGood) {
  Torn torn({.sockets = true}, 1);
  torn.is_quiet = true;
  const Bytes garbage(64, std::byte{0xff});
  torn.write(0, garbage);
  ASSERT_TRUE(run_until(torn, [&] { return torn.connection(1).state() != PeerState::kOpen; }));
  EXPECT_EQ(torn.connection(1).state(), PeerState::kTorn);
  EXPECT_EQ(torn.exchange.ends[1].requests, 0);
  EXPECT_NE(torn.connection(1).status().text().find("it sent"), std::string::npos)
      << torn.connection(1).status().text();
}

TEST(ResumeTest, OnlyTheRightAnswerIsTaken) {
  const tcp::Resume mine{.from = 4, .to = 9, .epoch = 3, .stream = 1, .received = 100, .sent = 200};
  const tcp::Resume right{.from = 9, .to = 4, .epoch = 3, .stream = 1, .received = 150, .sent = 130};
  const auto taken = tcp::decode(tcp::encode(right), mine, 140);
  ASSERT_TRUE(taken.is_ok()) << taken.status().text();
  EXPECT_EQ(*taken, right);
  const auto expect_refused = [&](tcp::Resume wrong, const std::string& what) {
    const auto refused = tcp::decode(tcp::encode(wrong), mine, 140);
    ASSERT_FALSE(refused.is_ok()) << what;
    EXPECT_EQ(refused.status().code(), Code::kPeerLost);
    EXPECT_NE(refused.status().text().find(what), std::string::npos) << refused.status().text();
  };
  tcp::Resume wrong = right;
  expect_refused((wrong.from = 8, wrong), "rank 8");
  expect_refused((wrong = right, wrong.to = 5, wrong), "peer 5");
  expect_refused((wrong = right, wrong.epoch = 4, wrong), "epoch 4");
  expect_refused((wrong = right, wrong.stream = 0, wrong), "stream 0");
  expect_refused((wrong = right, wrong.sent = 99, wrong), "sent bytes 99");
  expect_refused((wrong = right, wrong.received = 201, wrong), "received bytes 201");
  expect_refused((wrong = right, wrong.received = 139, wrong), "fewer than its host has confirmed, 139");
  auto bytes = tcp::encode(right);
  bytes[0] ^= std::byte{1};
  EXPECT_FALSE(tcp::decode(bytes, mine, 140).is_ok());
  bytes = tcp::encode(right);
  bytes[23] ^= std::byte{1};
  EXPECT_FALSE(tcp::decode(bytes, mine, 140).is_ok());
}

}  // namespace
}  // namespace tutti::test
