// Every algorithm of the registry end to end, forced by TUTTI_ALGORITHM, over rank counts, layouts and counts
// that need several rounds.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "algorithms/algorithm.h"
#include "tests/conformance/trial.h"
#include "tests/support/placements.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

Kind kind_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return Kind::kAllReduce;
    case Collective::kReduce: return Kind::kReduce;
    case Collective::kBroadcast: return Kind::kBroadcast;
    case Collective::kAllGather: return Kind::kAllGather;
    case Collective::kReduceScatter: return Kind::kReduceScatter;
    case Collective::kAllToAll: return Kind::kAllToAll;
    case Collective::kGather: return Kind::kGather;
    case Collective::kScatter: return Kind::kScatter;
    default: return Kind::kBarrier;
  }
}

/// Collectives that have an algorithm of the name, variable ones included.
std::map<std::string, std::vector<Kind>> kinds_by_name() {
  std::map<std::string, std::vector<Kind>> result;
  for (const Algorithm& algorithm : algorithms()) {
    auto& kinds = result[std::string(algorithm.name)];
    kinds.push_back(kind_of(algorithm.collective));
    if (algorithm.uniform_blocks) continue;
    if (algorithm.collective == Collective::kAllGather) kinds.push_back(Kind::kAllGatherV);
    if (algorithm.collective == Collective::kReduceScatter) kinds.push_back(Kind::kReduceScatterV);
    if (algorithm.collective == Collective::kAllToAll) kinds.push_back(Kind::kAllToAllV);
  }
  return result;
}

std::vector<Trial> trials_of(const std::vector<Kind>& kinds, int ranks) {
  // float32: one element, inline, one slot, odd and several rounds, many rounds.
  const std::vector<uint64_t> counts = {1, 13, 1024, 4 * 1024 + 7, 50 * 1024 + 1};
  std::vector<Trial> trials;
  for (const Kind kind : kinds) {
    for (const uint64_t count : counts) {
      for (const bool in_place : {false, true}) {
        Trial trial;
        trial.kind = kind;
        trial.count = count;
        trial.in_place = in_place;
        trial.root = static_cast<int>(trials.size()) % ranks;
        trial.memory = static_cast<Memory>(trials.size() % 3);
        trial.seed = trials.size();
        trials.push_back(trial);
      }
      if (kind == Kind::kBarrier) break;
    }
  }
  return trials;
}

/// Whether the last call ran the algorithm because it was forced.
bool explains(Rank& rank, const std::string& name) {
  char text[512];
  if (!rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain")) return false;
  return std::string(text).find("algorithm " + name + ", by TUTTI_ALGORITHM") != std::string::npos;
}

/// Some algorithms are for powers of two or of their radix only.
bool always_supported(const std::string& name) {
  return name.find("recursive_") != 0;
}

class AlgorithmsTest : public testing::TestWithParam<std::string> {};

// Goal: what the verifier has proved of a plan, the engine does, with the fewest and smallest slots there can
// be. Method: each algorithm is forced; threads, processes and mixed layouts take turns over the rank counts,
// and so do one, two and three threads a rank.
TEST_P(AlgorithmsTest, GivesTheRightResultEndToEnd) {
  const std::vector<Kind> kinds = kinds_by_name()[GetParam()];
  int turn = 0;
  int run = 0;
  for (const int ranks : {2, 3, 4, 5, 8}) {
    const std::vector<Trial> trials = trials_of(kinds, ranks);
    const int chosen = turn++ % 3;
    int place = 0;
    for (const auto& layout : {threads(ranks), processes(ranks), mixed_or_threads(ranks)}) {
      if (place++ != chosen && !full_run()) continue;
      for (const char* reference_bytes : {"512", "1000000000"}) {
        ClusterOptions options;
        options.layout = layout;
        options.seconds = 240;  // eight ranks of several threads, under a sanitizer, on a busy machine
        options.environment = {{"TUTTI_ALGORITHM", GetParam()},
                               {"TUTTI_SLOT_BYTES", "4096"},
                               {"TUTTI_SLOTS", "4"},
                               {"TUTTI_THREADS", std::to_string(1 + run++ % 3)},
                               {"TUTTI_STRIPE_BYTES", "512"},
                               {"TUTTI_REFERENCE_BYTES", reference_bytes}};
        const std::string failures = run_cluster(options, [&](Rank& rank) {
          int used = 0;
          for (const Trial& trial : trials) {
            run_trial(rank, trial);
            used += explains(rank, GetParam()) ? 1 : 0;
          }
          rank.expect_true(used > 0 || !always_supported(GetParam()), GetParam() + " was never chosen");
        });
        EXPECT_EQ(failures, "") << ranks << " ranks, " << layout_name(layout) << ", references from "
                                << reference_bytes;
      }
    }
  }
}

/// Where ranks are, as they find it out from a topology file and from what they are bound to.
struct Topology {
  const char* name;
  std::vector<int> layout;
  std::vector<int> hosts;
  const char* machine;    ///< in words; empty: detected
  bool is_bound = false;  ///< rank r runs on core r % 2
};

const std::vector<Topology> kTopologies = {
    {"two hosts in turns", {1, 1, 1, 1}, {0, 1, 0, 1}, ""},
    {"hosts of different sizes", {2, 1, 2}, {0, 0, 1}, "2 hosts x 2 cores, nic 10 Gbit/s"},
    {"one rank a host", {1, 1, 1}, {0, 1, 2}, "3 hosts x 2 cores, nic 25 Gbit/s, fat tree 2:1, leaf 1 hosts"},
    {"two packages in turns", {1, 2, 1, 1}, {}, "2 packages, 2 cores", true},
    {"packages in hosts", {4, 4}, {0, 1}, "2 hosts x 2 cores, 2 packages, nic 10 Gbit/s", true},
    {"two cards a host", {2, 2}, {0, 1}, "2 hosts x 2 cores, nic 2 x 25 Gbit/s"}};

void bind_to(int core) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(core), &cpus);
  // On a machine of one core the rank stays where it is.
  static_cast<void>(sched_setaffinity(0, sizeof cpus, &cpus));
}

