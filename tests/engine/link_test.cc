// Conformance of SendLink and RecvLink over one ring in memory, writer and readers on threads of their own.
//
// Goal: messages arrive once, whole and in order; a writer never has more messages out than slots; a slot is
// not written before every reader gave it back; the 24-bit number may wrap. Method: numbered messages whose
// bytes follow from the number; a count of messages in use that both sides keep. The suite is what the thread
// sanitizer runs.
#include "transports/link.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "tests/engine/raw_links.h"

namespace tutti::test {
namespace {

constexpr uint64_t kMessages = 600;
constexpr uint16_t kSignature = 0xbeef;

/// Sizes of all kinds: none, inline, the largest inline, a slot, a whole slot.
uint64_t bytes_of(uint64_t number, uint32_t slot_bytes) {
  const uint64_t sizes[] = {0, 1, kInlineBytes, kInlineBytes + 1, slot_bytes - 1, slot_bytes};
  return sizes[number % std::size(sizes)];
}

std::byte byte_of(uint64_t number, uint64_t index) {
  return static_cast<std::byte>(number * 31 + index * 7 + (number >> 8));
}

void write_message(SendLink& link, uint64_t count) {
  std::byte* span = link.span(count);
  for (uint64_t i = 0; i < count; ++i) span[i] = byte_of(link.next, i);
  link.commit(kSignature, count);
}

/// Waits for the next message and checks all of it. False: something was wrong.
bool read_message(RecvLink& link, uint64_t count) {
  const uint64_t expected = flag::make(link.next, kSignature, count);
  uint64_t word = link.word();
  while ((word & flag::kAgreedMask) != expected) {
    if ((word & flag::kNumberMask) == (expected & flag::kNumberMask)) return false;
    sched_yield();
    word = link.word();
  }
  const std::byte* span = link.span(word);
  bool right = true;
  for (uint64_t i = 0; i < count; ++i) right = right && span[i] == byte_of(link.next, i);
  link.release(link.word());
  return right;
}

struct Case {
  uint32_t slots;
  uint32_t slot_bytes;
  uint64_t first_number;
};

/// A ring in memory and its ends, which have had `first_number` messages.
struct Ends {
  Ends(const RingShape& shape, uint64_t first_number)
      : memory(shape),
        send(SendLink::at(memory.bytes(), shape)),
        recv(RecvLink::at(memory.bytes(), shape, 0)) {
    if (first_number != 0) begin_at(memory, shape, first_number, send, recv);
  }
  RingMemory memory;
  SendLink send;
  RecvLink recv;
};

class LinkTest : public testing::TestWithParam<Case> {
 protected:
  RingShape shape(uint32_t readers = 1) const {
    return {.slots = GetParam().slots, .slot_bytes = GetParam().slot_bytes, .readers = readers};
  }
  RingShape wide_shape() const {
    RingShape wide = shape();
    wide.wide_slots = static_cast<uint32_t>(credits_together());
    return wide;
  }
  /// Messages after which a writer surely hears of a freed slot.
  static uint64_t credits_together() { return std::max(1u, GetParam().slots / kCreditsPerRing); }
};

TEST_P(LinkTest, MessagesOfAllSizesArriveOnceWholeAndInOrder) {
  Ends ends(shape(), GetParam().first_number);
  const uint64_t end = ends.send.next + kMessages;
  std::thread writer([&] {
    while (ends.send.next < end) {
      if (ends.send.can_write()) {
        write_message(ends.send, bytes_of(ends.send.next, ends.send.slot_bytes));
      } else {
        sched_yield();
      }
    }
  });
  uint64_t wrong = 0;
  while (ends.recv.next < end)
    wrong += read_message(ends.recv, bytes_of(ends.recv.next, ends.recv.slot_bytes)) ? 0 : 1;
  writer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LT(end - ends.send.released(), credits_together());
}

// Goal: payloads longer than a slot travel between the others, and no wide slot is written before it is free.
TEST_P(LinkTest, PayloadsLongerThanASlotTakeWideSlots) {
  const RingShape wide = wide_shape();
  Ends ends(wide, GetParam().first_number);
  // Runs of both kinds, longer than the ring and shorter.
  const auto size_of = [&](uint64_t number) {
    const bool is_wide = number % 7 == 0 || number / (2 * uint64_t{wide.slots}) % 2 == 1;
    return is_wide ? wide.slot_bytes + 1 + number % 100 : bytes_of(number, wide.slot_bytes);
  };
  const uint64_t end = ends.send.next + kMessages;
  std::thread writer([&] {
    while (ends.send.next < end) {
      if (ends.send.can_write(size_of(ends.send.next))) {
        write_message(ends.send, size_of(ends.send.next));
      } else {
        sched_yield();
      }
    }
  });
  uint64_t wrong = 0;
  while (ends.recv.next < end) wrong += read_message(ends.recv, size_of(ends.recv.next)) ? 0 : 1;
  writer.join();
  EXPECT_EQ(wrong, 0u);
  while (ends.send.can_write(kWideSlotBytes)) write_message(ends.send, kWideSlotBytes);
  EXPECT_LE(ends.send.next - ends.recv.next, wide.wide_slots);
  EXPECT_GT(ends.send.next, ends.recv.next);
}

// Goal: two ranks that send half of their wide slots to each other before they read do not block each other,
// whatever was sent before. It hung: shorter messages were reported once in more messages than wide slots,
// which the ring of 128 slots shows.
TEST_P(LinkTest, HalfOfTheWideSlotsAreFreeAfterAnyReadMessages) {
  const RingShape wide = wide_shape();
  Ends ends(wide, GetParam().first_number);
  for (uint32_t before = 0; before < wide.slots; ++before) {
    for (uint32_t i = 0; i < before; ++i) {
      ASSERT_TRUE(ends.send.can_write(8));
      write_message(ends.send, 8);
      ASSERT_TRUE(read_message(ends.recv, 8));
    }
    for (uint32_t i = 0; i < wide.wide_slots / 2; ++i) {
      ASSERT_TRUE(ends.send.can_write(kWideSlotBytes)) << "behind " << before << " shorter messages";
      write_message(ends.send, kWideSlotBytes);
    }
    for (uint32_t i = 0; i < wide.wide_slots / 2; ++i) ASSERT_TRUE(read_message(ends.recv, kWideSlotBytes));
  }
}

TEST_P(LinkTest, AWriterHasAtMostAllSlotsOutAndGoesOnWithTheCredits) {
  Ends ends(shape(), GetParam().first_number);
  for (uint64_t i = 0; i < 3 * uint64_t{GetParam().slots}; ++i) {
    while (ends.send.can_write()) write_message(ends.send, 8);
    ASSERT_LE(ends.send.next - ends.recv.next, GetParam().slots);
    ASSERT_GT(ends.send.next - ends.recv.next + credits_together(), GetParam().slots);
    for (uint64_t read = 0; !ends.send.can_write(); ++read) {
      ASSERT_LT(read, credits_together());
      ASSERT_TRUE(read_message(ends.recv, 8));
    }
  }
}

TEST_P(LinkTest, AReferenceIsReadWhereItLiesAndComesBackWithItsCredit) {
  Ends ends(shape(), GetParam().first_number);
  EXPECT_TRUE(ends.send.references_returned());
  const uint64_t value = 0x0123456789abcdef;
  ends.send.commit_reference(kSignature, sizeof(value), &value);
  EXPECT_FALSE(ends.send.references_returned());
  const uint64_t word = ends.recv.word();
  ASSERT_EQ(word & flag::kAgreedMask, flag::make(ends.recv.next, kSignature, sizeof(value)));
  EXPECT_EQ(flag::carriage(word), Carriage::kReference);
  EXPECT_EQ(ends.recv.span(word), reinterpret_cast<const std::byte*>(&value));
  ends.recv.release(ends.recv.word());
  EXPECT_TRUE(ends.send.references_returned());
}

TEST_P(LinkTest, AReferenceIsMovedIntoTheReadersMapping) {
  RingMemory memory(shape());
  SendLink send = SendLink::at(memory.bytes(), shape());
  RecvLink recv = RecvLink::at(memory.bytes(), shape(), 0);
  std::byte mapped[128];
  recv.reference_offset = 64;
  send.commit_reference(kSignature, 64, mapped + 32);
  EXPECT_EQ(recv.span(recv.word()), mapped + 96);
  recv.reference_offset = 0 - uint64_t{32};
  EXPECT_EQ(recv.span(recv.word()), mapped);
}

TEST_P(LinkTest, APublishedMessageReachesAllReadersAndItsSlotWaitsForTheLast) {
  constexpr uint32_t kReaders = 4;
  constexpr uint32_t kSelf = 1;
  RingMemory memory(shape(kReaders));
  SendLink send = SendLink::at(memory.bytes(), shape(kReaders));
  send.self_reader = kSelf;
  std::vector<RecvLink> readers;
  for (uint32_t i = 0; i < kReaders; ++i) {
    readers.push_back(RecvLink::at(memory.bytes(), shape(kReaders), i));
    if (GetParam().first_number != 0)
      begin_at(memory, shape(kReaders), GetParam().first_number, send, readers[i]);
  }
  const uint64_t end = send.next + kMessages / 4;
  std::vector<uint64_t> wrong(kReaders);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kReaders; ++i) {
    if (i == kSelf) continue;
    threads.emplace_back([&, i] {
      RecvLink& link = readers[i];
      while (link.next < end) wrong[i] += read_message(link, bytes_of(link.next, link.slot_bytes)) ? 0 : 1;
    });
  }
  while (send.next < end) {
    if (send.can_write()) {
      write_message(send, bytes_of(send.next, send.slot_bytes));
    } else {
      sched_yield();
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<uint64_t>(kReaders, 0));
  EXPECT_LT(end - send.released(), credits_together());
}

TEST_P(LinkTest, TheSlowestReaderHoldsThePublishedRing) {
  RingMemory memory(shape(3));
  SendLink send = SendLink::at(memory.bytes(), shape(3));
  send.self_reader = 2;
  RecvLink fast = RecvLink::at(memory.bytes(), shape(3), 0);
  RecvLink slow = RecvLink::at(memory.bytes(), shape(3), 1);
  while (send.can_write()) write_message(send, 8);
  while (fast.next < send.next) ASSERT_TRUE(read_message(fast, 8));
  EXPECT_FALSE(send.can_write());
  for (uint64_t read = 0; read < credits_together(); ++read) ASSERT_TRUE(read_message(slow, 8));
  EXPECT_TRUE(send.can_write());
}

// Cells of the wrapping case have been written by numbers just below, as in a link's life.
INSTANTIATE_TEST_SUITE_P(Shapes, LinkTest,
                         testing::Values(Case{1, 128, 0}, Case{2, 256, 0}, Case{16, 4096, 0},
                                         Case{128, 128, 0}, Case{16, 256, (1u << 24) - 300},
                                         Case{2, 128, (1u << 25) - 3}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.slots) + "_slots_of_" +
                                  std::to_string(tested.param.slot_bytes) + "_from_" +
                                  std::to_string(tested.param.first_number);
                         });

// Goal: a writer learns what its reader prefers when it looks for free slots, and pulls the messages of that
// class.
TEST_P(LinkTest, AWriterFollowsItsReadersPreference) {
  RingMemory memory(shape());
  SendLink send = SendLink::at(memory.bytes(), shape());
  RecvLink recv = RecvLink::at(memory.bytes(), shape(), 0);
  MessageVotes votes;
  recv.votes = &votes;
  constexpr uint64_t kMessage = 100'000;
  store_shared(send.credits[0].pull_preferences, 1u << message_class(kMessage));
  for (uint64_t i = 0; i < GetParam().slots; ++i) {
    write_message(send, 0);
    ASSERT_TRUE(read_message(recv, 0));
  }
  ASSERT_TRUE(send.can_write());
  EXPECT_TRUE(send.choose_pulling(kMessage));
  EXPECT_FALSE(send.choose_pulling(kMessage / 2));
  EXPECT_FALSE(recv.begin_trial(kMessage)) << "the first message belongs to no trial";
}

// Goal: a reader that has seen that pulling cannot gain is believed.
TEST(PullingTest, AWriterTriesOnlyWhatMayGain) {
  constexpr RingShape kShape{.slots = 4, .slot_bytes = 4096};
  constexpr uint64_t kMessage = 100'000;
  RingMemory memory(kShape);
  const auto pulled = [&](bool may_gain) {
    SendLink send = SendLink::at(memory.bytes(), kShape);
    MessageVotes reader;
    reader.add(false, kMessage, may_gain ? 1000 : 10, {.call_ns = 1000});
    send.preferences = reader.preferences;
    store_shared(send.credits[0].pull_preferences, reader.preferences);
    int count = 0;
    for (int i = 0; i < 1000; ++i) count += send.choose_pulling(kMessage) ? 1 : 0;
    return count;
  };
  EXPECT_GT(pulled(true), 0);
  EXPECT_EQ(pulled(false), 0);
}

// Goal: both ends repeat a trial that spoke against slots, and no other. Method: the writer never runs out of
// slots, so it learns that only by looking.
TEST(PullingTest, BothEndsRepeatATrialThatSpokeAgainstSlots) {
  constexpr RingShape kShape{.slots = 4, .slot_bytes = 4096};
  constexpr uint64_t kMessage = 100'000;
  constexpr uint64_t kFirstTrial = 50,
                     kRepetition = 10;  // calls until the first one is over, calls of the other
  for (const bool is_pulling_faster : {false, true}) {
    RingMemory memory(kShape);
    SendLink send = SendLink::at(memory.bytes(), kShape);
    RecvLink recv = RecvLink::at(memory.bytes(), kShape, 0);
    MessageVotes votes;
    recv.votes = &votes;
    uint64_t pulled = 0, timed = 0;
    const auto pass = [&](uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        const bool is_pulled = send.choose_pulling(kMessage);
        pulled += is_pulled ? 1 : 0;
        if (!recv.begin_trial(kMessage)) continue;
        ++timed;
        recv.judge_message(is_pulled, kMessage, is_pulled == is_pulling_faster ? 900'000 : 1'000'000, {});
      }
    };
    pass(kFirstTrial);
    EXPECT_EQ(pulled, kPulledCalls);
    EXPECT_EQ(timed, kRepetition);
    pass(kRepetition);
    EXPECT_EQ(pulled, (is_pulling_faster ? 2 : 1) * kPulledCalls);
    EXPECT_EQ(timed, (is_pulling_faster ? 2 : 1) * kRepetition);
    EXPECT_EQ(MessageVotes::preference(votes.preferences, kMessage).is_preferred, is_pulling_faster);
  }
}

// Goal: a writer gives up a trial of long messages as soon as its reader does, and makes the next one whole.
TEST(PullingTest, BothEndsGiveUpAHopelessTrialOfLongMessages) {
  constexpr RingShape kShape{.slots = 4, .slot_bytes = 4096};
  constexpr uint64_t kMessage = 128u << 20;
  constexpr uint64_t kSecondTrial = 136;
  RingMemory memory(kShape);
  SendLink send = SendLink::at(memory.bytes(), kShape);
  RecvLink recv = RecvLink::at(memory.bytes(), kShape, 0);
  MessageVotes votes;
  recv.votes = &votes;
  const auto pulled_of = [&](uint64_t count, uint64_t pulled_ns) {
    uint64_t pulled = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const bool is_pulled = send.choose_pulling(kMessage);
      pulled += is_pulled ? 1 : 0;
      if (recv.begin_trial(kMessage))
        recv.judge_message(is_pulled, kMessage, is_pulled ? pulled_ns : 1'000'000, {});
    }
    return pulled;
  };
  EXPECT_EQ(pulled_of(kSecondTrial, 3'000'000), 2u);
  EXPECT_EQ(pulled_of(8, 1'500'000), kLongPulledCalls);
}

