// StagedExecutor: a rank by itself, on a device whose memory is memory of the host.
#include "device/staged_executor.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/host_executor.h"
#include "tests/device/fake_device.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"

namespace tutti::test {
namespace {

constexpr uint64_t kCount = 100;

class StagedExecutorTest : public testing::Test {
 protected:
  StagedExecutorTest() : heap_(*SymmetricHeap::create(1 << 20)) {
    auto device = std::make_unique<FakeStagingDevice>(notes_);
    device_ = device.get();
    auto host = std::make_unique<HostExecutor>(HostExecutorOptions{
        .peers = pages_.of(0), .config = config_, .heap = *heap_, .shape = pages_.shape()});
    auto staging = std::make_unique<Staging>(std::move(device), *heap_,
                                             Staging::Options{.why = "rank 1 is in host memory"});
    executor_ = std::make_unique<StagedExecutor>(pages_.of(0), std::move(host), std::move(staging));
    bound_ = bind_sum(*executor_, sum_of(kCount), 1);
  }

  /// As a communicator runs a call of the user's.
  Status run(Sum& numbers) {
    const auto here = executor_->take_in(numbers.call());
    TUTTI_TRY(here.status());
    return executor_->run(*bound_, *here);
  }
  Result<std::vector<StagedCall<Call>>> stage(const std::vector<Call>& calls) {
    return executor_->stage(std::span<const Call>(calls), {.internal = false});
  }
  Status error() { return pages_.of(0).error(); }

  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{1};
  FakeStagingDevice::Notes notes_;
  FakeStagingDevice* device_ = nullptr;
  std::unique_ptr<StagedExecutor> executor_;
  std::unique_ptr<BoundCall> bound_;
};

// Goal: a blocking call is copied in, run on host memory and copied out.
TEST_F(StagedExecutorTest, ABlockingCallPassesThroughHostMemory) {
  Sum numbers(kCount);
  const auto here = executor_->take_in(numbers.call());
  ASSERT_TRUE(here.is_ok());
  EXPECT_EQ(notes_.copies, 1);
  EXPECT_NE(here->send, numbers.send.data());
  EXPECT_TRUE(heap_->contains(here->send, kCount * sizeof(int32_t))) << "peers read it where it lies";
  ASSERT_TRUE(executor_->begin(*bound_, *here));
  EXPECT_TRUE(executor_->has_begun());
  while (executor_->poll() != Progress::kDone) {
  }
  EXPECT_EQ(numbers.recv[0], -1) << "the result is not on the device yet";
  EXPECT_TRUE(executor_->finish(Progress::kDone));
  EXPECT_EQ(notes_.copies, 2);
  EXPECT_TRUE(numbers.is_right(1));
  EXPECT_FALSE(executor_->has_begun());
}

// Goal: a group of messages passes through host memory too.
TEST_F(StagedExecutorTest, MessagesPassThroughHostMemory) {
  std::array<char, 4> sent = {'a', 'b', 'c', 'd'};
  std::array<char, 4> got{};
  EXPECT_TRUE(executor_->run({.messages = {{.buffer = sent.data(), .bytes = 4, .peer = 0, .sending = true},
                                           {.buffer = got.data(), .bytes = 4, .peer = 0}},
                              .shape = {}}));
  EXPECT_EQ(got, sent);
  EXPECT_EQ(notes_.copies, 2);
}

// Goal: the library's own calls are on host memory already.
TEST_F(StagedExecutorTest, TheLibrarysOwnCallsAreNotStaged) {
  Sum numbers(kCount);
  const auto bound = bind_sum(*executor_, sum_of(kCount, CallPurpose::kSplit), 1);
  const auto here = executor_->take_in(numbers.call(CallPurpose::kSplit));
  ASSERT_TRUE(here.is_ok());
  EXPECT_EQ(here->send, numbers.send.data());
  EXPECT_TRUE(executor_->run(*bound, *here));
  EXPECT_TRUE(numbers.is_right(1));
  EXPECT_EQ(notes_.copies, 0);
}

// Goal: the scalar of a pre-multiplied sum comes from the device, and is in the shape from then on.
TEST_F(StagedExecutorTest, TheScalarIsReadFromTheDevice) {
  Sum numbers(kCount);
  const int32_t scalar = 3;
  Call call = numbers.call();
  call.shape.op = ReduceOp::kPremulSum;
  call.scale = &scalar;
  const auto here = executor_->take_in(call);
  ASSERT_TRUE(here.is_ok());
  EXPECT_EQ(here->scale, nullptr);
  EXPECT_EQ(here->shape.scale_bits, 3u);
}

// Goal: a copy that fails is an error of all ranks: before the call, which then never begins, and after.
TEST_F(StagedExecutorTest, AFailedCopyIsAnErrorOfAllRanks) {
  Sum numbers(kCount);
  device_->copies_until_failure = 0;
  EXPECT_EQ(run(numbers).code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError);
  EXPECT_EQ(pages_.status(0).sequence.load(), 0u);
}
TEST_F(StagedExecutorTest, AFailedCopyOfTheResultIsAnErrorOfAllRanks) {
  Sum numbers(kCount);
  device_->copies_until_failure = 1;
  EXPECT_EQ(run(numbers).code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError);
  EXPECT_EQ(pages_.status(0).completed.load(), 1u);
}

// Goal: a call on a stream is run when the stream has come to it, and the stream goes on after that.
TEST_F(StagedExecutorTest, ACallOnAStreamIsRunWhenTheStreamHasComeToIt) {
  Sum numbers(kCount);
  const auto all = stage({numbers.call()});
  ASSERT_TRUE(all.is_ok()) << all.status().text();
  const StagedCall<Call>* const staged = all->data();
  int asked = 0;
  device_->reaches = [&asked] { return ++asked == 3; };
  EXPECT_TRUE(executor_->wait_for_stream(staged->number));
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(executor_->host().run(*bound_, staged->call));
  EXPECT_TRUE(notes_.released.empty());
  executor_->release(*staged);
  EXPECT_EQ(notes_.released, std::vector<uint32_t>{staged->number});
  EXPECT_EQ(notes_.copies, 0) << "the stream has the copies";
}

// Goal: an error of the communicator, or of the device, ends the wait for a stream.
TEST_F(StagedExecutorTest, AFailureEndsTheWaitForAStream) {
  device_->reaches = [] { return false; };
  device_->health = {Code::kSystemError, "the device has failed"};
  EXPECT_EQ(executor_->wait_for_stream(1).code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError) << "all ranks learn of the device";
  device_->health = {};
  EXPECT_EQ(executor_->wait_for_stream(1).code(), Code::kSystemError);
}

// Goal: a failure of the driver is all ranks', and nothing is queued after one.
TEST_F(StagedExecutorTest, WhatCannotBeQueuedIsRefused) {
  Sum numbers(kCount);
  device_->queueing = {Code::kSystemError, "the driver has failed"};
  EXPECT_EQ(stage({numbers.call()}).status().code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError);
  device_->queueing = {};
  const MessageCall messages;
  EXPECT_EQ(executor_->stage(std::span(&messages, 1), {.internal = false}).status().code(),
            Code::kSystemError);
}

// Goal: all pieces of a call are queued, or none: when a later one cannot be, the stream goes on past those
// that are there, and all ranks learn why.
TEST_F(StagedExecutorTest, ACallOfWhichAPieceCannotBeQueuedIsReleased) {
  Sum numbers(kCount);
  std::vector<Call> pieces(3, numbers.call());
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].shape.piece = i < 2 ? 40 : 20;
    pieces[i].first_element = 40 * i;
  }
  const auto staged = stage(pieces);
  ASSERT_TRUE(staged.is_ok());
  EXPECT_EQ(notes_.queued, (std::vector<bool>{true, true, false})) << "whether more pieces follow";
  device_->queued_until_failure = 1;
  EXPECT_EQ(stage(pieces).status().code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError);
  EXPECT_EQ(notes_.released, std::vector<uint32_t>{4}) << "the first piece";
}

