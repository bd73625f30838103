// The meeting of the ranks of one host: what they are told at its deadline.
#include <gtest/gtest.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/event_loop.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/server.h"
#include "bootstrap/set_up.h"
#include "core/clock.h"

namespace tutti::test {
namespace {

class BootstrapClientTest : public testing::Test {
 protected:
  BootstrapClientTest() {
    control_ = std::move(*ControlThread::start());
    servers_ = std::make_unique<BootstrapServers>(*control_);
    auto id = servers_->open({});
    EXPECT_TRUE(id.status().is_ok()) << id.status().text();
    id_ = *id;
  }
  // What serves the id lives on the control thread, and uses the bootstrap_servers.
  ~BootstrapClientTest() override { control_.reset(); }

  BootstrapClient join(uint32_t rank, uint64_t deadline_ns) {
    auto meeting = BootstrapClient::join(
        {.id = id_, .rank_count = 2, .rank = rank, .deadline_ns = deadline_ns}, UINT64_MAX);
    EXPECT_TRUE(meeting.status().is_ok()) << meeting.status().text();
    return std::move(*meeting);
  }

 private:
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<BootstrapServers> servers_;
  UniqueId id_;
};

// A rank that had joined and then hung was not named. Method: rank 0's deadline is over when it comes.
TEST_F(BootstrapClientTest, ARankThatDoesNotComeToAnExchangeIsNamed) {
  const BootstrapClient hangs = join(1, UINT64_MAX);
  BootstrapClient waits = join(0, now_ns());
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("all 2 ranks have joined, but then these have not come: 1"), text.npos) << text;
}

TEST_F(BootstrapClientTest, ARankThatHasNotJoinedIsNamed) {
  BootstrapClient waits = join(0, now_ns());
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kTimeout);
  const std::string text(all.status().text());
  EXPECT_NE(text.find("of 2 ranks, these have not joined: 1"), text.npos) << text;
}

// A failure that came while a rank asked who was missing was taken for the answer.
TEST_F(BootstrapClientTest, AFailureAtTheDeadlineIsTheError) {
  BootstrapClient fails = join(1, UINT64_MAX);
  BootstrapClient waits = join(0, now_ns());
  fails.fail({Code::kMismatch, "rank 1 cannot take part"});
  const auto all = waits.all_gather({}, false);
  EXPECT_EQ(all.status().code(), Code::kMismatch);
  EXPECT_EQ(all.status().text(), "rank 1 cannot take part");
}

/// A meeting point on the network alone. The id's name on this host belongs to a stranger, who takes nobody
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
    point_ = std::move(*Rendezvous::open(*loop_, std::move(options)));
    EXPECT_TRUE(control_->watch(loop_->descriptor(), EPOLLIN, [this](uint32_t) { loop_->run_ready(); }));
    stranger_ = std::move(*local_listen(local_name_of(id)));
    EXPECT_EQ(listen(stranger_.get(), 0), 0) << "one place in its queue";
    EXPECT_TRUE(local_connect(local_name_of(id), UINT64_MAX).status().is_ok());
  }
  ~BesideAStranger() { control_->forget(loop_->descriptor()); }

  UniqueId id;

 private:
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Rendezvous> point_;
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
    EXPECT_TRUE(setup->finish().is_ok());
  };
  std::thread other([&] { meet(1); });
  meet(0);
  other.join();
}

}  // namespace
}  // namespace tutti::test
