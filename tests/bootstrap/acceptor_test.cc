// Acceptor and connector over real sockets: who attacks the listener is refused at a bounded price, is logged
// once, and the ranks still come in; who dials is told why it did not.
#include "net/acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "net/connector.h"
#include "tests/bootstrap/loop_support.h"
#include "tests/support/no_descriptors.h"

namespace tutti::test {
namespace {

constexpr Claim kClaim{.purpose = Purpose::kTree, .from = 5, .to = 4, .channel = 0};

/// A listening acceptor and what came in through it.
struct Door {
  explicit Door(uint32_t pending_max = 256) {
    Listener listener = loopback_listener();
    endpoint = listener.endpoints[0];
    AcceptorOptions options;
    options.credentials = credentials_from_text("key", "door");
    options.judge = [this](const Claim&) { return judgement; };
    options.on_peer = [this](const Claim& claim, FileDescriptor socket) {
      claims.push_back(claim);
      sockets.push_back(std::move(socket));
    };
    options.on_stranger = [this](const std::string& text) { log.push_back(text); };
    options.on_starved = [this](const Status& why) { starved = why; };
    options.pending_max = pending_max;
    options.proof_timeout_ms = 5000;
    acceptor = std::move(*Acceptor::open(*loop, std::move(listener.socket), std::move(options)));
  }

  ConnectorOptions dial(const char* key = "key") const {
    ConnectorOptions options;
    options.who = "rank 4";
    options.endpoints = {endpoint};
    options.claim = kClaim;
    options.credentials = credentials_from_text(key, "door");
    options.deadline_ns = loop.now() + 60 * kSecondNs;
    return options;
  }

  /// Dials; the clock is moved through retries.
  Result<FileDescriptor> connect(ConnectorOptions options) {
    std::optional<Result<FileDescriptor>> result;
    const auto connector = Connector::start(*loop, std::move(options),
                                            [&](Result<FileDescriptor> done) { result = std::move(done); });
    for (int turn = 0; turn < 10'000 && !result; ++turn) {
      pollfd entry{loop->descriptor(), POLLIN, 0};
      // Nothing from the kernel for a while: it is the clock that is waited for.
      if (!loop->run_ready() && poll(&entry, 1, 5) == 0) loop.advance_ms(100);
    }
    EXPECT_TRUE(result.has_value());
    return result ? std::move(*result) : Result<FileDescriptor>(Status(Code::kInternal, "never ended"));
  }

  /// A connection of a stranger that sends `bytes`.
  FileDescriptor stranger(std::span<const std::byte> bytes = {}) {
    sockaddr_storage storage;
    const socklen_t length = endpoint.to_sockaddr(storage);
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length), 0);
    if (!bytes.empty()) {
      EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    }
    return socket;
  }

  uint64_t turned_away() const {
    return acceptor->counts().refused + acceptor->counts().timed_out + acceptor->counts().displaced;
  }
  bool run_until_turned_away(uint64_t count) {
    return loop.run_until([&] { return turned_away() >= count; });
  }