/// Two ranks and their links, whose long payloads lie in slots that go with the messages.
class PassedSlotsTest : public testing::Test {
 protected:
  static constexpr RingShape kShape{.slots = 16, .slot_bytes = 8192, .passed_slots = 8};
  struct Rank {
    Rank(RingMemory& to, RingMemory& from, bool is_lower)
        : passed((is_lower ? to : from).bytes() + kShape.passed_offset(), kShape.slot_bytes,
                 kShape.passed_slots, is_lower, PassedSlots::kLeastBytes),
          send(SendLink::at(to.bytes(), kShape)),
          recv(RecvLink::at(from.bytes(), kShape, 0)) {
      send.pass_slots(&passed);
      recv.pass_slots(&passed);
    }
    void write(uint64_t bytes, bool is_plain) {
      if (!is_plain || bytes <= kInlineBytes) return write_message(send, bytes);
      std::byte* const span = send.place<PlainPayload::kPassable>(bytes);
      for (uint64_t i = 0; i < bytes; ++i) span[i] = byte_of(send.next, i);
      send.commit_as<PlainPayload::kPassable>(kSignature, bytes);
    }
    /// Of a message that has arrived. False: something was wrong.
    bool read(uint64_t bytes, bool is_plain) {
      if (!is_plain || bytes <= kInlineBytes) return read_message(recv, bytes);
      if (!recv.has<PlainPayload::kPassable>(kSignature, bytes)) return false;
      const std::byte* const span = recv.place<PlainPayload::kPassable>(bytes);
      bool right = true;
      for (uint64_t i = 0; i < bytes; ++i) right = right && span[i] == byte_of(recv.next, i);
      recv.release_plain<PlainPayload::kPassable>(bytes);
      return right;
    }
    /// Sends and reads all messages, in bursts that begin at random, by the short path and by the general
    /// one.
    void run(uint64_t count, uint64_t seed, uint64_t (*size)(uint64_t)) {
      while (send.next < count || recv.next < count) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t burst = 1 + (seed >> 60);
        for (uint64_t i = 0; i < burst && send.next < count && send.can_write(); ++i) {
          passes += send.passes(size(send.next)) ? 1 : 0;
          write(size(send.next), (seed >> (8 + i) & 1) != 0);
        }
        for (uint64_t i = 0; i < burst && recv.next < count && recv.has_arrived(); ++i)
          wrong += read(size(recv.next), (seed >> (30 + i) & 1) != 0) ? 0 : 1;
        if ((seed >> 59 & 1) != 0) sched_yield();
      }
    }
    PassedSlots passed;
    SendLink send;
    RecvLink recv;
    uint64_t passes = 0;
    uint64_t wrong = 0;
  };
  uint32_t owned(PassedSlots slots) const {
    uint32_t count = 0;
    for (; !slots.is_empty(); ++count) slots.take_front();
    return count;
  }

  /// Sends messages of these sizes both ways at once. All arrive whole, and no slot is lost.
  void exchange(uint64_t (*size)(uint64_t)) {
    constexpr uint64_t kCount = 2000;
    std::thread other([&] { higher_.run(kCount, 7, size); });
    lower_.run(kCount, 99, size);
    other.join();
    EXPECT_EQ(lower_.wrong + higher_.wrong, 0u);
    EXPECT_GT(lower_.passes, kCount / 20);
    EXPECT_GT(higher_.passes, kCount / 20);
    EXPECT_EQ(owned(lower_.passed) + owned(higher_.passed), kShape.passed_slots);
  }

  /// Two rounds of the rings, from which on slots are passed.
  void SetUp() override {
    for (uint32_t i = 0; i < kFirst; ++i) {
      for (const auto& [from, to] : {std::pair(&lower_, &higher_), std::pair(&higher_, &lower_)}) {
        ASSERT_TRUE(from->send.can_write());
        EXPECT_FALSE(from->send.passes(8192)) << "message " << i;
        write_message(from->send, 8192);
        ASSERT_TRUE(read_message(to->recv, 8192));
      }
    }
  }
  static constexpr uint32_t kFirst = 2 * kShape.slots;

  RingMemory there_{kShape}, back_{kShape};
  Rank lower_{there_, back_, true}, higher_{back_, there_, false};
};