// Goal: a captured call runs at each launch, on the memory that it was captured with, and lets the graph go
// on.
TEST_F(StagedExecutorTest, ACapturedCallIsGivenToEachLaunch) {
  Sum numbers(kCount);
  int launches = 0;
  const auto replay = [&](const StagedCall<Call>& begun) {
    ++launches;
    EXPECT_TRUE(executor_->host().run(*bound_, begun.call));
    executor_->release(begun);
  };
  ASSERT_TRUE(executor_->capture(numbers.call(), {.internal = false}, replay));
  EXPECT_EQ(launches, 0);
  for (int turn = 1; turn <= 3; ++turn) {
    device_->launch();
    EXPECT_EQ(launches, turn);
    EXPECT_EQ(notes_.released_captured, turn);
  }
  EXPECT_TRUE(notes_.released.empty());
}

// Goal: a longer call gets more memory, and memory that an earlier staging was lent comes first.
TEST_F(StagedExecutorTest, LentMemoryServesAgain) {
  Sum numbers(kCount);
  EXPECT_TRUE(run(numbers));
  EXPECT_EQ(notes_.lent, 1);
  EXPECT_TRUE(run(numbers));
  EXPECT_EQ(notes_.lent, 1) << "the same memory";
  std::vector<std::byte> spare(1 << 20);
  device_->spare = {.base = spare.data(), .bytes = spare.size()};
  Sum many(40'000);
  const auto here = executor_->take_in(many.call());
  ASSERT_TRUE(here.is_ok());
  EXPECT_EQ(notes_.lent, 1) << "there was spare memory";
  EXPECT_GE(static_cast<const std::byte*>(here->send), spare.data());
  EXPECT_LT(static_cast<const std::byte*>(here->send), spare.data() + spare.size());
}

// Goal: streams that cannot be ordered: wrong streams change nothing, a failure is all ranks'.
TEST_F(StagedExecutorTest, StreamsThatCannotBeOrderedAreAnError) {
  device_->ordering = {Code::kInvalidArgument, "a stream of another device"};
  EXPECT_EQ(executor_->order_streams({}, {}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(error());
  device_->ordering = {Code::kSystemError, "the driver has failed"};
  EXPECT_EQ(executor_->order_streams({}, {}).code(), Code::kSystemError);
  EXPECT_EQ(error().code(), Code::kSystemError);
}

// Goal: where calls go is said, with the reason.
TEST_F(StagedExecutorTest, ItSaysWhyCallsAreStaged) {
  EXPECT_EQ(executor_->explain(*bound_), ", through host memory (rank 1 is in host memory)");
}

// Goal: closing gives the memory back, also that of a device that has failed.
TEST_F(StagedExecutorTest, ClosingGivesTheMemoryBack) {
  Sum numbers(kCount);
  EXPECT_TRUE(run(numbers));
  device_->health = {Code::kSystemError, "the device has failed"};
  executor_->close();
  executor_.reset();
  EXPECT_TRUE(notes_.is_destroyed);
  EXPECT_TRUE(heap_->allocate(1 << 20).is_ok()) << "all of the heap is free";
}

}  // namespace
}  // namespace tutti::test
