// Bootstrap: ranks that meet in a star or in a tree, and what they are told when some do not come.
#include <gtest/gtest.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/servers.h"
#include "core/clock.h"
#include "net/event_loop.h"
#include "net/local_socket.h"
#include "tests/support/control_shortage.h"

namespace tutti::test {
namespace {

class LocalBootstrapTest : public testing::Test {
 protected:
  LocalBootstrapTest() {
    control_ = std::move(*ControlThread::start());
    servers_ = std::make_unique<BootstrapServers>(*control_);
    auto id = servers_->open({});
    EXPECT_TRUE(id.status().is_ok()) << id.status().text();
    id_ = *id;
  }

  Bootstrap join(uint32_t rank, uint64_t deadline_ns) {
    auto bootstrap =
        Bootstrap::join({.id = id_, .rank_count = 2, .rank = rank, .deadline_ns = deadline_ns}, {});
    EXPECT_TRUE(bootstrap.status().is_ok()) << bootstrap.status().text();
    return std::move(*bootstrap);
  }

  UniqueId id_;

 private:
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<BootstrapServers> servers_;
};

// A rank that had joined and then hung was not named. Method: rank 0's deadline is over when it comes.
TEST_F(LocalBootstrapTest, ARankThatDoesNotComeToAnExchangeIsNamed) {
  const Bootstrap hangs = join(1, UINT64_MAX);
  Bootstrap waits = join(0, now_ns());
  const auto all = waits.share({});
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("all 2 ranks have joined, but then these have not come: 1"), text.npos) << text;
}

TEST_F(LocalBootstrapTest, ARankThatHasNotJoinedIsNamed) {
  Bootstrap waits = join(0, now_ns());
  const auto all = waits.share({});
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("of 2 ranks, these have not joined: 1"), text.npos) << text;
}

// A failure that came while a rank asked who was missing was taken for the answer.
TEST_F(LocalBootstrapTest, AFailureAtTheDeadlineIsTheError) {
  Bootstrap fails = join(1, UINT64_MAX);
  Bootstrap waits = join(0, now_ns());
  fails.fail({Code::kMismatch, "rank 1 cannot take part"});
  const auto all = waits.share({});
  EXPECT_EQ(all.status().code(), Code::kMismatch);
  EXPECT_EQ(all.status().text(), "rank 1 cannot take part");
}

// A rank that was stopped before it had joined over the Unix socket told no one, and the others waited for
// their deadline.
TEST_F(LocalBootstrapTest, ARankThatIsStoppedBeforeItJoinsTellsTheOthers) {
  Bootstrap waits = join(0, deadline_after_ms(5000));
  BootstrapStop stop;
  stop.stop();
  const auto stopped =
      Bootstrap::join({.id = id_, .rank_count = 2, .rank = 1, .deadline_ns = UINT64_MAX, .stop = &stop}, {});
  EXPECT_EQ(stopped.status().code(), Code::kAborted);
  const auto all = waits.share({});
  EXPECT_EQ(all.status().code(), Code::kAborted) << all.status().text();
}

