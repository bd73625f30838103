// Goal: over every transport, the engine's results are those of the definition, for every collective and
// algorithm. Method: the workload of the simulated tests, between 2 to 4 ranks of one thread.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "tests/sim/workload.h"
#include "tests/support/scope.h"
#include "tests/transports/mesh.h"

namespace tutti::test {
namespace {

class MeshCluster final : public RankSet {
 public:
  MeshCluster(const SimOptions& options, const TransportCase& under_test)
      : random_(options.seed),
        mesh_(under_test, {.rank_count = options.rank_count,
                           .shape = {.slots = options.slots, .slot_bytes = options.slot_bytes}}),
        ranks_(options.rank_count) {}

  LinkTable& links(uint32_t rank) override { return mesh_.links(rank); }
  void set_operation(uint32_t rank, std::unique_ptr<Operation> operation) override {
    ranks_[rank] = {.operation = std::move(operation)};
  }
  Operation& operation(uint32_t rank) override { return *ranks_[rank].operation; }
  void restart(uint32_t rank) override { ranks_[rank].done = false; }
  bool has_begun(uint32_t rank) const override { return ranks_[rank].begun; }

  /// Runs until all ranks are done; what went wrong, or empty.
  std::string run(Workload& workload) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    for (uint64_t idle = 0; !workload.complete() && workload.failure().empty();) {
      const auto rank = static_cast<uint32_t>(random_.below(ranks_.size()));
      idle = take_turn(rank, workload) ? 0 : idle + 1;
      if (idle > 1000 && now_ns() > deadline_ns) return "nothing happens any more";
      for (uint32_t peer = 0; peer < ranks_.size(); ++peer) {
        if (peer == rank) continue;
        const Status& status = mesh_.side(rank, peer).connection().status();
        if (!status.is_ok()) return std::string(status.text());
      }
    }
    return workload.failure();
  }

 private:
  struct Rank {
    std::unique_ptr<Operation> operation;
    bool begun = false;
    bool done = false;
  };

  /// What a blocking call does in a turn: the engine advances, then the transport. The call ends when all
  /// connections are drained.
  bool take_turn(uint32_t number, Workload& workload) {
    Rank& rank = ranks_[number];
    if (rank.done) return false;  // it computes, and connections nothing
    rank.begun = true;
    const Progress progress = rank.operation->advance(1);
    bool moved = progress == Progress::kMoved;
    moved |= mesh_.transport(number).progress();
    bool drained = true;
    for (uint32_t peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != number) drained = drained && mesh_.side(number, peer).connection().drained();
    }
    if (progress != Progress::kDone || !drained) return moved;
    rank.done = true;
    workload.on_done(*this, number);
    return true;
  }

  SimRandom random_;
  Mesh mesh_;
  std::vector<Rank> ranks_;
};

struct Case {
  uint64_t block_bytes;
  uint32_t slot_bytes;
  Carriage carriage;
};

std::string run_case(const TransportCase& under_test, const Algorithm& algorithm, uint32_t ranks,
                     const Case& at) {
  RunSpec spec;
  spec.algorithm = &algorithm;
  spec.request = {.collective = algorithm.collective,
                  .rank_count = ranks,
                  .root = ranks - 1,
                  .block_bytes = algorithm.collective == Collective::kBarrier ? 4 : at.block_bytes,
                  .type = DataType::kUint32,
                  .op = ReduceOp::kSum};
  spec.facts = {.can_publish = false, .slots = 4, .slot_bytes = at.slot_bytes};
  if (is_hierarchical(algorithm)) {
    // The first host has the odd rank.
    spec.placement = std::make_shared<const Placement>(place_contiguous({ranks - ranks / 2, ranks / 2}));
    spec.facts.host_count = spec.placement->host_count;
    spec.facts.host_of = spec.placement->host_of;
  }
  spec.sim = {.rank_count = ranks, .seed = 5 + ranks, .slots = 8, .slot_bytes = at.slot_bytes};
  spec.carriage = at.carriage;
  spec.iterations = 4;
  if (!algorithm.supports(spec.request, spec.facts)) return {};
  MeshCluster cluster(spec.sim, under_test);
  Workload workload(spec);
  workload.start(cluster);
  const std::string failure = cluster.run(workload);
  return failure.empty() ? failure : describe(spec) + ": " + failure;
}

class AlgorithmsTest : public testing::TestWithParam<size_t> {};

TEST_P(AlgorithmsTest, EveryAlgorithmGivesTheRightResult) {
  const TransportCase& under_test = transport_cases()[GetParam()];
  const Case cases[] = {{8, 1024, Carriage::kSlot},
                        {30'004, 1024, Carriage::kSlot},
                        {30'000, 1024, Carriage::kReference},
                        {200'000, 16384, Carriage::kReference}};
  for (const Algorithm& algorithm : algorithms()) {
    for (const uint32_t ranks : {2u, 3u, 4u}) {
      for (const Case& at : cases) {
        if (!full_run() && ranks == 3 && at.block_bytes > 100'000) continue;
        ASSERT_EQ(run_case(under_test, algorithm, ranks, at), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, AlgorithmsTest, testing::Range<size_t>(0, transport_cases().size()),
                         [](const auto& one) { return transport_cases()[one.param].name; });

}  // namespace
}  // namespace tutti::test
