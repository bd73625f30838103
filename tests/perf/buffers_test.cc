// Rings of buffers: footprint, strides, rotation; and arenas of private memory.
#include "perf/buffers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::perf {
namespace {

constexpr size_t kMega = 1u << 20;

// Goal: caches cannot hold what a run touches.
TEST(BuffersTest, RingsOfAllRanksCoverFourCaches) {
  for (const int ranks : {1, 2, 3, 8})
    for (const size_t bytes : {size_t{8}, size_t{4096}, 5 * kMega, 40 * kMega, 200 * kMega}) {
      const size_t footprint = ring_footprint(Options{}, 32 * kMega, ranks);
      const RingLayout layout = ring_layout(bytes, 0, footprint, 1);
      EXPECT_GE(layout.bytes() * static_cast<size_t>(ranks) + static_cast<size_t>(ranks), 128 * kMega);
      EXPECT_GE(layout.stride_bytes, bytes);
      EXPECT_EQ(layout.stride_bytes % 64, 0u);
    }
}

TEST(BuffersTest, HotRunsUseOneSlot) {
  Options options;
  options.hot = true;
  EXPECT_EQ(ring_layout(8, 0, ring_footprint(options, 32 * kMega, 2), 1).slot_count, 1u);
}

// The ranks of all hosts shared a host's cache: with four hosts, rotated buffers fitted in it.
TEST(BuffersTest, RanksShareTheCacheOfTheirHostOrDevice) {
  std::vector<RankInfo> ranks;
  for (const char* host : {"a", "a", "b", "b", "b"}) ranks.push_back({.host = host});
  EXPECT_EQ(most_sharing_memory(ranks, 0, 1), 2);
  EXPECT_EQ(most_sharing_memory(ranks, 2, 1), 3);
  EXPECT_EQ(most_sharing_memory(ranks, 1, 2), 3);
  ranks[3].address = ranks[4].address = "0000:01:00.0";
  EXPECT_EQ(most_sharing_memory(ranks, 2, 1), 1);
  EXPECT_EQ(most_sharing_memory(ranks, 3, 2), 2);
}

// Goal: operations of one group never share a buffer.
TEST(BuffersTest, AGroupHasASlotForEachOfItsOperations) {
  EXPECT_EQ(ring_layout(100, 0, 0, 5).slot_count, 5u);
}

TEST(BuffersTest, TheRingTurns) {
  char send[512];
  char recv[512];
  const RingLayout layout = ring_layout(60, 4, 128, 1);
  EXPECT_EQ(layout.stride_bytes, 64u);
  Rings rings(send, recv, layout, 4, 0);
  EXPECT_EQ(rings.send(), send + 4);
  rings.advance();
  EXPECT_EQ(rings.send(), send + 68);
  EXPECT_EQ(rings.recv(), recv + 68);
  rings.advance();
  EXPECT_EQ(rings.send(), send + 4);
}

// Goal: a measurement does not find the buffers of the last one in the caches.
TEST(BuffersTest, TheNextRingGoesOnWhereTheLastOneEnded) {
  char send[512];
  char recv[512];
  Rings rings(send, recv, ring_layout(60, 0, 256, 1), 0, 0);
  rings.advance();
  rings.advance();
  const RingLayout wider = ring_layout(120, 0, 384, 1);
  EXPECT_EQ(Rings(send, recv, wider, 0, rings.place()).send(), send + 128);
  EXPECT_EQ(Rings(send, recv, wider, 0, 384).send(), send);
}

TEST(BuffersTest, AnArenaIsWritableAndMoves) {
  Result<Arena> made = Arena::create(3 * kMega, false);
  ASSERT_TRUE(made.is_ok());
  Arena arena = std::move(*made);
  ASSERT_NE(arena.data(), nullptr);
  arena.data()[0] = 1;
  arena.data()[arena.bytes() - 1] = 2;
  Arena other;
  other = std::move(arena);
  EXPECT_EQ(other.data()[0], 1);
}

TEST(BuffersTest, AnArenaBeyondTheMachineIsAnError) {
  EXPECT_FALSE(Arena::create(size_t{1} << 62, false).is_ok());
}

// The first CPU's cache counted for all. Method: a machine whose second CPU has the larger cache, and a
// folder that is no CPU's.
TEST(BuffersTest, TheLargestCacheOfAnyCpuCounts) {
  const std::filesystem::path cpus = testing::TempDir() + "cpus." + std::to_string(getpid());
  const auto write = [&](const char* cpu, const char* index, const char* size) {
    std::filesystem::create_directories(cpus / cpu / "cache" / index);
    std::ofstream(cpus / cpu / "cache" / index / "size") << size << "\n";
  };
  std::filesystem::create_directories(cpus / "cpufreq");
  EXPECT_EQ(last_level_cache_bytes(cpus), 32 * kMega) << "unknown";
  write("cpu0", "index0", "32K");
  write("cpu0", "index1", "16M");
  write("cpu1", "index0", "32K");
  write("cpu1", "index1", "98304K");
  write("cpu2", "index0", "48K");
  EXPECT_EQ(last_level_cache_bytes(cpus), 96 * kMega);
  std::filesystem::remove_all(cpus);
  EXPECT_EQ(last_level_cache_bytes(cpus), 32 * kMega);
}

TEST(BuffersTest, TheMachineIsRead) {
  EXPECT_GE(last_level_cache_bytes(), 64u * 1024);
  EXPECT_GT(available_memory_bytes(), kMega);
  EXPECT_GT(resident_bytes(), 100u * 1024);
}

}  // namespace
}  // namespace tutti::perf
