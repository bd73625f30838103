// Goal: groups of sends and receives: order, sizes, empty messages, several to one peer, references, and
// calls that do not match. Method: two ranks over raw rings, each advanced by hand; groups of many ranks over
// the sim transport.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/call.h"
#include "engine/operation.h"
#include "tests/engine/raw_links.h"
#include "tests/sim/cluster.h"
#include "transports/shm/pull.h"

namespace tutti::test {
namespace {

constexpr RingShape kShape{.slots = 4, .slot_bytes = 128};

using Bytes = std::vector<std::byte>;

Bytes pattern(size_t count, uint64_t seed) {
  Bytes bytes(count);
  SimRandom random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

/// Two ranks, one operation each.
class TwoRanksTest : public testing::Test {
 protected:
  std::unique_ptr<Operation> bind(uint32_t rank, std::vector<Message> messages,
                                  uint64_t reference_bytes = UINT64_MAX) {
    auto operation = Operation::bind_messages(
        messages,
        {.reference_bytes = reference_bytes, .slots = kShape.slots, .slot_bytes = kShape.slot_bytes},
        rank == 0 ? first_ : second_);
    operation->start({}, 0);
    return operation;
  }

  /// Turns for both until neither moves.
  static void run(Operation& a, Operation& b, Progress& end_a, Progress& end_b) {
    for (int idle = 0; idle < 2;) {
      end_a = a.advance(1);
      end_b = b.advance(1);
      idle = end_a == Progress::kMoved || end_b == Progress::kMoved ? 0 : idle + 1;
    }
  }

  RawNetwork network_{kShape};
  RawLinks first_{network_, 0};
  RawLinks second_{network_, 1};
};

TEST_F(TwoRanksTest, SeveralMessagesToOnePeerArriveInCallOrderWhateverTheirSizes) {
  const size_t sizes[] = {5, 0, 128, 129, 0, 1000, kInlineBytes, kInlineBytes + 1, 1};
  std::vector<Bytes> sent;
  std::vector<Bytes> got;
  for (const size_t size : sizes) {
    sent.push_back(pattern(size, size));
    got.emplace_back(size);
  }
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (size_t i = 0; i < sent.size(); ++i) {
    sends.push_back(
        {.buffer = sent[i].data(), .bytes = sent[i].size(), .peer = 1, .sending = true, .seed = 9});
    receives.push_back({.buffer = got[i].data(), .bytes = got[i].size(), .peer = 0, .seed = 9});
  }
  for (const uint64_t reference_bytes : {UINT64_MAX, uint64_t{1}}) {
    for (Bytes& bytes : got) std::fill(bytes.begin(), bytes.end(), std::byte{0});
    auto sender = bind(0, sends, reference_bytes);
    auto receiver = bind(1, receives, reference_bytes);
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    EXPECT_EQ(end_sender, Progress::kDone);
    EXPECT_EQ(end_receiver, Progress::kDone);
    EXPECT_EQ(got, sent);
  }
}

// Goal: a short message starts the operation of an earlier one, and its reader cannot tell. Method: one rank
// repeats, the other one binds each message afresh; both directions; longer messages in between.
TEST_F(TwoRanksTest, ShortMessagesRepeatAnOperation) {
  const size_t sizes[] = {8, 1, kInlineBytes, kInlineBytes + 1, 128, 129, 1000, 8, 128};
  for (const bool sends : {true, false}) {
    Bytes own = pattern(1000, 1);
    Bytes other = pattern(1000, 2);
    const auto message = [&](uint32_t rank, size_t bytes) {
      return Message{.buffer = rank == 0 ? own.data() : other.data(),
                     .bytes = bytes,
                     .peer = 1 - rank,
                     .sending = (rank == 0) == sends,
                     .seed = bytes};
    };
    auto repeated = bind(0, {message(0, 0)});
    auto fresh = bind(1, {message(1, 0)});
    Progress end_repeated{};
    Progress end_fresh{};
    run(*repeated, *fresh, end_repeated, end_fresh);
    for (const size_t bytes : sizes) {
      own = pattern(1000, 2 * bytes);
      other = pattern(1000, 2 * bytes + 1);
      fresh = bind(1, {message(1, bytes)});
      const std::vector<Message> next = {message(0, bytes)};
      const bool repeats = repeated->can_repeat(next[0]);
      EXPECT_EQ(repeats, bytes <= kShape.slot_bytes) << bytes;
      if (repeats) {
        if (repeated->repeat(next[0], 1) == Progress::kDone) {
          EXPECT_EQ(repeated->advance(1), Progress::kDone) << "done already";
        }
      } else {
        ASSERT_TRUE(repeated->rebind_messages(next));
        repeated->start({}, 0);
      }
      run(*repeated, *fresh, end_repeated, end_fresh);
      EXPECT_EQ(end_repeated, Progress::kDone) << bytes;
      EXPECT_EQ(end_fresh, Progress::kDone) << bytes;
      EXPECT_TRUE(std::equal(own.begin(), own.begin() + static_cast<ptrdiff_t>(bytes), other.begin()))
          << bytes;
    }
  }
}

// Goal: a group takes the path of its present sizes, not of earlier ones. Method: in and out of cells, slots
// and references; the reader polls once, and often.
TEST_F(TwoRanksTest, AGroupThatIsReboundTakesThePathOfItsSizes) {
  for (const uint32_t polls : {1u, 100u}) {
    const auto group = [](Bytes& buffer, uint32_t rank, size_t bytes) {
      return std::vector<Message>(
          2,
          {.buffer = buffer.data(), .bytes = bytes, .peer = 1 - rank, .sending = rank == 0, .shared = true});
    };
    Bytes sent = pattern(128, polls);
    Bytes got(128);
    auto sender = bind(0, group(sent, 0, 8), 124);
    auto receiver = bind(1, group(got, 1, 8), 124);
    for (const size_t bytes : {8u, 128u, 8u, 122u, 124u, 120u, 128u}) {
      std::ranges::fill(got, std::byte{0});
      ASSERT_TRUE(sender->rebind_messages(group(sent, 0, bytes)));
      ASSERT_TRUE(receiver->rebind_messages(group(got, 1, bytes)));
      sender->start({}, 0);
      receiver->start({}, 0);
      while (sender->advance(polls) != Progress::kDone) (void)receiver->advance(polls);
      EXPECT_EQ(receiver->advance(polls), Progress::kDone) << bytes;
      EXPECT_TRUE(std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(bytes), sent.begin()))
          << bytes;
    }
  }
}

TEST_F(TwoRanksTest, OnlyOneShortMessageOfThePeerRepeats) {
  Bytes buffer(64);
  const Message message{.buffer = buffer.data(), .bytes = 8, .peer = 1, .sending = true};
  const auto one = bind(0, {message});
  EXPECT_TRUE(one->can_repeat(message));
  EXPECT_FALSE(one->can_repeat({.buffer = buffer.data(), .bytes = 0, .peer = 1, .sending = true}));
  EXPECT_FALSE(one->can_repeat({.buffer = buffer.data(), .bytes = 8, .peer = 0, .sending = true}));
  EXPECT_FALSE(bind(0, {message, message})->can_repeat(message)) << "a group";
  for (const uint64_t reference_bytes : {0u, 8u})
    EXPECT_FALSE(bind(0, {message}, reference_bytes)->can_repeat(message)) << "it travels by reference";
}

TEST_F(TwoRanksTest, ARepeatedReceiveThatDoesNotMatchIsFound) {
  Bytes sent(8);
  Bytes got(8);
  const Message receive{.buffer = got.data(), .bytes = 8, .peer = 0, .seed = 1};
  const auto receiver = bind(1, {receive});
  (void)bind(0, {{.buffer = sent.data(), .bytes = 8, .peer = 1, .sending = true, .seed = 1}})->advance(1);
  ASSERT_EQ(receiver->advance(1), Progress::kDone);
  EXPECT_EQ(receiver->repeat(receive, 1), Progress::kBlocked);
  (void)bind(0, {{.buffer = sent.data(), .bytes = 8, .peer = 1, .sending = true, .seed = 2}})->advance(1);
  EXPECT_EQ(receiver->advance(1), Progress::kMismatch);
  EXPECT_EQ(receiver->obstacle().peer, 0u);
}

TEST_F(TwoRanksTest, BothDirectionsGoOnAtOnce) {
  // Each sends more than its slots hold before it could receive: one lane a direction, or both would block.
  Bytes a = pattern(5000, 1);
  Bytes b = pattern(5000, 2);
  Bytes from_a(5000);
  Bytes from_b(5000);
  auto first = bind(0, {{.buffer = a.data(), .bytes = 5000, .peer = 1, .sending = true},
                        {.buffer = from_b.data(), .bytes = 5000, .peer = 1}});
  auto second = bind(1, {{.buffer = b.data(), .bytes = 5000, .peer = 0, .sending = true},
                         {.buffer = from_a.data(), .bytes = 5000, .peer = 0}});
  Progress end_first{};
  Progress end_second{};
  run(*first, *second, end_first, end_second);
  EXPECT_EQ(end_first, Progress::kDone);
  EXPECT_EQ(end_second, Progress::kDone);
  EXPECT_EQ(from_a, a);
  EXPECT_EQ(from_b, b);
}

TEST_F(TwoRanksTest, ASendByReferenceIsDoneWhenTheReaderIsDoneWithIt) {
  Bytes sent = pattern(64, 3);
  Bytes got(64);
  auto sender = bind(0, {{.buffer = sent.data(), .bytes = 64, .peer = 1, .sending = true}}, 1);
  auto receiver = bind(1, {{.buffer = got.data(), .bytes = 64, .peer = 0}}, 1);
  EXPECT_EQ(sender->advance(1), Progress::kMoved);
  EXPECT_EQ(sender->advance(1), Progress::kBlocked);
  EXPECT_TRUE(sender->holds_references());
  EXPECT_TRUE(sender->obstacle().sending);
  EXPECT_EQ(sender->obstacle().peer, 1u);
  std::ranges::copy(pattern(64, 4), sent.begin());  // it is the buffer that the reader reads
  EXPECT_EQ(receiver->advance(1), Progress::kDone);
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(sender->holds_references());
  EXPECT_EQ(sender->advance(1), Progress::kDone);
}

/// Two ranks that may pull from each other, as two processes of a host may.
class TwoProcessesTest : public TwoRanksTest {
 protected:
  /// The messages that the first trial of a class pulls.
  static constexpr uint64_t kFirstPulled = 44;
  static bool is_pulled(uint64_t number) {
    return number >= kFirstPulled && number < kFirstPulled + kPulledCalls;
  }

