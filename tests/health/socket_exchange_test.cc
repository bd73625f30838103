// Goal: two ranks get both ends of one new socket, whoever asks, and none after the peer has left. Method:
// two exchanges on one control thread, whose messages the test delivers, over loopback.
#include "health/socket_exchange.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "tests/support/control_shortage.h"

namespace tutti::test {
namespace {

class Pair {
 public:
  Pair() {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      SocketExchange::Options options;
      options.rank = rank;
      options.sockets = 2;
      options.listen.interfaces = "lo";
      options.send = [this, rank](uint32_t peer, const FrameHeader& header, std::span<const std::byte> body) {
        ++messages;
        const auto hold = control->hold();
        ends[peer]->handle(rank, {.header = header, .body = {body.begin(), body.end()}});
      };
      ends.push_back(std::make_unique<SocketExchange>(*control, 2));
      ends.back()->open(std::move(options));
    }
  }

  /// Waits for a socket at both ranks. Closed: none has come in time.
  std::array<FileDescriptor, 2> take(uint32_t index) {
    std::array<FileDescriptor, 2> sockets;
    const uint64_t deadline_ns = deadline_after_ms(20'000);
    while (now_ns() < deadline_ns && !(sockets[0].is_open() && sockets[1].is_open())) {
      for (uint32_t rank = 0; rank < 2; ++rank)
        if (!sockets[rank].is_open()) sockets[rank] = ends[rank]->take(1 - rank, index);
      std::this_thread::yield();
    }
    return sockets;
  }

  std::unique_ptr<ControlThread> control = std::move(*ControlThread::start());
  std::vector<std::unique_ptr<SocketExchange>> ends;
  std::atomic<int> messages = 0;
};

TEST(SocketExchangeTest, BothRanksGetTheEndsOfOneSocketWhoeverAsks) {
  Pair pair;
  for (const uint32_t asking : {0u, 1u}) {
    for (const uint32_t index : {0u, 1u}) {
      const uint32_t before = pair.ends[0]->arrivals();
      pair.ends[asking]->request(1 - asking, index);
      const auto sockets = pair.take(index);
      ASSERT_TRUE(sockets[0].is_open() && sockets[1].is_open()) << asking << " " << index;
      EXPECT_EQ(pair.ends[0]->arrivals(), before + 1);
      const char sent = static_cast<char>('a' + index);
      char came = 0;
      ASSERT_EQ(::send(sockets[0].get(), &sent, 1, MSG_NOSIGNAL), 1);
      pollfd wait{.fd = sockets[1].get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&wait, 1, 20'000), 1);
      ASSERT_EQ(::recv(sockets[1].get(), &came, 1, 0), 1);
      EXPECT_EQ(came, sent);
      EXPECT_FALSE(pair.ends[0]->take(1, index).is_open()) << "taken once";
    }
  }
}

TEST(SocketExchangeTest, BothMayAskAtOnceAndRepeatTheirRequests) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t rank : {0u, 1u}) pair.ends[rank]->request(1 - rank, 0);
  }
  const auto sockets = pair.take(0);
  EXPECT_TRUE(sockets[0].is_open() && sockets[1].is_open());
}

// Goal: an attempt for which the control thread finds no memory keeps out no later one. It once ended the
// process. Method: in each turn a later allocation there fails, until none does; requests are repeated, as a
// connection repeats them.
TEST(SocketExchangeTest, AnAttemptWithoutMemoryKeepsOutNoOther) {
  Pair pair;
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(*pair.control, turn);
    std::array<FileDescriptor, 2> sockets;
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (now_ns() < deadline_ns && !(sockets[0].is_open() && sockets[1].is_open())) {
      pair.ends[1]->request(0, 0);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        if (!sockets[rank].is_open()) sockets[rank] = pair.ends[rank]->take(1 - rank, 0);
      }
      std::this_thread::yield();
    }
    ASSERT_TRUE(sockets[0].is_open() && sockets[1].is_open()) << turn;
    has_failed = shortage.has_failed();
  }
}

TEST(SocketExchangeTest, APeerThatHasLeftIsNotAsked) {
  Pair pair;
  EXPECT_FALSE(pair.ends[0]->is_in_vain(1));
  pair.ends[0]->give_up(1);
  EXPECT_TRUE(pair.ends[0]->is_in_vain(1));
  pair.ends[0]->request(1, 0);
  EXPECT_EQ(pair.messages, 0);
}

TEST(SocketExchangeTest, InvalidMessagesAndMessagesAfterClosingDoNothing) {
  Pair pair;
  const std::vector<std::byte> garbage(kPackedEndpointsBytes, std::byte{0xff});
  const auto hold = pair.control->hold();
  pair.ends[1]->handle(0, {.header = {.kind = FrameKind::kRenew, .first = 2}, .body = {}});
  pair.ends[0]->handle(1, {.header = {.kind = FrameKind::kRenew, .first = 0}, .body = garbage});
  pair.ends[0]->handle(1, {.header = {.kind = FrameKind::kRenew, .first = 0}, .body = {}});
  for (const auto& end : pair.ends) end->close();
  pair.ends[1]->handle(0, {.header = {.kind = FrameKind::kRenew, .first = 0}, .body = {}});
  pair.ends[0]->request(1, 0);
  EXPECT_EQ(pair.messages, 0);
  EXPECT_EQ(pair.ends[0]->arrivals() + pair.ends[1]->arrivals(), 0u);
}

}  // namespace
}  // namespace tutti::test
