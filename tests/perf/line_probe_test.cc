// The line probe between ranks that do not end their calls together.
#include "perf/line_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "core/cpu.h"
#include "tools/meeting.h"

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kRounds = 20;
/// What rank 1 still has to do when rank 0 has ended. Several times the patience of the probe.
constexpr std::chrono::milliseconds kLate{20};

/// Whether rank 0 has found a line in some round: rank 1 may find its core busy. No value: there is no probe.
std::optional<bool> finds_line(int rank, uint32_t core, const tutti_unique_id_t& id, const Site& site) {
  EXPECT_TRUE(tool::run_on(core));
  tutti_comm_t* comm = nullptr;
  EXPECT_EQ(tutti_comm_create(&comm, kRanks, id, rank, nullptr), TUTTI_SUCCESS);
  if (comm == nullptr) return false;
  std::vector<char> memory(Agreement::memory_bytes(kRanks));
  Agreement agreement(kRanks);
  agreement.add(site, comm, memory.data());
  std::optional<bool> is_found;
  const auto probe = LineProbe::make(agreement, rank);
  EXPECT_TRUE(probe) << probe.status().text();
  if (probe && *probe) is_found = false;
  for (int round = 0; is_found && round < kRounds; ++round) {
    const auto end = Clock::now() + kLate;
    while (rank == 1 && Clock::now() < end) {
    }
    const auto line_ns = (*probe)->measure();
    EXPECT_TRUE(line_ns) << line_ns.status().text();
    is_found = *is_found || (line_ns && (*line_ns)[1] > 0);
  }
  EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_SUCCESS);
  return is_found;
}

// Goal: the root of a chain, which is calls ahead of the next rank, still learns where the cores are. Method:
// rank 1 comes later than the probe has patience for.
TEST(LineProbeTest, WaitsForALateRank) {
  std::vector<uint32_t> cores;
  const CpuSet cpus = usable_cpus();
  for (uint32_t core = 0; core < cpus.size(); ++core)
    if (cpus.test(core)) cores.push_back(core);
  if (cores.size() < kRanks) GTEST_SKIP() << "one core";
  tutti_unique_id_t id;
  ASSERT_EQ(tutti_get_unique_id(&id), TUTTI_SUCCESS);
  const auto site = open_host_site(false);
  const auto other_site = open_host_site(false);
  ASSERT_TRUE(site && other_site);
  std::optional<bool> is_found;
  std::thread other([&] { (void)finds_line(1, cores[1], id, **other_site); });
  std::thread first([&] { is_found = finds_line(0, cores[0], id, **site); });
  first.join();
  other.join();
  if (!is_found) GTEST_SKIP() << "the system gives ranks no page to share";
  EXPECT_TRUE(*is_found);
}

}  // namespace
}  // namespace tutti::perf