  TwoProcessesTest() {
    SendLink& send = network_.send(0, 1, kMessageChannel);
    send.same_process = false;
    store_shared(send.credits[0].can_pull, 1);
    RecvLink& recv = network_.recv(0, 1, kMessageChannel);
    recv.pull_pid = getpid();
    recv.votes = &votes_;
  }

  std::unique_ptr<Operation> bind(uint32_t rank, const Message& message, uint64_t pulled_bytes = 1,
                                  const PullCost& pull_cost = {}) {
    auto operation = Operation::bind_messages({&message, 1},
                                              {.pull_bytes = 1,
                                               .pulled_message_bytes = pulled_bytes,
                                               .pull_cost = pull_cost,
                                               .slots = kShape.slots,
                                               .slot_bytes = kShape.slot_bytes},
                                              rank == 0 ? first_ : second_);
    operation->start({}, 0);
    return operation;
  }

  /// Sends `sent` and receives it into `got`. Returns how the receiver ended.
  Progress pass(Bytes& sent, Bytes& got) {
    auto sender = bind(0, {.buffer = sent.data(), .bytes = sent.size(), .peer = 1, .sending = true});
    auto receiver = bind(1, {.buffer = got.data(), .bytes = got.size(), .peer = 0});
    sender->advance(1);
    EXPECT_EQ(sender->holds_references(), is_pulled(number_)) << number_;
    ++number_;
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    return end_receiver;
  }

