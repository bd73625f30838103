// DeviceExecutor: on a device that runs nothing, what is launched, relaunched, given up and kept.
#include "device/device_executor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/fake_device.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"

namespace tutti::test {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

/// Rank 0 of two, which share a device. Rank 1 is only its page.
class DeviceExecutorTest : public testing::Test {
 protected:
  DeviceExecutorTest() {
    auto rank = std::make_unique<FakeRank>(notes_);
    rank_ = rank.get();
    executor_ = std::make_unique<DeviceExecutor>(DeviceExecutorOptions{.peers = pages_.of(0),
                                                                       .config = config_,
                                                                       .devices = devices_,
                                                                       .relaunch_thread = relaunch_thread_,
                                                                       .ranks_on_device = 2,
                                                                       .rank = std::move(rank)});
  }
  ~DeviceExecutorTest() override { relaunch_thread_.remove(executor_.get()); }

  std::unique_ptr<BoundCall> bind(uint64_t count, bool wants_packets = false) {
    return bind_sum(*executor_, sum_of(count), 2, wants_packets);
  }
  DeviceSnapshot blocked(const BoundCall& bound) {
    const auto program = std::make_shared<DeviceProgram>();
    program->mark = {.word = bound.word, .count = bound.shape.count};
    return {.state = DeviceSnapshot::State::kBlocked,
            .is_running = true,
            .obstacle = {.peer = 1, .step = 2},
            .program = program};
  }
  /// Of all ranks.
  void wait_for_error() {
    while (!pages_.of(1).has_error()) std::this_thread::yield();
  }

