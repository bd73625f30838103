// Segments and rings: layout, alerts, and the link protocol on one ring.
#include "transports/shm/segment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(SegmentShapeTest, RingsLieApartAndInsideTheSegment) {
  for (const uint32_t ranks : {2u, 3u, 64u, 65u}) {
    const SegmentShape shape{.rank_count = ranks,
                             .channels = 5,
                             .short_channels = 4,
                             .slots = ranks < 64 ? 128u : 32u,
                             .slot_bytes = 4096,
                             .has_wide_slots = ranks % 2 == 1};
    size_t end = shape.header_bytes();
    EXPECT_GE(end, sizeof(SegmentHeader));
    EXPECT_EQ(shape.publish_offset(0), end);
    end += shape.publish_ring().ring_bytes();
    for (uint32_t channel = 0; channel < shape.channels; ++channel) {
      for (uint32_t reader = 0; reader < ranks; ++reader) {
        EXPECT_EQ(shape.peer_offset(channel, reader), end);
        EXPECT_EQ(end % sizeof(Cell), 0u);
        end += shape.peer_ring().ring_bytes();
      }
    }
    EXPECT_LT(shape.short_ring().ring_bytes(), shape.peer_ring().ring_bytes());
    for (uint32_t channel = 0; channel < shape.short_channels; ++channel) {
      for (uint32_t reader = 0; reader < ranks; ++reader) {
        EXPECT_EQ(shape.short_offset(channel, reader), end);
        EXPECT_EQ(end % sizeof(Cell), 0u);
        end += shape.short_ring().ring_bytes();
      }
    }
    EXPECT_EQ(shape.bytes(), end);
  }
}

// Goal: a ring's slots of each kind lie apart; where slots are few, and in short rings, there is one kind.
TEST(SegmentShapeTest, WideAndPassedSlotsLieBehindTheOthers) {
  SegmentShape shape{.slots = 128, .slot_bytes = 16384, .has_wide_slots = true};
  const RingShape ring = shape.peer_ring();
  EXPECT_EQ(ring.passed_slots, PassedSlots::kMost);
  EXPECT_EQ(ring.least_passed_bytes, PassedSlots::kLeastBytes);
  EXPECT_EQ(ring.passed_offset(),
            ring.header_bytes() + size_t{128} * 16384 + size_t{ring.wide_slots} * kWideSlotBytes);
  EXPECT_EQ(ring.ring_bytes(), ring.passed_offset() + size_t{PassedSlots::kMost} * 16384);
  EXPECT_EQ(shape.publish_ring().passed_slots, 0u) << "its readers do not write there";
  EXPECT_EQ(shape.short_ring().passed_slots, 0u);
  shape.demotes_lines = true;
  EXPECT_EQ(shape.peer_ring().least_passed_bytes, PassedSlots::kLeastBytesWhereDemoted);
  shape.slots = 32;
  EXPECT_EQ(shape.peer_ring().passed_slots, 0u);
  EXPECT_EQ(shape.peer_ring().wide_slots, 0u);
}

TEST(AlertTest, TheFirstFailureWins) {
  Alert alert{};
  EXPECT_TRUE(alert_status(alert).is_ok());
  raise_alert(alert, Code::kTimeout, 3, "first");
  raise_alert(alert, Code::kAborted, 4, "second");
  EXPECT_EQ(alert_status(alert).code(), Code::kTimeout);
  EXPECT_EQ(alert_status(alert).text(), "first");
}

// Goal: a claim is withdrawn only while its writer has not completed the alert.
// A rank that took a slow writer for dead could erase the writer's alert, raised in between.
TEST(AlertTest, OnlyAnAlertThatIsNotCompleteIsWithdrawn) {
  Alert alert{};
  alert.state.store(Alert::claimed_by(3));
  withdraw_claim(alert, Alert::claimed_by(4));
  EXPECT_EQ(alert.state.load(), Alert::claimed_by(3)) << "another rank's";
  const uint32_t seen = alert.state.load();
  withdraw_claim(alert, seen);
  EXPECT_EQ(alert.state.load(), Alert::kQuiet);
  raise_alert(alert, Code::kTimeout, 3, "first");
  withdraw_claim(alert, seen);
  withdraw_claim(alert, alert.state.load());
  EXPECT_EQ(alert_status(alert).text(), "first");
}