  MessageVotes votes_;
  uint64_t number_ = 0;
};

// Goal: no message is too short for a limit of 0 bytes (TUTTI_PULL_BYTES).
TEST_F(TwoProcessesTest, EmptyMessagesAreNeverPulled) {
  for (uint64_t message = 0; message < kFirstPulled + kPulledCalls; ++message) {
    Bytes sent;
    Bytes got;
    auto sender = bind(0, {.buffer = sent.data(), .peer = 1, .sending = true}, 0);
    auto receiver = bind(1, {.buffer = got.data(), .peer = 0}, 0);
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    ASSERT_EQ(end_receiver, Progress::kDone) << message;
  }
}

TEST_F(TwoProcessesTest, TrialsPullSomeMessages) {
  for (uint64_t message = 0; message < kFirstPulled + kPulledCalls; ++message) {
    Bytes sent = pattern(1000, message);
    Bytes got(1000);
    ASSERT_EQ(pass(sent, got), Progress::kDone) << message;
    ASSERT_EQ(got, sent) << message;
  }
}

// Goal: where slots take less than pulling can, trials pull nothing.
TEST_F(TwoProcessesTest, NothingIsPulledThatCannotGain) {
  constexpr PullCost kHour = {.call_ns = 3'600'000'000'000};
  for (uint64_t message = 0; message < kFirstPulled + kPulledCalls; ++message) {
    Bytes sent = pattern(1000, message);
    Bytes got(1000);
    auto sender = bind(0, {.buffer = sent.data(), .bytes = 1000, .peer = 1, .sending = true}, 1, kHour);
    auto receiver = bind(1, {.buffer = got.data(), .bytes = 1000, .peer = 0}, 1, kHour);
    sender->advance(1);
    ASSERT_FALSE(sender->holds_references()) << message;
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    ASSERT_EQ(got, sent) << message;
  }
}

/// Memory that other processes cannot read: a page of the kernel's data for the clock. Null: none was found.
std::byte* unpullable_page() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with("[vvar]")) return reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
  }
  return nullptr;
}