  Config config_;
  RankPages pages_{2};
  DeviceNotes notes_;
  FakeDevices devices_{notes_};
  RelaunchThread relaunch_thread_;
  FakeRank* rank_ = nullptr;
  std::unique_ptr<DeviceExecutor> executor_;
};

// Goal: a blocking call is one launch on the rank's own stream, on the caller's buffers, and ends when the
// device has done it.
TEST_F(DeviceExecutorTest, ABlockingCallIsLaunchedAndWaitedFor) {
  Sum numbers(8);
  const auto bound = bind(8);
  rank_->polls_until_done = 3;
  EXPECT_TRUE(executor_->run(*bound, numbers.call()));
  ASSERT_EQ(notes_.launched.size(), 1u);
  EXPECT_EQ(notes_.launched[0].buffers.input, numbers.send.data());
  EXPECT_EQ(notes_.launched[0].buffers.output, numbers.recv.data());
  EXPECT_TRUE(notes_.launched[0].stream.internal);
  EXPECT_TRUE(notes_.launched[0].meets_all);
  EXPECT_LT(rank_->polls_until_done, 0) << "asked until it was done";
}

// Goal: in pieces: begin returns at once, poll says when the device is done, and finish gives the result.
TEST_F(DeviceExecutorTest, PollsSayWhenTheDeviceIsDone) {
  Sum numbers(8);
  const auto bound = bind(8);
  rank_->polls_until_done = 1;
  ASSERT_TRUE(executor_->begin(*bound, numbers.call()));
  EXPECT_EQ(executor_->poll(), Progress::kBlocked);
  EXPECT_TRUE(executor_->wait());
  EXPECT_EQ(executor_->poll(), Progress::kDone);
  EXPECT_TRUE(executor_->finish(Progress::kDone));
}

// Goal: short calls of a one-shot plan go by packets where the choice table wants that.
TEST_F(DeviceExecutorTest, ShortCallsMayGoByPackets) {
  EXPECT_EQ(executor_->explain(*bind(8)), ", 1 blocks of the device");
  EXPECT_EQ(notes_.bound_short, 0);
  EXPECT_EQ(notes_.bound, 1);
}

// Goal: the library's own calls, on host memory, pass through memory that the device can reach.
TEST_F(DeviceExecutorTest, TheLibrarysOwnCallsPassThroughPinnedMemory) {
  const uint64_t mine = 7;
  std::array<uint64_t, 2> all{};
  const CallShape shape{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .purpose = CallPurpose::kSplit,
                        .count = 2};
  const auto bound = bind_sum(*executor_, shape, 2);
  EXPECT_TRUE(executor_->run(*bound, {.shape = shape, .send = &mine, .recv = all.data(), .blocks = nullptr}));
  ASSERT_EQ(notes_.launched.size(), 1u);
  EXPECT_NE(notes_.launched[0].buffers.input, &mine);
  EXPECT_EQ(std::memcmp(notes_.launched[0].buffers.input, &mine, sizeof(mine)), 0);
}

// Goal: what the driver refuses before anything is queued is an error of that call alone.
TEST_F(DeviceExecutorTest, ARefusedLaunchIsAnErrorOfTheCall) {
  Sum numbers(8);
  const auto bound = bind(8);
  devices_.launching = {Code::kInvalidArgument, "a stream of another device"};
  EXPECT_EQ(executor_->issue(*bound, numbers.call(), {.internal = false}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(pages_.of(1).has_error());
  EXPECT_TRUE(executor_->stream_failure());
  devices_.launching = {};
  EXPECT_TRUE(executor_->run(*bound, numbers.call()));
}

// Goal: a failure of the driver is an error of all ranks, for their calls would wait for this rank's.
TEST_F(DeviceExecutorTest, AFailedLaunchIsAnErrorOfAllRanks) {
  Sum numbers(8);
  const auto bound = bind(8);
  devices_.launching = {Code::kSystemError, "the driver has failed"};
  EXPECT_EQ(executor_->issue(*bound, numbers.call(), {.internal = false}).code(), Code::kSystemError);
  EXPECT_EQ(pages_.of(1).error().code(), Code::kSystemError);
  EXPECT_EQ(executor_->stream_failure().code(), Code::kSystemError);
}

// Goal: a blocking call of which a part runs waits until that part has left, then reports the failure.
TEST_F(DeviceExecutorTest, ALaunchThatRunsInPartIsWaitedFor) {
  Sum numbers(8);
  const auto bound = bind(8);
  devices_.launching = {Code::kSystemError, "the driver has failed"};
  rank_->is_launched = true;
  rank_->polls_until_done = 2;
  ASSERT_TRUE(executor_->begin(*bound, numbers.call()));
  EXPECT_EQ(executor_->poll(), Progress::kBlocked);
  EXPECT_TRUE(executor_->wait());
  EXPECT_EQ(executor_->poll(), Progress::kBlocked);
  EXPECT_EQ(executor_->poll(), Progress::kDone);
  EXPECT_EQ(executor_->finish(Progress::kDone).code(), Code::kSystemError);
}

// Goal: a device that fails during a call ends the call, on all ranks.
TEST_F(DeviceExecutorTest, AFailureOfTheDeviceEndsTheCall) {
  Sum numbers(8);
  const auto bound = bind(8);
  rank_->outcome = {Code::kSystemError, "an illegal address"};
  EXPECT_EQ(executor_->run(*bound, numbers.call()).code(), Code::kSystemError);
  EXPECT_EQ(std::string(pages_.of(1).error().text()), "an illegal address");
}

// A call on a failed device succeeded if a peer was killed while it wrote this rank's alert: the rank's own
// failure was not raised.
TEST_F(DeviceExecutorTest, AFailureOfTheDeviceNeedsNoPeer) {
  Sum numbers(8);
  const auto bound = bind(8);
  pages_.header(0).alert.state.store(Alert::claimed_by(1));
  rank_->outcome = {Code::kSystemError, "an illegal address"};
  EXPECT_EQ(executor_->run(*bound, numbers.call()).text(), "an illegal address");
}

// Goal: the buffers of a failed call stay the library's while a launch of this rank or of a peer may use
// them.
TEST_F(DeviceExecutorTest, AFailedCallKeepsItsBuffersUntilAllLaunchesHaveStopped) {
  ASSERT_TRUE(executor_->start());
  EXPECT_TRUE(executor_->buffers_are_free()) << "nothing has failed";
  rank_->stops = false;
  pages_.of(0).raise({Code::kAborted, "a rank has aborted"});
  while (!executor_->buffers_are_free() && !pages_.of(1).may_use_buffers()) std::this_thread::yield();
  EXPECT_FALSE(executor_->buffers_are_free()) << "this rank's launch runs";
  EXPECT_GT(notes_.aborted, 0);
  pages_.header(1).status.in_messages = 1;
  rank_->stops = true;
  while (pages_.of(1).may_use_buffers()) std::this_thread::yield();
  EXPECT_FALSE(executor_->buffers_are_free()) << "the peer's launch runs";
  pages_.header(1).status.in_messages = 0;
  while (!executor_->buffers_are_free()) std::this_thread::yield();
}

// Goal: a device that fails under an operation on a stream is an error of all ranks, and nobody waits for it.
TEST_F(DeviceExecutorTest, AFailedDeviceEndsAllWaits) {
  ASSERT_TRUE(executor_->start());
  DeviceSnapshot snapshot = running();
  snapshot.device = {Code::kSystemError, "an illegal address"};
  rank_->show(snapshot);
  relaunch_thread_.wake();
  wait_for_error();
  EXPECT_EQ(pages_.of(1).error().code(), Code::kSystemError);
  EXPECT_FALSE(executor_->wait_until_idle());
}

// Goal: streams that cannot be ordered: wrong streams change nothing, a failure is all ranks'.
TEST_F(DeviceExecutorTest, StreamsThatCannotBeOrderedAreAnError) {
  rank_->ordering = {Code::kInvalidUsage, "one stream is being captured"};
  EXPECT_EQ(executor_->order_streams({}, {}).code(), Code::kInvalidUsage);
  EXPECT_FALSE(pages_.of(1).has_error());
  rank_->ordering = {Code::kSystemError, "the driver has failed"};
  EXPECT_EQ(executor_->order_streams({}, {}).code(), Code::kSystemError);
  EXPECT_TRUE(pages_.of(1).has_error());
}

// Goal: an operation that has left unfinished is launched again, until it goes on.
TEST_F(DeviceExecutorTest, AnUnfinishedOperationIsLaunchedAgain) {
  const auto bound = bind(8);
  rank_->show(blocked(*bound));
  ASSERT_TRUE(executor_->start());
  while (notes_.relaunched < 3) std::this_thread::yield();
  EXPECT_EQ(pages_.status(0).runs[0].call.load(), bound->word);
  EXPECT_EQ(pages_.status(0).sequence.load(), 1u);
  EXPECT_EQ(pages_.status(0).completed.load(), 0u);
  DeviceSnapshot ended;
  ended.sequence = 1;
  rank_->show(ended);
  EXPECT_TRUE(executor_->leave());
  while (pages_.status(0).completed.load() != 1) relaunch_thread_.wake();
  EXPECT_EQ(notes_.aborted, 0);
}

// Goal: a relaunch that stands in its queue is not repeated, and has a deadline; then its stream is released.
TEST_F(DeviceExecutorTest, ARelaunchThatDoesNotBeginIsGivenUp) {
  const auto bound = bind(8);
  DeviceSnapshot snapshot = blocked(*bound);
  snapshot.queued_ns = snapshot.waited_ns = 2 * kSecondNs;
  executor_->set_timeout(1000);
  rank_->show(snapshot);
  ASSERT_TRUE(executor_->start());
  while (notes_.given_up == 0) std::this_thread::yield();
  EXPECT_EQ(pages_.of(0).error().code(), Code::kTimeout);
  EXPECT_EQ(notes_.relaunched, 0);
}

// Goal: an operation that waits past its deadline ends on all ranks, and its launches are made to leave.
TEST_F(DeviceExecutorTest, TheDeadlineEndsAnOperation) {
  const auto bound = bind(8);
  DeviceSnapshot snapshot = blocked(*bound);
  snapshot.goes_on = true;
  snapshot.waited_ns = 2 * kSecondNs;
  rank_->show(snapshot);
  executor_->set_timeout(1000);
  ASSERT_TRUE(executor_->start());
  wait_for_error();
  EXPECT_EQ(pages_.of(1).error().code(), Code::kTimeout);
  EXPECT_NE(pages_.of(1).error().text().find("no progress for 2.0 s: rank 0 waits at step 2 of "
                                             "all_reduce(int32, sum, count 8) to receive from rank 1"),
            std::string::npos)
      << pages_.of(1).error().text();
  while (notes_.aborted == 0) std::this_thread::yield();
}

// Goal: a message of another call is a mismatch that names both calls, and a blocking call reports it.
TEST_F(DeviceExecutorTest, AMessageOfAnotherCallIsAMismatch) {
  Sum numbers(8);
  const auto bound = bind(8);
  pages_.status(1).show_only_call(1, agreed_word(sum_of(9)), 9, 0);
  pages_.status(1).sequence.store(1);
  DeviceSnapshot snapshot = blocked(*bound);
  snapshot.state = DeviceSnapshot::State::kFailed;
  rank_->show(snapshot);
  ASSERT_TRUE(executor_->start());
  const Status ended = executor_->run(*bound, numbers.call());
  EXPECT_EQ(ended.code(), Code::kMismatch);
  EXPECT_NE(ended.text().find("count 8"), std::string::npos) << ended.text();
  EXPECT_NE(ended.text().find("count 9"), std::string::npos) << ended.text();
}

// Goal: a peer that is past the operation is a mismatch, but only once a launch that began after that has
// waited in vain: what the peer sent may be on its way.
TEST_F(DeviceExecutorTest, APeerThatIsPastTheOperationIsAMismatchAfterOneMoreLaunch) {
  const auto bound = bind(8);
  pages_.status(1).show_only_call(2, bound->word, 8, 0);
  pages_.status(1).sequence.store(2);
  pages_.status(1).completed.store(2);
  DeviceSnapshot snapshot = blocked(*bound);
  snapshot.waited_ns = kSecondNs / 10;
  rank_->show(snapshot);
  ASSERT_TRUE(executor_->start());
  while (pages_.status(0).beat.load() == 0) std::this_thread::yield();
  EXPECT_FALSE(pages_.of(0).has_error());
  snapshot.launches = 1;
  snapshot.waited_ns = kSecondNs / 5;
  rank_->show(snapshot);
  wait_for_error();
  EXPECT_EQ(pages_.of(1).error().code(), Code::kMismatch);
}

// Goal: an equal group of messages is bound once, until registered memory changes; messages of the rank to
// itself are copied.
TEST_F(DeviceExecutorTest, AGroupOfMessagesIsBoundOnce) {
  std::array<char, 4> sent = {'a', 'b', 'c', 'd'};
  std::array<char, 4> got{};
  const Message to_peer{.buffer = sent.data(), .bytes = 4, .peer = 1, .sending = true};
  const Message to_self{.buffer = sent.data(), .bytes = 4, .peer = 0, .sending = true};
  const Message from_self{.buffer = got.data(), .bytes = 4, .peer = 0};
  const MessageCall both{.messages = {to_peer, to_self, from_self}, .shape = {}};
  EXPECT_TRUE(executor_->run(both));
  EXPECT_TRUE(executor_->run(both));
  EXPECT_EQ(notes_.bound_messages, 1);
  EXPECT_EQ(notes_.launched.size(), 2u);
  EXPECT_EQ(got, sent);
  executor_->forget_messages();
  EXPECT_EQ(notes_.retired, 1);
  EXPECT_TRUE(executor_->run(both));
  EXPECT_EQ(notes_.bound_messages, 2);
  EXPECT_TRUE(executor_->issue({.messages = {to_self, from_self}, .shape = {}}, {.internal = false}));
  EXPECT_EQ(notes_.launched.size(), 3u) << "nothing is left to launch";
}

// Goal: algorithms may use the peers' memory where ranks share a device, or where memory is registered.
TEST_F(DeviceExecutorTest, FactsFollowFromTheDeviceAndTheRegisteredMemory) {
  EXPECT_TRUE(executor_->facts().can_reference);
  EXPECT_FALSE(executor_->facts().can_publish);
  EXPECT_FALSE(executor_->facts().can_multicast);
  auto rank = std::make_unique<FakeRank>(notes_);
  DeviceExecutor apart(DeviceExecutorOptions{.peers = pages_.of(0),
                                             .config = config_,
                                             .devices = devices_,
                                             .relaunch_thread = relaunch_thread_,
                                             .has_multicast = true,
                                             .rank = std::move(rank)});
  EXPECT_FALSE(apart.facts().can_reference);
  EXPECT_TRUE(apart.facts().can_multicast);
  apart.set_registered_count(1);
  EXPECT_TRUE(apart.facts().can_reference);
}

// Goal: a rank whose work has ended is closed with all it has, and its programs are given back.
TEST_F(DeviceExecutorTest, AnIdleRankIsClosed) {
  auto bound = bind(8);
  executor_->close();
  bound.reset();
  EXPECT_EQ(notes_.retired, 1);
  EXPECT_EQ(notes_.kept_for_good, 0);
  executor_.reset();
  EXPECT_TRUE(notes_.is_destroyed);
}

// Goal: work that never ends keeps what it uses: the rank, and the programs of bound calls.
TEST_F(DeviceExecutorTest, WhatMayStillRunIsKeptForGood) {
  auto bound = bind(8);
  rank_->show(running());
  pages_.of(0).raise({Code::kAborted, "given up"});
  executor_->close();
  EXPECT_EQ(notes_.aborted, 1);
  EXPECT_EQ(notes_.kept_for_good, 1);
  DeviceProgram* const kept = notes_.launched.empty() ? nullptr : notes_.launched[0].program;
  EXPECT_EQ(kept, nullptr);
  bound.reset();
  EXPECT_EQ(notes_.retired, 0);
  executor_.reset();
  EXPECT_FALSE(notes_.is_destroyed);
}

}  // namespace
}  // namespace tutti::test