  ManualLoop loop;
  Endpoint endpoint;
  HandshakeResult judgement = HandshakeResult::kAccepted;
  std::vector<Claim> claims;
  std::vector<FileDescriptor> sockets;
  std::vector<std::string> log;
  Status starved;
  std::unique_ptr<Acceptor> acceptor;
};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(AcceptorTest, ARankComesInAndBytesFollow) {
  Door door;
  auto socket = door.connect(door.dial());
  ASSERT_TRUE(socket.is_ok()) << socket.status().text();
  ASSERT_TRUE(door.loop.run_until([&] { return !door.sockets.empty(); }));
  EXPECT_EQ(door.claims[0], kClaim);
  char byte = 'x';
  ASSERT_EQ(send(socket->get(), &byte, 1, MSG_NOSIGNAL), 1);
  pollfd entry{door.sockets[0].get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 20'000), 1);
  byte = 0;
  EXPECT_EQ(recv(door.sockets[0].get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_TRUE(door.log.empty());
}

// Goal: each kind of stranger is named once, with address and reason, however often it comes.
TEST(AcceptorTest, ScannersAreRefusedAndLoggedOnce) {
  Door door;
  for (uint64_t round = 0; round < 3; ++round) {
    door.stranger();  // connects and goes
    ASSERT_TRUE(door.run_until_turned_away(4 * round + 1));
    door.stranger(bytes_of("SSH-2.0-scanner"));
    ASSERT_TRUE(door.run_until_turned_away(4 * round + 2));
    const FileDescriptor http =
        door.stranger(bytes_of("GET / HTTP/1.1\r\nHost: scanner\r\nUser-Agent: " + std::string(100, 'z')));
    ASSERT_TRUE(door.run_until_turned_away(4 * round + 3));
    const FileDescriptor zeros = door.stranger(std::vector<std::byte>(kResponseBytes));
    ASSERT_TRUE(door.run_until_turned_away(4 * round + 4));
  }
  EXPECT_EQ(door.acceptor->pending_count(), 0u);
  ASSERT_EQ(door.log.size(), 3u);
  const std::array<const char*, 3> reasons = {"without a word", "before it proved anything",
                                              "does not know the key"};
  for (size_t i = 0; i < reasons.size(); ++i) {
    EXPECT_NE(door.log[i].find("127.0.0.1:"), std::string::npos) << door.log[i];
    EXPECT_NE(door.log[i].find(reasons[i]), std::string::npos) << door.log[i];
  }
  EXPECT_TRUE(door.connect(door.dial()).is_ok());
  EXPECT_EQ(door.claims.size(), 1u);
}

// A rank that tried several addresses at once, and needed one, was taken for a stranger, unless a connection
// from the same address had been admitted before. Method: attempts that are given up at any moment, before
// any connection was admitted.
TEST(AcceptorTest, AnAttemptThatARankGivesUpIsNotLogged) {
  constexpr int kTurns = 6;  // more than an attempt needs up to its response
  for (int turns = 1; turns < kTurns; ++turns) {
    Door door;
    auto connector = Connector::start(*door.loop, door.dial(), [](const Result<FileDescriptor>&) {});
    for (int turn = 0; turn < turns; ++turn) (void)door.loop->run_ready();
    connector.reset();
    const Result<FileDescriptor> next = door.connect(door.dial());
    ASSERT_TRUE(next.is_ok());
    // The first attempt was accepted before the second, or never began.
    ASSERT_TRUE(door.loop.run_until([&] { return door.acceptor->pending_count() == 0; }));
    EXPECT_TRUE(door.log.empty()) << turns << ": " << door.log[0];
  }
}

// Goal: who says farewell in another bootstrap's name, or a part of ours, stays a stranger.
TEST(AcceptorTest, AnotherFarewellIsAStrangers) {
  for (const bool is_short : {false, true}) {
    Door door;
    const auto farewell = farewell_of(credentials_from_text("key", is_short ? "door" : "another door"));
    door.stranger(std::span(farewell).first(is_short ? kFarewellBytes - 1 : kFarewellBytes));
    ASSERT_TRUE(door.run_until_turned_away(1));
    EXPECT_EQ(door.log.size(), 1u);
  }
}

// A process without descriptors tried again and again, and nobody learned why ranks did not come.
TEST(AcceptorTest, ALackOfDescriptorsIsTold) {
  Door door;
  const FileDescriptor waits = door.stranger();
  {
    const NoDescriptors none;
    for (int i = 0; i < 12; ++i) door.loop.advance_ms(100);
    // `Door` counts by the manual clock: a second has passed.
    EXPECT_EQ(door.starved.code(), Code::kSystemError);
    EXPECT_NE(door.starved.text().find("RLIMIT_NOFILE"), std::string_view::npos) << door.starved.text();
  }
  door.loop.advance_ms(100);
  EXPECT_TRUE(door.loop.run_until([&] { return door.acceptor->pending_count() == 1; }));
}

TEST(AcceptorTest, AStalledHelloEndsAtItsDeadline) {
  Door door;
  const FileDescriptor stalled = door.stranger(std::vector<std::byte>(kResponseBytes / 2));
  ASSERT_TRUE(door.loop.run_until([&] { return door.acceptor->pending_count() == 1; }));
  door.loop.advance_ms(4999);
  EXPECT_EQ(door.acceptor->pending_count(), 1u);
  door.loop.advance_ms(1);
  EXPECT_EQ(door.acceptor->pending_count(), 0u);
  EXPECT_EQ(door.acceptor->counts().timed_out, 1u);
  ASSERT_EQ(door.log.size(), 1u);
  EXPECT_NE(door.log[0].find("in time"), std::string::npos) << door.log[0];
}

// Goal: a flood holds no more than its share of descriptors, and a rank gets in through it.
TEST(AcceptorTest, ThousandsOfConnectionsAreBounded) {
  constexpr size_t kStrangers = 10'000;
  // Of those that have been turned away the newest stay open on the flooding side, too.
  constexpr size_t kOpen = 500;
  if (!raise_descriptor_limit(kOpen + 200)) GTEST_SKIP() << "may not open enough descriptors";
  Door door(16);
  std::vector<FileDescriptor> strangers(kOpen);
  for (size_t i = 0; i < kStrangers; ++i) {
    strangers[i % kOpen] = door.stranger(std::vector<std::byte>(i % 40));
    while (door.loop->run_ready()) {
    }
    ASSERT_LE(door.acceptor->pending_count(), 16u);
  }
  ASSERT_TRUE(door.run_until_turned_away(kStrangers - 16));
  EXPECT_EQ(door.acceptor->pending_count(), 16u);
  EXPECT_TRUE(door.connect(door.dial()).is_ok());
  EXPECT_EQ(door.acceptor->counts().accepted, 1u);
  EXPECT_EQ(door.log.size(), 1u);
}

// Strangers who said nothing could take every descriptor of a process with the usual limit of 1024.
TEST(AcceptorTest, StrangersLeaveDescriptorsToTheProcess) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  constexpr size_t kShare = 256 / 8;
  {
    Door door(1024);
    std::vector<FileDescriptor> strangers;
    for (size_t i = 0; i < kShare + 8; ++i) strangers.push_back(door.stranger());
    EXPECT_TRUE(door.run_until_turned_away(8));
    EXPECT_EQ(door.acceptor->pending_count(), kShare);
    EXPECT_TRUE(door.connect(door.dial()).is_ok());
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(AcceptorTest, AWrongKeyIsNamedOnBothSides) {
  Door door;
  const auto socket = door.connect(door.dial("another key"));
  ASSERT_FALSE(socket.is_ok());
  EXPECT_EQ(socket.status().code(), Code::kInvalidArgument);
  for (const char* part : {"rank 4", "127.0.0.1", "key"}) {
    EXPECT_NE(socket.status().text().find(part), std::string_view::npos) << socket.status().text();
  }
  EXPECT_TRUE(door.claims.empty());
  ASSERT_EQ(door.log.size(), 1u);
  EXPECT_NE(door.log[0].find("key"), std::string::npos);
}

// Goal: what a listener heard once is refused when it is said again on a new connection.
TEST(AcceptorTest, AReplayedHelloIsRefused) {
  const Credentials credentials = credentials_from_text("key", "door");
  Door door;
  ConnectorHandshake rank(credentials, kClaim, Nonce{});
  AcceptorHandshake eavesdropped(credentials, Nonce{},
                                 [](const Claim&) { return HandshakeResult::kAccepted; });
  const auto challenge = eavesdropped.output();
  ASSERT_TRUE(rank.feed(challenge).is_ok());
  const FileDescriptor replayed = door.stranger(rank.output());
  ASSERT_TRUE(door.run_until_turned_away(1));
  EXPECT_TRUE(door.claims.empty());
  ASSERT_EQ(door.log.size(), 1u);
  EXPECT_NE(door.log[0].find("does not know the key"), std::string::npos) << door.log[0];
}

TEST(AcceptorTest, AConnectionThatIsNotAwaitedIsTold) {
  Door door;
  door.judgement = HandshakeResult::kWrongRank;
  const auto socket = door.connect(door.dial());
  ASSERT_FALSE(socket.is_ok());
  EXPECT_NE(socket.status().text().find("another rank"), std::string_view::npos) << socket.status().text();
}

TEST(ConnectorTest, DeadAddressesAreNamedAndTheLiveOneIsFound) {
  Door door;
  uint16_t dead_port = 0;
  { dead_port = loopback_listener().endpoints[0].port; }
  ConnectorOptions dead = door.dial();
  dead.endpoints = {loopback(dead_port)};
  const auto refused = door.connect(dead);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::kPeerLost);
  const std::string named = "127.0.0.1:" + std::to_string(dead_port) + " (Connection refused)";
  EXPECT_NE(refused.status().text().find(named), std::string_view::npos) << refused.status().text();
  ConnectorOptions both = door.dial();
  both.endpoints = {loopback(dead_port), door.endpoint};
  EXPECT_TRUE(door.connect(both).is_ok());
}

// One address of a host may lead to another rank's process (the same address in two networks): the answer
// there ended the dial, though another address was right. The same for a rank that is not awaited there.
TEST(ConnectorTest, ARefusalAtOneAddressLeavesTheOthers) {
  Door door;
  for (const HandshakeResult result : {HandshakeResult::kWrongRank, HandshakeResult::kUnexpected}) {
    Listener listener = loopback_listener();
    const Endpoint wrong = listener.endpoints[0];
    AcceptorOptions options;
    options.credentials = credentials_from_text("key", "door");
    options.judge = [result](const Claim&) { return result; };
    const auto other = Acceptor::open(*door.loop, std::move(listener.socket), std::move(options));
    ASSERT_TRUE(other.is_ok());
    ConnectorOptions dial = door.dial();
    dial.endpoints = {wrong, door.endpoint};
    const auto socket = door.connect(dial);
    EXPECT_TRUE(socket.is_ok()) << socket.status().text();
  }
}

// A refusal for good was tried again up to the deadline if another address of the host was silent.
TEST(ConnectorTest, ARefusalForGoodIsNotTriedAgainForASilentAddress) {
  Door door;
  door.judgement = HandshakeResult::kUnexpected;
  const Listener silent = loopback_listener();  // the kernel accepts, nobody greets
  for (const auto& endpoints :
       {std::vector{silent.endpoints[0], door.endpoint}, std::vector{door.endpoint, silent.endpoints[0]}}) {
    ConnectorOptions dial = door.dial();
    dial.endpoints = endpoints;
    const auto socket = door.connect(dial);
    ASSERT_FALSE(socket.is_ok());
    EXPECT_NE(socket.status().code(), Code::kTimeout) << socket.status().text();
    EXPECT_NE(socket.status().text().find(door.endpoint.text()), std::string_view::npos)
        << socket.status().text();
    EXPECT_LT(door.loop.now(), dial.deadline_ns) << "before the deadline";
  }
}

// Goal: an address that swallows everything does not keep the others from being tried.
TEST(ConnectorTest, ASilentAddressIsOvertaken) {
  Door door;
  const Listener silent = loopback_listener();  // the kernel accepts, nobody greets
  ConnectorOptions dial = door.dial();
  dial.endpoints = {silent.endpoints[0], door.endpoint};
  EXPECT_TRUE(door.connect(dial).is_ok());
}

TEST(ConnectorTest, TheDeadlineNamesWhatWasTried) {
  Door door;
  const Listener silent = loopback_listener();
  ConnectorOptions dial = door.dial();
  dial.endpoints = silent.endpoints;
  dial.deadline_ns = door.loop.now() + 3 * kSecondNs;
  const auto socket = door.connect(dial);
  ASSERT_FALSE(socket.is_ok());
  EXPECT_EQ(socket.status().code(), Code::kTimeout);
  EXPECT_NE(socket.status().text().find(silent.endpoints[0].text()), std::string_view::npos)
      << socket.status().text();
}

TEST(ConnectorTest, APatientConnectorWaitsForTheListener) {
  Door door;
  uint16_t port = 0;
  { port = loopback_listener().endpoints[0].port; }
  ConnectorOptions dial = door.dial();
  dial.endpoints = {loopback(port)};
  dial.patient = true;
  dial.deadline_ns = door.loop.now() + 3 * kSecondNs;
  const auto socket = door.connect(dial);
  EXPECT_EQ(socket.status().code(), Code::kTimeout) << "tried until the deadline";
  EXPECT_NE(socket.status().text().find("Connection refused"), std::string_view::npos);
}

/// Runs `body` in a thread with a loopback interface of its own, where the kernel takes the ports `first` and
/// `first` + 1 for connecting ends. False: this needs more rights.
bool run_in_own_network(int first, const std::function<void()>& body) {
  bool is_allowed = false;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) != 0) return;
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    range << first << ' ' << first + 1 << std::endl;
    is_allowed = ioctl(socket.get(), SIOCSIFFLAGS, &lo) == 0 && range.good();
    if (is_allowed) body();
  }).join();
  return is_allowed;
}

