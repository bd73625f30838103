// The line probe between ranks that do not end their calls together.
#include "perf/line_probe.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kRounds = 20;
/// What rank 1 still has to do when rank 0 has ended. Several times the patience of the probe.
constexpr std::chrono::milliseconds kLate{20};

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void bind(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
}

/// Whether rank 0 has found a line in some round: rank 1 may find its core busy.
bool finds_line(int rank, int core, tutti_unique_id_t id) {
  bind(core);
  tutti_comm_t* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&comm, kRanks, id, rank, nullptr), TUTTI_SUCCESS);
  auto site = open_host_site(false);
  EXPECT_TRUE(site);
  if (comm == nullptr || !site) return false;
  std::vector<char> memory(Agreement::memory_bytes(kRanks));
  Agreement agreement(kRanks);
  agreement.add(**site, comm, memory.data());
  auto probe = LineProbe::make(agreement, rank);
  EXPECT_TRUE(probe) << probe.status().text();
  bool is_found = false;
  for (int round = 0; probe && *probe && round < kRounds; ++round) {
    const auto end = Clock::now() + kLate;
    while (rank == 1 && Clock::now() < end) {
    }
    const auto line_ns = (*probe)->measure(agreement);
    EXPECT_TRUE(line_ns) << line_ns.status().text();
    is_found = is_found || (line_ns && (*line_ns)[1] > 0);
  }
  EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_SUCCESS);
  return is_found;
}

// Goal: the root of a chain, which is calls ahead of the next rank, still learns where the cores are. Method:
// rank 1 comes later than the probe has patience for.
TEST(LineProbeTest, WaitsForALateRank) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < kRanks) GTEST_SKIP() << "one core";
  tutti_unique_id_t id;
  ASSERT_EQ(tutti_get_unique_id(&id), TUTTI_SUCCESS);
  std::thread other([&] { (void)finds_line(1, cores[1], id); });
  bool is_found = false;
  std::thread first([&] { is_found = finds_line(0, cores[0], id); });
  first.join();
  other.join();
  EXPECT_TRUE(is_found);
}

}  // namespace
}  // namespace tutti::perf