TEST_F(TwoProcessesTest, MemoryThatCannotBePulledGoesThroughSlots) {
  std::byte* const page = unpullable_page();
  if (page == nullptr || can_be_pulled(page, 1)) GTEST_SKIP() << "no memory that cannot be pulled";
  for (uint64_t message = 0; message < kFirstPulled + kPulledCalls; ++message) {
    Bytes got(1000);
    auto sender = bind(0, {.buffer = page, .bytes = got.size(), .peer = 1, .sending = true});
    auto receiver = bind(1, {.buffer = got.data(), .bytes = got.size(), .peer = 0});
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    ASSERT_EQ(end_sender, Progress::kDone) << message;
    ASSERT_EQ(end_receiver, Progress::kDone) << message;
  }
}

TEST_F(TwoProcessesTest, AFailedPullEndsTheCall) {
  // Goal: no reader waits for ever for memory that it cannot read. Method: the writer does not look.
  std::byte* const page = unpullable_page();
  if (page == nullptr || can_be_pulled(page, 1)) GTEST_SKIP() << "no memory that cannot be pulled";
  Bytes got(64);
  auto receiver = bind(1, {.buffer = got.data(), .bytes = got.size(), .peer = 0});
  Message counted[1] = {{.buffer = got.data(), .bytes = got.size(), .peer = 0}};
  receiver->copy_histories(counted);
  const uint32_t signature = history_signature(next_history(counted[0].history, counted[0].seed));
  network_.send(0, 1, kMessageChannel)
      .commit_pull(signature, got.size(), {.address = reinterpret_cast<uint64_t>(page), .bytes = got.size()});
  EXPECT_EQ(receiver->advance(1), Progress::kMismatch);
  EXPECT_EQ(receiver->obstacle().pull_error, EFAULT);
}

class OtherSizeTest : public TwoProcessesTest, public testing::WithParamInterface<size_t> {};

TEST_P(OtherSizeTest, APulledMessageOfAnotherSizeDoesNotMatch) {
  for (uint64_t message = 0; message < kFirstPulled; ++message) {
    Bytes sent = pattern(1000, message);
    Bytes got(1000);
    ASSERT_EQ(pass(sent, got), Progress::kDone) << message;
  }
  Bytes sent = pattern(1000, 1);
  Bytes got(GetParam());
  EXPECT_EQ(pass(sent, got), Progress::kMismatch);
}

// Sizes that differ in the last slice only, and by whole slices.
INSTANTIATE_TEST_SUITE_P(Sizes, OtherSizeTest, testing::Values(990, 1010, 872, 1128));

TEST_F(TwoRanksTest, ACopiedSendIsDoneBeforeItsReceive) {
  Bytes sent = pattern(64, 3);
  auto sender = bind(0, {{.buffer = sent.data(), .bytes = 64, .peer = 1, .sending = true}}, 65);
  EXPECT_EQ(sender->advance(1), Progress::kDone);
  EXPECT_FALSE(sender->holds_references());
}

TEST_F(TwoRanksTest, ABlockedOperationNamesItsObstacle) {
  Bytes buffer(128 * 5);
  auto receiver = bind(1, {{.buffer = buffer.data(), .bytes = 64, .peer = 0}});
  EXPECT_EQ(receiver->advance(3), Progress::kBlocked);
  EXPECT_EQ(receiver->obstacle().peer, 0u);
  EXPECT_FALSE(receiver->obstacle().sending);
  auto sender = bind(0, {{.buffer = buffer.data(), .bytes = 128 * 5, .peer = 1, .sending = true}});
  EXPECT_EQ(sender->advance(3), Progress::kMoved);
  EXPECT_EQ(sender->advance(3), Progress::kBlocked);
  EXPECT_EQ(sender->obstacle().peer, 1u);
  EXPECT_TRUE(sender->obstacle().sending);
}