// The kernel may join a socket to itself where nobody listens yet. The connector then waited for a greeting,
// and rank 0 found its port taken.
TEST(ConnectorTest, APatientConnectorLeavesThePortToTheListener) {
  constexpr int kPort = 40'000;
  const bool is_allowed = run_in_own_network(kPort, [] {
    ManualLoop loop;
    ConnectorOptions dial;
    dial.endpoints = {loopback(kPort)};
    dial.claim = kClaim;
    dial.deadline_ns = loop.now() + 60 * kSecondNs;
    dial.patient = true;
    const auto connector = Connector::start(*loop, std::move(dial), [](const Result<FileDescriptor>&) {});
    for (int turn = 0; turn < 20; ++turn) loop.advance_ms(100);
    const auto listener = listen_at({.interfaces = "=lo", .port_first = kPort, .port_last = kPort});
    EXPECT_TRUE(listener.is_ok()) << listener.status().text();
  });
  if (!is_allowed) GTEST_SKIP() << "no network of its own for this user";
}

// It asked the name service for an empty name, again and again until the deadline.
TEST(ConnectorTest, APeerWithoutAnAddressIsSaidToHaveNone) {
  Door door;
  ConnectorOptions dial = door.dial();
  dial.endpoints.clear();
  const auto socket = door.connect(dial);
  EXPECT_EQ(socket.status().code(), Code::kPeerLost);
  EXPECT_NE(socket.status().text().find("rank 4 has only link-local addresses"), std::string_view::npos)
      << socket.status().text();
}

