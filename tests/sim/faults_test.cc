// Goal: a fault never gives a wrong result in silence and never blocks anybody but those who depend on it.
// Method: the algorithms over the sim transport with a rank that stops at every one of its messages and
// turns, with a torn link, a slow rank, withheld credits, and a rank that came with another call.
// Expectation: whoever completes has the right data (Workload checks it), whoever waits does so because of
// the rank that stopped, and when that rank goes on after all, everybody completes.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "tests/sim/specs.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// A cluster with a workload, bound and started.
struct Scene {
  explicit Scene(const RunSpec& spec, uint32_t disagreeing_rank = UINT32_MAX)
      : cluster(spec.sim), workload(spec) {
    workload.disagree(disagreeing_rank);
    workload.start(cluster);
  }
  std::vector<Outcome> go() {
    return cluster.run([this](uint32_t rank) { workload.on_done(cluster, rank); });
  }

  SimCluster cluster;
  Workload workload;
};

/// Whether a plan of this run has one lane on every rank, so that a rank waits for exactly one peer.
bool has_single_lanes(const RunSpec& spec) {
  for (uint32_t rank = 0; rank < spec.request.rank_count; ++rank) {
    if (spec.algorithm->make(spec.request, spec.facts, rank).lanes.size() != 1) return false;
  }
  return true;
}

class SimFaultTest : public testing::TestWithParam<const Algorithm*> {
 protected:
  /// Runs that the algorithm supports, of few ranks and a size that needs several messages a link.
  std::vector<RunSpec> small_runs(uint32_t salt) const {
    std::vector<RunSpec> specs;
    for (const uint32_t ranks : {2u, 3u, 4u, 5u, 8u}) {
      if (ranks == 8 && !full_run()) continue;
      for (uint64_t repeat = 0; repeat < (full_run() ? 20u : 2u); ++repeat) {
        const Size size = repeat % 2 == 0 ? Size::kOdd : Size::kAllSlots;
        RunSpec spec =
            make_spec(*GetParam(), {.rank_count = ranks,
                                    .size = size,
                                    .seed = run_seed(base_seed() + repeat, *GetParam(), ranks, salt),
                                    .iterations = 1});
        if (spec.sim.slots > 4) spec.sim.slots = 4;
        spec.facts.slots = spec.sim.slots / 2;
        spec.request.block_bytes = std::min<uint64_t>(spec.request.block_bytes, 4ull * spec.sim.slot_bytes);
        if (supported(spec)) specs.push_back(spec);
      }
    }
    return specs;
  }

  /// One stop of one rank: nothing wrong, no circle among the survivors, and all is well once the rank goes
  /// on. What was wrong; `complete`: everybody was done in spite of the stop.
  std::string stop_and_revive(const RunSpec& spec, uint32_t rank, bool by_messages, uint64_t count,
                              bool& complete) {
    Scene run(spec);
    if (by_messages) {
      run.cluster.network().stop_rank_after_messages(rank, count);
    } else {
      run.cluster.network().stop_rank_after_turns(rank, count);
    }
    const std::string what =
        describe(spec) + format(", rank %u stops after %llu %s: ", rank,
                                static_cast<unsigned long long>(count), by_messages ? "messages" : "turns");
    const std::vector<Outcome> outcomes = run.go();
    if (!run.workload.failure().empty()) return what + run.workload.failure();
    complete = !run.cluster.network().stopped(rank) && all_done(outcomes);
    if (has_single_lanes(spec) && !waits_lead_to_stopped(outcomes)) return what + describe(outcomes);
    run.cluster.network().revive_rank(rank);
    const std::vector<Outcome> after = run.go();
    if (!run.workload.failure().empty()) return what + "revived: " + run.workload.failure();
    if (!all_done(after)) return what + "revived: " + describe(after);
    return {};
  }
};

TEST_P(SimFaultTest, ALostPeerAtAnyStepGivesNoWrongResultAndNoOtherDeadlock) {
  for (const RunSpec& spec : small_runs(1)) {
    for (uint32_t rank = 0; rank < spec.request.rank_count; ++rank) {
      for (const bool by_messages : {true, false}) {
        bool complete = false;
        for (uint64_t count = 0; !complete; ++count) {
          ASSERT_EQ(stop_and_revive(spec, rank, by_messages, count, complete), "") << replay_command();
          ASSERT_LT(count, 10000u) << "the rank never got to its end: " << describe(spec);
        }
      }
    }
  }
}

TEST_P(SimFaultTest, ATornLinkGivesNoWrongResult) {
  for (const RunSpec& spec : small_runs(2)) {
    const uint32_t ranks = spec.request.rank_count;
    for (uint32_t writer = 0; writer < ranks; ++writer) {
      const uint32_t reader = (writer + 1) % ranks;
      for (uint64_t messages = 0; messages < 3; ++messages) {
        Scene run(spec);
        run.cluster.network().tear_link(writer, reader, 0, messages);
        const std::vector<Outcome> outcomes = run.go();
        ASSERT_EQ(run.workload.failure(), "") << describe(spec) << "\n" << replay_command();
        for (const Outcome& outcome : outcomes) {
          ASSERT_TRUE(outcome.end == Ending::kDone || outcome.end == Ending::kWaiting)
              << describe(spec) << ": " << describe(outcomes) << "\n"
              << replay_command();
        }
      }
    }
  }
}

TEST_P(SimFaultTest, ASlowRankAndWithheldCreditsOnlyTakeTime) {
  for (RunSpec spec : small_runs(3)) {
    spec.iterations = 3;
    spec.sim.slots = 2;
    spec.facts.slots = 1;
    spec.sim.stall_ticks = 3000;
    spec.sim.stall_one_in = 3;
    if (!supported(spec)) continue;
    Scene run(spec);
    run.cluster.network().slow_rank(static_cast<uint32_t>(spec.sim.seed % spec.request.rank_count), 200);
    const std::vector<Outcome> outcomes = run.go();
    ASSERT_EQ(run.workload.failure(), "") << describe(spec) << "\n" << replay_command();
    ASSERT_TRUE(run.workload.complete()) << describe(spec) << ": " << describe(outcomes) << "\n"
                                         << replay_command();
  }
}

TEST_P(SimFaultTest, ARankWithAnotherCallIsFoundByItsFirstMessage) {
  for (const RunSpec& spec : small_runs(4)) {
    for (uint32_t odd = 0; odd < spec.request.rank_count; ++odd) {
      Scene run(spec, odd);
      const std::vector<Outcome> outcomes = run.go();
      ASSERT_EQ(run.workload.failure(), "") << describe(spec) << "\n" << replay_command();
      bool found = false;
      for (uint32_t rank = 0; rank < outcomes.size(); ++rank) {
        if (outcomes[rank].end != Ending::kMismatch) continue;
        found = true;
        // Nobody blames two ranks that agree.
        ASSERT_TRUE(rank == odd || outcomes[rank].peer == odd)
            << describe(spec) << ": " << describe(outcomes) << "\n"
            << replay_command();
      }
      ASSERT_TRUE(found) << describe(spec) << ", rank " << odd << ": " << describe(outcomes) << "\n"
                         << replay_command();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimFaultTest, testing::ValuesIn(all_algorithms()),
                         [](const auto& tested) { return test_name(*tested.param); });

}  // namespace
}  // namespace tutti::test
