// Workers: who holds a stripe when, by hand-made stripes whose peers the test itself moves.
#include "engine/workers.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <span>
#include <string>
#include <thread>

#include "tests/engine/raw_links.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr RingShape kRing{.slots = 4, .slot_bytes = 128};
constexpr size_t kBytes = 1000;  // more than the slots of a link
constexpr uint64_t kSeed = 77;

/// One message between rank 0, the workers' side, and a peer of its own, which the test moves.
class Exchange {
 public:
  Exchange(RawNetwork& network, uint32_t peer, bool sending, uint64_t peer_seed = kSeed) {
    mine_.fill('m');
    theirs_.fill('t');
    stripe_ =
        bind(network, 0,
             {.buffer = mine_.data(), .bytes = kBytes, .peer = peer, .sending = sending, .seed = kSeed});
    peer_ =
        bind(network, peer,
             {.buffer = theirs_.data(), .bytes = kBytes, .peer = 0, .sending = !sending, .seed = peer_seed});
  }

  std::unique_ptr<Operation>& stripe() { return stripe_; }
  /// The peer's side, as far as it goes.
  void move_peer() { static_cast<void>(peer_->advance(1)); }
  bool arrived() const { return mine_ == theirs_; }

 private:
  static std::unique_ptr<Operation> bind(RawNetwork& network, uint32_t rank, Message message) {
    RawLinks links(network, rank);
    auto operation = Operation::bind_messages(std::span(&message, 1),
                                              {.slots = kRing.slots, .slot_bytes = kRing.slot_bytes}, links);
    operation->start({}, 0);
    return operation;
  }

  std::array<char, kBytes> mine_;
  std::array<char, kBytes> theirs_;
  std::unique_ptr<Operation> stripe_;
  std::unique_ptr<Operation> peer_;
};

std::unique_ptr<Workers> start(uint32_t count) {
  auto workers = Workers::start(count);
  EXPECT_TRUE(workers.is_ok()) << workers.status().text();
  return std::move(*workers);
}

class WorkersTest : public testing::TestWithParam<WaitMode> {};

// Goal: a run is done when every stripe is, whoever ran it. Method: a caller and two workers, again and again
// on the same workers; the peers move only when the run has begun.
TEST_P(WorkersTest, RunEveryStripeToItsEnd) {
  const auto workers = start(2);
  for (int turn = 0; turn < 50; ++turn) {
    RawNetwork network(kRing);
    Exchange own(network, 1, turn % 2 == 0);
    std::array exchanges = {Exchange(network, 2, true), Exchange(network, 3, false)};
    std::array others = {std::move(exchanges[0].stripe()), std::move(exchanges[1].stripe())};
    workers->begin(*own.stripe(), others, GetParam());
    Progress progress = Progress::kBlocked;
    while (progress != Progress::kDone) {
      for (Exchange* exchange : {&own, &exchanges[0], &exchanges[1]}) exchange->move_peer();
      std::this_thread::yield();
      progress = workers->advance(1);
      ASSERT_NE(progress, Progress::kMismatch);
    }
    for (Exchange* exchange : {&own, &exchanges[0], &exchanges[1]}) {
      exchange->move_peer();
      ASSERT_TRUE(exchange->arrived()) << "turn " << turn;
    }
  }
}

// Goal: what a worker alone waits for is found, by a caller whose own stripe is done, as often as it looks.
TEST_P(WorkersTest, GiveAStuckStripeBackToWhoeverAsks) {
  const auto workers = start(1);
  RawNetwork network(kRing);
  Exchange own(network, 1, true);
  Exchange stuck(network, 2, false);
  std::array others = {std::move(stuck.stripe())};
  workers->begin(*own.stripe(), others, GetParam());
  while (!own.arrived()) {
    static_cast<void>(workers->advance(1));
    own.move_peer();
  }
  EXPECT_FALSE(workers->recall()) << "the worker has had nothing to move";
  for (int look = 0; look < 20; ++look) {
    ASSERT_EQ(workers->stuck(), others[0].get());
    EXPECT_EQ(others[0]->advance(1), Progress::kBlocked);
    EXPECT_EQ(others[0]->obstacle().peer, 2u);
    workers->resume();
    EXPECT_EQ(workers->advance(1), Progress::kBlocked);
    EXPECT_FALSE(workers->recall());
  }
  stuck.move_peer();
  workers->resume();
  while (workers->advance(1) != Progress::kDone) {
    stuck.move_peer();
    std::this_thread::yield();
  }
  EXPECT_TRUE(workers->recall()) << "the worker has ended its stripe";
  EXPECT_EQ(workers->stuck(), nullptr);
  EXPECT_TRUE(stuck.arrived());
}

