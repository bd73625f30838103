// Links to ranks of other hosts: how their sockets are set up, and how they end.
#include "comm/network_connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/unique_id.h"
#include "transports/tcp/tcp_transport.h"

namespace tutti::test {
namespace {

constexpr RingShape kShape{.slots = 8, .slot_bytes = 1024};

/// The links of one of ranks 0 and 1 to the other.
std::unique_ptr<NetworkConnections> links_to(FileDescriptor socket, uint64_t silence_ms, uint32_t peer = 1,
                                             uint16_t epoch = 0) {
  TransportOptions options{.rank = 1 - peer, .rank_count = 2, .shape = kShape, .epoch = epoch};
  options.config.heartbeat_ms = silence_ms;
  NetworkConnections::Transports transports;
  transports.push_back(std::move(*tcp::open_tcp_transport(options)));
  std::vector<NetworkConnections::Peer> peers(1);
  peers[0].rank = peer;
  peers[0].sockets.push_back(std::move(socket));
  auto links = NetworkConnections::open(std::move(transports), std::move(peers), kShape, 2, {});
  EXPECT_TRUE(links.status().is_ok()) << links.status().text();
  return std::move(*links);
}

int option_of(const FileDescriptor& socket, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  EXPECT_EQ(getsockopt(socket.get(), level, name, &value, &bytes), 0);
  return value;
}

/// Both ends of a connection to this host.
std::array<FileDescriptor, 2> connected() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  FileDescriptor end(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listener.get(), generic, bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &bytes), 0);
  EXPECT_EQ(connect(end.get(), generic, bytes), 0);
  return {std::move(end), FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

// Data connections to a host that had stopped answering were torn after 10 s, whatever TUTTI_HEARTBEAT_MS
// said.
TEST(NetworkConnectionsTest, KeepaliveFollowsTheHeartbeat) {
  struct Case {
    uint64_t heartbeat_ms;
    int is_on;
  };
  for (const Case& one : {Case{60'000, 1}, Case{0, 0}}) {
    auto ends = connected();
    const FileDescriptor same(dup(ends[0].get()));
    const auto links = links_to(std::move(ends[0]), one.heartbeat_ms);
    EXPECT_EQ(option_of(same, SOL_SOCKET, SO_KEEPALIVE), one.is_on) << one.heartbeat_ms;
    if (one.is_on == 0) continue;
    EXPECT_EQ(option_of(same, IPPROTO_TCP, TCP_KEEPIDLE), 30);
  }
}

// Destroying a communicator waited for its whole deadline for a peer that was known to be lost meanwhile.
TEST(NetworkConnectionsTest, TheEndIsNotWaitedForInVain) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor reader(ends[1]);
  const auto links = links_to(FileDescriptor(ends[0]), 0);
  SendLink& link = links->send_link(1, 0);
  link.commit(0, 100);
  while (links->undrained_peer()) links->advance();
  ASSERT_GT(links->unconfirmed_bytes(1), 0u) << "nobody reads it";
  int looks = 0;
  links->finish(UINT64_MAX, [&] { return ++looks == 3; });
  EXPECT_EQ(looks, 3);
}

// Frames of all communicators carried epoch 0.
TEST(NetworkConnectionsTest, FramesOfAnotherCommunicatorAreRefused) {
  const UniqueId before = *make_unique_id({});
  UniqueId after = *make_unique_id({});
  while (epoch_of(after) == epoch_of(before)) after = *make_unique_id({});
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const auto sender = links_to(FileDescriptor(ends[0]), 0, 1, epoch_of(before));
  const auto reader = links_to(FileDescriptor(ends[1]), 0, 0, epoch_of(after));
  sender->send_link(1, 0).commit(0, 100);
  while (sender->undrained_peer()) sender->advance();
  while (reader->state(0) == PeerState::kOpen) reader->advance();
  EXPECT_EQ(reader->state(0), PeerState::kTorn);
  EXPECT_NE(reader->status(0).text().find("a frame with epoch"), std::string::npos)
      << reader->status(0).text();
}

/// Joins nobody, and counts the times that it is asked to move something.
class IdleTransport final : public Transport {
 public:
  explicit IdleTransport(int& turns) : turns_(turns) {}
  const TransportTraits& traits() const override { return traits_; }
  std::optional<LinkCost> reach(const RankDescription&, const RankDescription&) const override {
    return std::nullopt;
  }
  Result<Connection*> connect(PeerHandover) override { return Status(Code::kInternal, "nobody to join"); }
  bool progress() override {
    ++turns_;
    return false;
  }
  bool arm_wait(std::vector<pollfd>&) override { return false; }

 private:
  TransportTraits traits_;
  int& turns_;
};

// Goal: a transport of the registry that joins no peer costs nothing later. Method: one before and one behind
// the transport of the only peer. Expectation: no turn reaches them, and the peer's still works.
TEST(NetworkConnectionsTest, TransportsThatJoinNoPeerAreClosed) {
  auto [mine, theirs] = connected();
  int idle_turns = 0;
  NetworkConnections::Transports transports;
  transports.push_back(std::make_unique<IdleTransport>(idle_turns));
  transports.push_back(std::move(*tcp::open_tcp_transport({.rank = 0, .rank_count = 2, .shape = kShape})));
  transports.push_back(std::make_unique<IdleTransport>(idle_turns));
  std::vector<NetworkConnections::Peer> peers(1);
  peers[0].rank = 1;
  peers[0].transport = 1;
  peers[0].sockets.push_back(std::move(mine));
  auto links = NetworkConnections::open(std::move(transports), std::move(peers), kShape, 2, {});
  ASSERT_TRUE(links) << links.status().text();
  (*links)->advance();
  EXPECT_EQ((*links)->state(1), PeerState::kOpen);
  theirs.reset();
  for (int turn = 0; turn < 10'000'000 && (*links)->state(1) == PeerState::kOpen; ++turn) (*links)->advance();
  EXPECT_NE((*links)->state(1), PeerState::kOpen);
  EXPECT_EQ(idle_turns, 0);
}

}  // namespace
}  // namespace tutti::test