// Goal: a name that is not known yet (a pod that starts) is asked for again.
TEST(ConnectorTest, NamesAreResolvedAgainUntilTheyAreKnown) {
  Door door;
  auto asked = std::make_shared<std::atomic<int>>(0);
  ConnectorOptions dial = door.dial();
  dial.endpoints.clear();
  dial.name = {"job-0.job", 4000};
  dial.patient = true;
  dial.resolve = [asked, endpoint = door.endpoint](const HostPort& where) -> Result<std::vector<Endpoint>> {
    EXPECT_EQ(where.host, "job-0.job");
    if (++*asked < 3) return Status(Code::kSystemError, "the name job-0.job is not known: try again");
    return std::vector<Endpoint>{endpoint};
  };
  EXPECT_TRUE(door.connect(dial).is_ok());
  EXPECT_EQ(*asked, 3);
  dial.resolve = [](const HostPort&) -> Result<std::vector<Endpoint>> {
    return Status(Code::kSystemError, "the name job-0.job is not known: no such host");
  };
  dial.deadline_ns = door.loop.now() + 3 * kSecondNs;
  const auto never = door.connect(dial);
  EXPECT_EQ(never.status().code(), Code::kTimeout);
  EXPECT_NE(never.status().text().find("no such host"), std::string_view::npos) << never.status().text();
}

// Goal: a listener that drops a rank under attack gets it back.
TEST(ConnectorTest, ADroppedHandshakeIsTriedAgain) {
  Door door;
  Listener dropping = loopback_listener();
  ConnectorOptions dial = door.dial();
  dial.endpoints = {dropping.endpoints[0]};
  int dropped = 0;
  std::unique_ptr<Acceptor> later;
  ASSERT_TRUE(door.loop
                  ->watch(dropping.socket.get(), POLLIN,
                          [&](uint32_t) {
                            FileDescriptor(accept4(dropping.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
                            if (++dropped < 3) return;
                            door.loop->forget(dropping.socket.get());
                            AcceptorOptions options;
                            options.credentials = credentials_from_text("key", "door");
                            options.judge = [](const Claim&) { return HandshakeResult::kAccepted; };
                            options.on_peer = [](const Claim&, FileDescriptor) {};
                            later = std::move(
                                *Acceptor::open(*door.loop, std::move(dropping.socket), std::move(options)));
                          })
                  .is_ok());
  const auto socket = door.connect(dial);
  EXPECT_TRUE(socket.is_ok()) << socket.status().text();
  EXPECT_EQ(dropped, 3);
}

}  // namespace
}  // namespace tutti::test