// Goal: a message of another call that only a worker sees is the caller's mismatch.
TEST_P(WorkersTest, TellTheCallerOfAMismatch) {
  const auto workers = start(1);
  RawNetwork network(kRing);
  Exchange own(network, 1, false);
  Exchange odd(network, 2, false, kSeed + 1);
  std::array others = {std::move(odd.stripe())};
  workers->begin(*own.stripe(), others, GetParam());
  odd.move_peer();
  Progress progress = Progress::kBlocked;
  while (progress == Progress::kBlocked) {
    std::this_thread::yield();
    progress = workers->advance(1);
  }
  EXPECT_EQ(progress, Progress::kMismatch);
  ASSERT_EQ(workers->stuck(), others[0].get());
  EXPECT_EQ(others[0]->obstacle().peer, 2u);
  workers->recall();
}

// Goal: references of a worker's stripe are known to the caller until they have come back.
TEST_P(WorkersTest, KnowOfReferencesThatAreOut) {
  const auto workers = start(1);
  RawNetwork network(kRing);
  std::array<char, kBytes> sent{};
  std::array<char, kBytes> got{};
  sent.fill('s');
  const BindOptions options{.reference_bytes = 64, .slots = kRing.slots, .slot_bytes = kRing.slot_bytes};
  RawLinks mine(network, 0);
  RawLinks theirs(network, 2);
  Message send{.buffer = sent.data(), .bytes = kBytes, .peer = 2, .sending = true, .seed = 1, .shared = true};
  Message receive{.buffer = got.data(), .bytes = kBytes, .peer = 0, .seed = 1, .shared = true};
  std::array others = {Operation::bind_messages(std::span(&send, 1), options, mine)};
  const auto peer = Operation::bind_messages(std::span(&receive, 1), options, theirs);
  Exchange own(network, 1, true);
  others[0]->start({}, 0);
  peer->start({}, 0);
  workers->begin(*own.stripe(), others, GetParam());
  EXPECT_EQ(workers->advance(1), Progress::kMoved);
  workers->recall();
  EXPECT_TRUE(workers->holds_references());
  workers->resume();
  Progress progress = Progress::kBlocked;
  while (progress != Progress::kDone) {
    own.move_peer();
    static_cast<void>(peer->advance(1));
    std::this_thread::yield();
    progress = workers->advance(1);
  }
  EXPECT_FALSE(workers->holds_references());
  static_cast<void>(peer->advance(1));  // the last slice was too short for a reference
  EXPECT_EQ(sent, got);
}

INSTANTIATE_TEST_SUITE_P(Modes, WorkersTest, testing::Values(WaitMode::kSpin, WaitMode::kYield),
                         [](const auto& test) { return test.param == WaitMode::kSpin ? "Spin" : "Yield"; });

// Goal: workers that nobody uses end at once, and take no signals of the application.
TEST(WorkersLifeTest, IdleWorkersEndWithTheirOwner) {
  Holdings before = holdings();
  {
    const auto workers = start(5);
    EXPECT_GE(holdings().threads, before.threads + 5);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGUSR1), 0) << "the caller's own mask has changed";
  }
  before.threads += 1;  // one may be a sanitizer's
  EXPECT_LE(settled_holdings(before).threads, before.threads);
}

}  // namespace
}  // namespace tutti::test
