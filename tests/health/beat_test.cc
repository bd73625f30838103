// Heartbeats: who is silent before all are there is not lost; who is silent then, is.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "health/control_plane.h"
#include "health/heartbeat.h"
#include "health/heartbeat_clock.h"
#include "net/frame.h"

namespace tutti::test {
namespace {

// Beats are 25 ms apart: a control thread that is late by as much has been stopped, and forgives.
constexpr uint64_t kHeartbeatMs = 100;
// As many as come in three times of the silence that is too long.
constexpr uint32_t kBeats = 12;

// Goal: a peer that was stopped for less than the heartbeat is not lost, though its last beat was a period
// old.
TEST(HeartbeatClockTest, AStopShorterThanTheHeartbeatNeverCounts) {
  constexpr uint64_t kMs = 1'000'000;
  const HeartbeatClock clock(1500);
  EXPECT_EQ(clock.period_ns(), 375 * kMs);
  EXPECT_FALSE(clock.is_too_long((1300 + 375) * kMs));
  EXPECT_FALSE(clock.is_too_long((1500 + 375) * kMs));
  EXPECT_TRUE(clock.is_too_long((1500 + 376) * kMs));
}

std::unique_ptr<ControlThread> start_control() {
  auto control = ControlThread::start();
  EXPECT_TRUE(control.status().is_ok()) << control.status().text();
  return std::move(*control);
}

/// What became of a peer.
struct Fate {
  std::atomic<bool> is_lost = false;
  std::promise<Status> why;
  void lose(const Status& reason) {
    is_lost = true;
    why.set_value(reason);
  }
};

// Goal: a rank that takes long in its set-up is not lost for that. Method: a counter that never moves; this
// rank's own tells that time has passed.
TEST(BeatTest, AHeartbeatIsExpectedOnceAllAreThere) {
  const auto control = start_control();
  std::atomic<uint32_t> own = 0;
  const std::atomic<uint32_t> other = 0;
  Fate fate;
  auto heartbeat = Heartbeat::start(*control, kHeartbeatMs, own, {{.rank = 1, .heartbeat = &other}},
                                    [&](uint32_t, const Status& why) { fate.lose(why); });
  ASSERT_TRUE(heartbeat.status().is_ok()) << heartbeat.status().text();
  EXPECT_GE(own.load(), 1u);
  while (own.load() < kBeats) std::this_thread::yield();
  EXPECT_FALSE(fate.is_lost.load());
  (*heartbeat)->expect_beats();
  EXPECT_EQ(fate.why.get_future().get().code(), Code::kPeerLost);
}

// The same between hosts: the peer takes beats, and sends none.
TEST(BeatTest, BeatsOfAnotherHostAreExpectedOnceAllAreThere) {
  const auto control = start_control();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor far(ends[1]);
  std::vector<ControlPlane::Peer> peers;
  peers.push_back({.rank = 1, .socket = FileDescriptor(ends[0])});
  Fate fate;
  auto plane = ControlPlane::open(*control, std::move(peers), kHeartbeatMs,
                                  {.on_alert = [](uint32_t, const Status&) {},
                                   .on_left = [](uint32_t) {},
                                   .on_lost = [&](uint32_t, bool, const Status& why) { fate.lose(why); },
                                   .report = [](uint32_t) { return StatusCopy(); },
                                   .on_members = [](uint32_t, std::span<const std::byte>) {}});
  ASSERT_TRUE(plane.status().is_ok()) << plane.status().text();
  std::array<std::byte, kFrameHeaderBytes> frame;
  EXPECT_EQ(recv(far.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_WAITALL),
            static_cast<ssize_t>(frame.size()))
      << "the first beat comes at once";
  for (uint32_t i = 1; i < kBeats; ++i) {
    ASSERT_EQ(recv(far.get(), frame.data(), frame.size(), MSG_WAITALL), static_cast<ssize_t>(frame.size()));
  }
  EXPECT_FALSE(fate.is_lost.load());
  (*plane)->expect_beats();
  const Status why = fate.why.get_future().get();
  EXPECT_EQ(why.code(), Code::kPeerLost);
  // A process that was stopped and goes on blamed this rank, whose connection it found closed.
  FrameReader reader(0);
  std::vector<Frame> frames;
  std::array<std::byte, 4096> buffer;
  for (ssize_t got = 0; (got = recv(far.get(), buffer.data(), buffer.size(), 0)) > 0;) {
    ASSERT_TRUE(reader.feed(std::span(buffer).first(static_cast<size_t>(got)), frames));
  }
  ASSERT_FALSE(frames.empty());
  EXPECT_EQ(frames.back().header.kind, FrameKind::kAlert);
  EXPECT_EQ(frames.back().failure().text(), why.text());
  (*plane)->close();
}

}  // namespace
}  // namespace tutti::test
