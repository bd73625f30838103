// Goal: whatever the sizes, carriages, offers, turns, connections and buffers, every message arrives once, in
// order, whole; rings are never overrun; memory that was referred to is not read after it was given back.
// Method: seeded traffic between two connections in one thread, over Unix sockets and loopback TCP.
#include <gtest/gtest.h>

#include <string>

#include "core/clock.h"
#include "tests/support/scope.h"
#include "tests/tcp/connection_pair.h"
#include "tests/tcp/tls_support.h"

namespace tutti::test {
namespace {

struct Case {
  Wire wire = Wire::kUnix;
  uint32_t connections = 1;
  uint32_t buffer_bytes = 0;  ///< of the kernel
  RingShape shape{.slots = 8, .slot_bytes = 1024};
  uint64_t in_place_bytes = 65536;
  uint64_t first_number = 0;
  bool slow_reader = false;
  bool tls = false;
};

std::string describe(const Case& at, uint64_t seed) {
  return std::string(at.wire == Wire::kUnix ? "unix" : "loopback") +
         format(", %u connections, buffers of %u, %u slots of %u, seed %llu", at.connections, at.buffer_bytes,
                at.shape.slots, at.shape.slot_bytes, static_cast<unsigned long long>(seed));
}

/// Runs it to the end; the traffic's figures are checked by the caller.
void run(ConnectionPair& pair, Traffic& traffic, uint64_t seed, const std::string& what) {
  SimRandom random(seed + 1);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  uint64_t idle = 0;
  while (!traffic.complete() && traffic.failure().empty()) {
    const bool moved = traffic.turn(static_cast<uint32_t>(random.below(2)));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(pair.side(rank).connection().status().is_ok())
          << pair.side(rank).connection().status().text() << what;
    }
    idle = moved ? 0 : idle + 1;
    ASSERT_TRUE(idle < 1000 || now_ns() < deadline_ns) << "stuck: " << what;
  }
  EXPECT_EQ(traffic.failure(), "") << what;
}

void run_case(const Case& at, uint64_t seed, uint64_t messages) {
  StreamPair streams = connect_streams(at.wire, at.connections, at.buffer_bytes);
  if (at.tls) streams = with_tls(std::move(streams), {.records_a_key = 100});
  ConnectionPair pair(
      {.shape = at.shape, .first_number = at.first_number, .in_place_bytes = at.in_place_bytes},
      std::move(streams.ends[0]), std::move(streams.ends[1]));
  Traffic traffic(pair.first, pair.second, seed, messages, at.slow_reader);
  run(pair, traffic, seed, describe(at, seed));
  EXPECT_LE(traffic.most_ahead(), 2 * at.shape.slots) << describe(at, seed);
  EXPECT_GT(traffic.direct_count(), 0u) << describe(at, seed);
}

TEST(TrafficTest, EveryMessageArrivesOnceInOrderAndWhole) {
  const uint64_t seeds = full_run() ? 50 : 3;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Wire wire : {Wire::kUnix, Wire::kLoopback}) {
      for (const uint32_t connections : {1u, 2u, 4u}) {
        run_case({.wire = wire, .connections = connections}, seed, 500);
      }
    }
  }
}

TEST(TrafficTest, TinyKernelBuffersMakeShortWritesAndReads) {
  for (const Wire wire : {Wire::kUnix, Wire::kLoopback}) {
    for (const uint32_t connections : {1u, 2u, 4u}) {
      run_case({.wire = wire,
                .connections = connections,
                .buffer_bytes = 4096,
                .shape = {.slots = 4, .slot_bytes = 16384}},
               11, 120);
    }
  }
}

TEST(TrafficTest, TlsKeepsOrderAndBounds) {
  for (const Wire wire : {Wire::kUnix, Wire::kLoopback}) {
    for (const uint32_t connections : {1u, 3u}) {
      run_case({.wire = wire, .connections = connections, .tls = true}, 61, 300);
      run_case({.wire = wire,
                .connections = connections,
                .buffer_bytes = 4096,
                .shape = {.slots = 4, .slot_bytes = 16384},
                .tls = true},
               62, 60);
    }
  }
}

TEST(TrafficTest, ASlowReaderIsNeverOverrun) {
  for (const uint32_t connections : {1u, 3u}) {
    run_case({.connections = connections, .shape = {.slots = 4, .slot_bytes = 256}, .slow_reader = true}, 21,
             400);
  }
}

TEST(TrafficTest, NumbersWrapAround) {
  for (const uint32_t connections : {1u, 2u}) {
    run_case({.connections = connections, .first_number = (1ull << 24) - 40}, 31, 200);
  }
}

TEST(TrafficTest, WritesWithoutCopyKeepTheirMemoryUntilTheNetworkIsDone) {
  for (const uint32_t connections : {1u, 2u}) {
    run_case({.wire = Wire::kLoopback,
              .connections = connections,
              .shape = {.slots = 8, .slot_bytes = 32768},
              .in_place_bytes = 1},
             41, 200);
  }
}

TEST(TrafficTest, ManySlotsFillLongRuns) {
  run_case({.wire = Wire::kLoopback, .connections = 2, .shape = {.slots = 256, .slot_bytes = 128}}, 51, 2000);
}

}  // namespace
}  // namespace tutti::test