// Goal: payloads of all sizes arrive whole both ways, in passed slots and others, and no slot is lost or held
// twice.
TEST_F(PassedSlotsTest, TrafficBothWaysArrivesWholeAndKeepsAllSlots) {
  const auto size = [](uint64_t number) -> uint64_t {
    return number % 3 == 0 ? number % 200 : 4000 + number % 4193;
  };
  exchange(size);
  std::set<uint32_t> slots;
  for (PassedSlots half : {lower_.passed, higher_.passed}) {
    for (; !half.is_empty(); half.take_front()) slots.insert(half.front());
  }
  EXPECT_EQ(slots.size(), kShape.passed_slots);
}

// Goal: the same with the shorter payloads that go into passed slots where processors can demote lines.
TEST_F(PassedSlotsTest, ShorterPayloadsPassSlotsWhereBothRanksSaySo) {
  for (Rank* rank : {&lower_, &higher_}) {
    rank->passed = PassedSlots(there_.bytes() + kShape.passed_offset(), kShape.slot_bytes,
                               kShape.passed_slots, rank == &lower_, PassedSlots::kLeastBytesWhereDemoted);
    rank->send.pass_slots(&rank->passed);
    rank->recv.pass_slots(&rank->passed);
  }
  constexpr uint64_t kLeast = PassedSlots::kLeastBytesWhereDemoted;
  EXPECT_FALSE(lower_.send.passes(kLeast - 1));
  EXPECT_TRUE(lower_.send.passes(kLeast));
  exchange([](uint64_t number) -> uint64_t { return 900 + number % 300; });
}