/// What the ranks of one bootstrap do, each on a thread: blobs of any length in three exchanges.
Status exchange(const UniqueId& id, uint32_t rank, uint32_t rank_count, bool is_remote, bool& is_network) {
  Config config;
  config.socket_ifname = "=lo";
  config.host_id = is_remote ? "another host" : "";
  auto bootstrap = Bootstrap::join(
      {.id = id, .rank_count = rank_count, .rank = rank, .deadline_ns = deadline_after_ms(60'000)}, config);
  TUTTI_TRY(bootstrap.status());
  const auto blob_of = [](uint32_t of, size_t bytes) { return std::vector(bytes, std::byte(of + 1)); };
  const auto introduced =
      bootstrap->introduce([&](const PackedEndpoints&) { return blob_of(rank, 10 * size_t{rank}); });
  TUTTI_TRY(introduced.status());
  is_network = bootstrap->is_network();
  const auto shared = bootstrap->share(blob_of(rank, rank == 1 ? 1'000'000 : 3));
  TUTTI_TRY(shared.status());
  for (uint32_t peer = 0; peer < rank_count; ++peer) {
    EXPECT_EQ((*introduced)[peer], blob_of(peer, 10 * size_t{peer}));
    EXPECT_EQ((*shared)[peer], blob_of(peer, peer == 1 ? 1'000'000 : 3));
  }
  return bootstrap->finish({}).status();
}

/// Two ranks exchange while allocations of the control thread fail. `remote`: rank 1 comes over the network.
bool fails_without_memory(ControlThread& control, BootstrapServers& servers, bool remote, uint64_t passed,
                          uint64_t failing) {
  const auto id = servers.open({.network = ListenOptions{.interfaces = "=lo"}});
  EXPECT_TRUE(id.status().is_ok()) << id.status().text();
  ControlShortage shortage(control, passed, failing);
  std::array<Status, 2> ends;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      bool is_network = false;
      ends[rank] = exchange(*id, rank, 2, remote && rank == 1, is_network);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const bool has_failed = shortage.has_failed();
  for (const Status& end : ends) {
    const bool is_told = end.code() == Code::kOutOfMemory || end.code() == Code::kPeerLost;
    EXPECT_TRUE(end.is_ok() || (has_failed && is_told)) << passed << ": " << end.text();
  }
  return has_failed;
}

// Goal: where the maker of the id runs out of memory on its control thread, no rank waits for its deadline:
// all meet, or learn why they do not. It once ended the maker. Method: in each turn a later allocation there
// fails, until none does; then all do.
TEST(BootstrapMemoryTest, RanksMeetOrFail) {
  const auto control = std::move(*ControlThread::start());
  BootstrapServers servers(*control);
  for (const bool remote : {false, true}) {
    uint64_t turn = 0;
    while (fails_without_memory(*control, servers, remote, turn, 1)) ++turn;
    EXPECT_GT(turn, 0u);
    fails_without_memory(*control, servers, remote, 0, UINT64_MAX);
  }
}

/// Every rank's status; `remote`: the ranks that come over the network.
void expect_exchange(uint32_t rank_count, const std::vector<uint32_t>& remote) {
  const auto control = std::move(*ControlThread::start());
  BootstrapServers servers(*control);
  const auto id = servers.open({.network = ListenOptions{.interfaces = "=lo"}});
  ASSERT_TRUE(id.status().is_ok()) << id.status().text();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      const bool is_remote = std::find(remote.begin(), remote.end(), rank) != remote.end();
      bool is_network = false;
      const Status status = exchange(*id, rank, rank_count, is_remote, is_network);
      EXPECT_TRUE(status.is_ok()) << "rank " << rank << ": " << status.text();
      EXPECT_EQ(is_network, !remote.empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(BootstrapShapeTest, RanksOfOneHostMeetInAStar) {
  for (const uint32_t ranks : {1u, 2u, 8u, 64u}) expect_exchange(ranks, {});
}

// Goal: ranks at the Unix socket go to the network as soon as one comes that way, wherever it stands in the
// tree, and whether they have said their words in the star already or not.
TEST(BootstrapShapeTest, ARankOfTheNetworkMakesItATree) {
  for (int round = 0; round < 5; ++round) {
    for (const uint32_t remote : {0u, 3u, 6u}) expect_exchange(7, {remote});
    expect_exchange(6, {1, 2, 5});
  }
}

TEST_F(LocalBootstrapTest, TooMuchToSayFailsAll) {
  std::thread other([&] {
    Bootstrap says_little = join(1, UINT64_MAX);
    EXPECT_EQ(says_little.share({}).status().code(), Code::kInvalidUsage);
  });
  Bootstrap says_much = join(0, UINT64_MAX);
  const auto all = says_much.share(std::vector<std::byte>(kBlobsBytesMax));
  EXPECT_EQ(all.status().code(), Code::kInvalidUsage) << all.status().text();
  other.join();
}

// The time in which 8 ranks of one host are there; the bound is generous for machines that do other work too.
TEST(BootstrapShapeTest, EightRanksMeetSoon) {
  uint64_t best_ns = UINT64_MAX;
  for (int round = 0; round < 20; ++round) {
    const uint64_t start_ns = now_ns();
    expect_exchange(8, {});
    best_ns = std::min(best_ns, now_ns() - start_ns);
  }
  std::printf("8 ranks of one host met in %.2f ms, with threads, id and two long exchanges\n",
              static_cast<double>(best_ns) * 1e-6);
  EXPECT_LT(best_ns, 500'000'000u);
}

/// A rendezvous on the network alone. The id's name on this host belongs to a stranger, who takes nobody
/// out of its queue, which is full.
class BesideAStranger {
 public:
  BesideAStranger() {
    control_ = std::move(*ControlThread::start());
    const auto hold = control_->hold();
    loop_ = std::move(*EventLoop::create());
    auto listener = listen_at({.interfaces = "=lo"});
    EXPECT_TRUE(listener.status().is_ok()) << listener.status().text();
    id = *make_unique_id(listener->endpoints);
    RendezvousOptions options;
    options.credentials = credentials_of(id);
    options.listener = std::move(*listener);
    rendezvous_ = std::move(*Rendezvous::open(*loop_, std::move(options)));
    EXPECT_TRUE(control_->watch(loop_->descriptor(), EPOLLIN, [this](uint32_t) { loop_->run_ready(); }));
    stranger_ = std::move(*local_listen(local_name_of(id), LocalKind::kStream));
    EXPECT_EQ(listen(stranger_.get(), 0), 0) << "one place in its queue";
    EXPECT_TRUE(local_connect(local_name_of(id), UINT64_MAX, {}, LocalKind::kStream).status().is_ok());
  }
  ~BesideAStranger() { control_->forget(loop_->descriptor()); }

  UniqueId id;

 private:
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Rendezvous> rendezvous_;
  FileDescriptor stranger_;
};

// A stranger who kept the queue of the id's name full kept the ranks waiting there until their deadline,
// though they could meet over the network.
TEST(BootstrapTest, AStrangerWhoKeepsTheQueueFullSendsRanksToTheNetwork) {
  const BesideAStranger place;
  const auto meet = [&](uint32_t rank) {
    Config config;
    config.socket_ifname = "=lo";
    auto setup =
        Bootstrap::join({.id = place.id, .rank_count = 2, .rank = rank, .deadline_ns = UINT64_MAX}, config);
    ASSERT_TRUE(setup.status().is_ok()) << setup.status().text();
    const auto all =
        setup->introduce([&](const PackedEndpoints&) { return std::vector(1, std::byte(rank)); });
    ASSERT_TRUE(all.status().is_ok()) << all.status().text();
    EXPECT_EQ(*all, Blobs({{std::byte{0}}, {std::byte{1}}}));
    EXPECT_TRUE(setup->is_network());
    EXPECT_TRUE(setup->finish({}).is_ok());
  };
  std::thread other([&] { meet(1); });
  meet(0);
  other.join();
}

}  // namespace
}  // namespace tutti::test