TEST_F(TwoRanksTest, AMessageThatDoesNotMatchIsFoundAndNothingIsWritten) {
  struct Odd {
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t seed;
  };
  for (const Odd& odd :
       {Odd{8, 8, 6}, Odd{8, 9, 5}, Odd{0, 8, 5}, Odd{8, 0, 5}, Odd{0, 0, 6}, Odd{1000, 999, 5}}) {
    RawNetwork network(kShape);
    RawLinks first(network, 0);
    RawLinks second(network, 1);
    Bytes sent = pattern(1000, 1);
    Bytes got(1000);
    Message send{.buffer = sent.data(), .bytes = odd.sent_bytes, .peer = 1, .sending = true, .seed = 5};
    Message receive{.buffer = got.data(), .bytes = odd.received_bytes, .peer = 0, .seed = odd.seed};
    const BindOptions options{.slots = kShape.slots, .slot_bytes = kShape.slot_bytes};
    auto sender = Operation::bind_messages(std::span(&send, 1), options, first);
    auto receiver = Operation::bind_messages(std::span(&receive, 1), options, second);
    sender->start({}, 0);
    receiver->start({}, 0);
    Progress end_sender{};
    Progress end_receiver{};
    run(*sender, *receiver, end_sender, end_receiver);
    EXPECT_EQ(end_receiver, Progress::kMismatch) << odd.sent_bytes << " to " << odd.received_bytes;
    const Obstacle& obstacle = receiver->obstacle();
    EXPECT_EQ(obstacle.peer, 0u);
    EXPECT_EQ(flag::signature(obstacle.word), message_signature(send));
    EXPECT_EQ(flag::signature(obstacle.expected), message_signature(receive));
    if (odd.sent_bytes < kShape.slot_bytes) {
      EXPECT_EQ(got, Bytes(1000));
    }
  }
}

// Goal: an all-to-all of different counts, as the communicator carries it out. Method: P ranks, each pair its
// own size, zero included, several seeds, by copy and by reference; sends listed before receives.
TEST(ManyRanksTest, AnAllToAllOfDifferentCountsIsRight) {
  for (uint32_t ranks = 2; ranks <= 9; ++ranks) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SimRandom random(seed * 100 + ranks);
      std::vector<std::vector<Bytes>> sent(ranks, std::vector<Bytes>(ranks));
      std::vector<std::vector<Bytes>> got(ranks, std::vector<Bytes>(ranks));
      for (uint32_t from = 0; from < ranks; ++from) {
        for (uint32_t to = 0; to < ranks; ++to) {
          if (from == to) continue;
          sent[from][to] = pattern(random.one_in(3) ? 0 : random.below(700), random.next());
          got[to][from].resize(sent[from][to].size());
        }
      }
      SimCluster cluster(
          {.rank_count = ranks, .seed = seed, .slots = 4, .slot_bytes = 128, .stall_ticks = 100});
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        std::vector<Message> messages;
        for (uint32_t peer = 0; peer < ranks; ++peer) {
          Bytes& out = sent[rank][peer];
          if (peer != rank)
            messages.push_back({.buffer = out.data(), .bytes = out.size(), .peer = peer, .sending = true});
        }
        for (uint32_t peer = 0; peer < ranks; ++peer) {
          Bytes& in = got[rank][peer];
          if (peer != rank) messages.push_back({.buffer = in.data(), .bytes = in.size(), .peer = peer});
        }
        auto operation = Operation::bind_messages(
            messages, {.reference_bytes = seed % 2 == 0 ? 1 : UINT64_MAX, .slots = 4, .slot_bytes = 128},
            cluster.links(rank));
        operation->start({}, 0);
        cluster.set_operation(rank, std::move(operation));
      }
      const std::vector<std::vector<Bytes>> expected = sent;
      const std::vector<Outcome> outcomes = cluster.run([&](uint32_t rank) {
        for (uint32_t peer = 0; peer < ranks; ++peer) ASSERT_TRUE(got[rank][peer] == expected[peer][rank]);
        for (Bytes& bytes : sent[rank]) bytes.assign(bytes.size(), std::byte{0xee});
      });
      ASSERT_TRUE(all_done(outcomes)) << describe(outcomes);
    }
  }
}

}  // namespace
}  // namespace tutti::test