// Goal: the same wherever the ranks are: between emulated hosts, where shared memory and the network carry
// parts of one plan, and between packages, whose ranks form groups. Method: forced as above.
TEST_P(AlgorithmsTest, GivesTheRightResultOnEveryTopology) {
  const auto named = std::ranges::find(algorithms(), std::string_view(GetParam()), &Algorithm::name);
  if (!is_hierarchical(*named) && !follows_order(*named)) GTEST_SKIP() << "does not look at places";
  const std::vector<Kind> kinds = kinds_by_name()[GetParam()];
  for (const Topology& topology : kTopologies) {
    const int ranks = std::accumulate(topology.layout.begin(), topology.layout.end(), 0);
    const std::vector<Trial> trials = trials_of(kinds, ranks);
    ClusterOptions options;
    options.layout = topology.layout;
    options.hosts = topology.hosts;
    options.seconds = 240;
    options.create = false;
    options.environment = {
        {"TUTTI_ALGORITHM", GetParam()}, {"TUTTI_SLOT_BYTES", "4096"}, {"TUTTI_SLOTS", "4"}};
    const std::string file = testing::TempDir() + "/tutti-conformance-" + std::to_string(getpid()) + ".topo";
    if (*topology.machine != '\0') {
      std::ofstream(file) << topology.machine;
      options.environment.emplace_back("TUTTI_TOPOLOGY_FILE", file);
    }
    const std::string failures = run_cluster(options, [&](Rank& rank) {
      if (topology.is_bound) bind_to(rank.rank() % 2);
      const tutti_unique_id_t id = rank.id();
      if (!rank.expect_ok(tutti_comm_create(&rank.comm, ranks, id, rank.rank(), nullptr), "create")) return;
      int used = 0;
      for (const Trial& trial : trials) {
        run_trial(rank, trial);
        used += explains(rank, GetParam()) ? 1 : 0;
      }
      rank.expect_true(used > 0, GetParam() + " was never chosen");
      rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
      rank.comm = nullptr;
    });
    std::remove(file.c_str());
    EXPECT_EQ(failures, "") << topology.name;
  }
}

std::vector<std::string> names() {
  std::set<std::string> all;
  for (const Algorithm& algorithm : algorithms()) {
    if (runs_on_hosts(algorithm)) all.insert(std::string(algorithm.name));
  }
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(Registry, AlgorithmsTest, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti::test