// Goal: a rank that only sends runs out of them, and goes on with its ring's slots; the reader has them all.
TEST_F(PassedSlotsTest, OneWayTheyEndUpWithTheReader) {
  for (uint32_t i = 0; i < 5 * kShape.slots; ++i) {
    ASSERT_TRUE(lower_.send.can_write());
    EXPECT_EQ(lower_.send.passes(8192), i < kShape.passed_slots / 2);
    write_message(lower_.send, 8192);
    ASSERT_TRUE(read_message(higher_.recv, 8192));
  }
  EXPECT_EQ(owned(lower_.passed), 0u);
  EXPECT_EQ(owned(higher_.passed), kShape.passed_slots);
}

// Goal: an answer lies where the message lay, whose lines its writer has in its caches.
TEST_F(PassedSlotsTest, AnAnswerTakesTheSlotThatWasRead) {
  std::byte* const place = lower_.send.span(8192);
  write_message(lower_.send, 8192);
  ASSERT_TRUE(read_message(higher_.recv, 8192));
  EXPECT_EQ(higher_.send.span(8192), place);
  write_message(higher_.send, 8192);
  ASSERT_TRUE(read_message(lower_.recv, 8192));
  EXPECT_EQ(lower_.send.span(8192), place);
}

// Goal: what is shorter, and what needs no slot, takes none.
TEST_F(PassedSlotsTest, ShortPayloadsAndReferencesPassNone) {
  const uint32_t before = owned(lower_.passed);
  write_message(lower_.send, PassedSlots::kLeastBytes - 1);
  ASSERT_TRUE(read_message(higher_.recv, PassedSlots::kLeastBytes - 1));
  lower_.send.commit_reference(kSignature, 8192, &lower_);
  higher_.recv.release(higher_.recv.word());
  EXPECT_EQ(owned(lower_.passed), before);
  EXPECT_EQ(owned(higher_.passed), kShape.passed_slots - before);
}

TEST(FlagWordTest, HoldsNumberSignatureAndBytesApart) {
  const uint64_t word = flag::make(41, 0xabcd, flag::kMaxBytes);
  EXPECT_EQ(word & flag::kNumberMask, 42u);
  EXPECT_EQ(flag::signature(word), 0xabcd);
  EXPECT_EQ(flag::bytes(word), flag::kMaxBytes);
  EXPECT_EQ(flag::carriage(word), Carriage::kInline);
  EXPECT_EQ(flag::make(41 + (1u << 24), 0xabcd, flag::kMaxBytes), word);
}

TEST(FlagWordTest, AFreshCellHoldsNoEarlyMessage) {
  for (uint64_t number = 0; number < 1000; ++number) {
    ASSERT_NE(flag::make(number, 0, 0) & flag::kNumberMask, 0u);
  }
}

}  // namespace
}  // namespace tutti::test