TEST(AlertTest, LongTextsAreCut) {
  Alert alert{};
  raise_alert(alert, Code::kTimeout, 0, std::string(5000, 'x'));
  EXPECT_EQ(alert_status(alert).text().size(), sizeof(alert.text) - 1);
}

/// A ring in ordinary memory.
class Ring {
 public:
  explicit Ring(const RingShape& shape) : shape_(shape), memory_(shape.ring_bytes() / sizeof(Cell)) {}
  SendLink sender() { return SendLink::at(start(), shape_); }
  RecvLink receiver(uint32_t reader) { return RecvLink::at(start(), shape_, reader); }

 private:
  std::byte* start() { return reinterpret_cast<std::byte*>(memory_.data()); }
  RingShape shape_;
  std::vector<Cell> memory_;
};

TEST(RingTest, AWriterStopsWhenItHasNoSlotAndGoesOnWhenOneComesBack) {
  Ring ring({.slots = 4, .slot_bytes = 4096, .readers = 1});
  SendLink send = ring.sender();
  RecvLink recv = ring.receiver(0);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(send.can_write());
    send.commit(7, 0);
  }
  EXPECT_FALSE(send.can_write());
  recv.release(recv.word());
  EXPECT_TRUE(send.can_write());
}

TEST(RingTest, AFreshCellMatchesNoMessage) {
  Ring ring({.slots = 4, .slot_bytes = 4096, .readers = 1});
  const RecvLink recv = ring.receiver(0);
  for (const uint64_t number : {0u, 1u, 12345u})
    EXPECT_NE(recv.word() & flag::kAgreedMask, flag::make(number, 0, 0));
}

TEST(RingTest, APublishedRingWaitsForItsSlowestReader) {
  Ring ring({.slots = 4, .slot_bytes = 4096, .readers = 3});
  SendLink send = ring.sender();
  send.self_reader = 0;
  RecvLink quick = ring.receiver(1);
  RecvLink slow = ring.receiver(2);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(send.can_write());
    send.commit(0, 1);
    quick.release(quick.word());
  }
  EXPECT_FALSE(send.can_write());
  EXPECT_EQ(send.slowest_reader(), 2u);
  slow.release(slow.word());
  EXPECT_TRUE(send.can_write());
}

// Goal: data written before a commit is what the reader of the flag sees, inline and in slots, over many
// turns of the ring. Method: two threads; the thread sanitizer judges the order.
TEST(RingTest, CarriesDataBetweenThreads) {
  constexpr uint64_t kMessages = 20'000;
  Ring ring({.slots = 4, .slot_bytes = 4096, .readers = 1});
  const auto bytes_of = [](uint64_t number) { return number % 3 == 0 ? uint64_t{8} : uint64_t{136}; };
  std::thread writer([&] {
    SendLink send = ring.sender();
    for (uint64_t number = 0; number < kMessages; ++number) {
      while (!send.can_write()) std::this_thread::yield();
      std::byte* target = send.span(bytes_of(number));
      for (uint64_t at = 0; at < bytes_of(number); at += 8) std::memcpy(target + at, &number, sizeof(number));
      send.commit(5, bytes_of(number));
    }
  });
  RecvLink recv = ring.receiver(0);
  uint64_t wrong = 0;
  for (uint64_t number = 0; number < kMessages; ++number) {
    const uint64_t expected = flag::make(number, 5, bytes_of(number));
    while ((recv.word() & flag::kAgreedMask) != expected) std::this_thread::yield();
    const std::byte* source = recv.span(recv.word());
    for (uint64_t at = 0; at < bytes_of(number); at += 8) {
      uint64_t value = 0;
      std::memcpy(&value, source + at, sizeof(value));
      wrong += value != number ? 1 : 0;
    }
    recv.release(recv.word());
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace tutti
