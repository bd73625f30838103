// Microbenchmark of the steps between a call and its bytes: look up the algorithm, make and bind this rank's
// plan, prove and price it, find it again.
//
// A communicator looks up, makes and binds once for each shape of call. Later calls cost `repeated call` or
// `other call` (one rank, so that no peer adds time). tutti-plan and the tests prove and price all ranks'
// plans.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/choice.h"
#include "engine/geometry.h"
#include "engine/operation.h"
#include "plan/price.h"
#include "plan/verify.h"
#include "tests/engine/raw_links.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

const std::vector<std::pair<std::string, Request>>& requests() {
  static const std::vector<std::pair<std::string, Request>> kRequests = [] {
    std::vector<std::pair<std::string, Request>> made;
    for (const uint32_t ranks : {2u, 8u, 64u}) {
      for (const uint64_t bytes : {uint64_t{8}, uint64_t{1} << 20}) {
        Request request{.collective = Collective::kAllReduce, .rank_count = ranks, .block_bytes = bytes};
        made.emplace_back("/ranks:" + std::to_string(ranks) + "/bytes:" + std::to_string(bytes), request);
      }
    }
    return made;
  }();
  return kRequests;
}

std::vector<Plan> all_plans(const Request& request, const Facts& facts) {
  const Algorithm* algorithm = ChoiceTable::built_in().choose(request, facts);
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
    plans.push_back(algorithm->make(request, facts, rank));
  }
  return plans;
}

void look_up(benchmark::State& state, const Request& request) {
  const Facts facts;
  for (auto _ : state) benchmark::DoNotOptimize(ChoiceTable::built_in().choose(request, facts));
}

void make(benchmark::State& state, const Request& request) {
  const Facts facts;
  const Algorithm* algorithm = ChoiceTable::built_in().choose(request, facts);
  for (auto _ : state) benchmark::DoNotOptimize(algorithm->make(request, facts, request.rank_count / 2));
}

void bind(benchmark::State& state, const Request& request) {
  const Facts facts;
  const uint32_t rank = request.rank_count / 2;
  const Plan plan = ChoiceTable::built_in().choose(request, facts)->make(request, facts, rank);
  const Geometry geometry = Geometry::uniform(plan, request.block_bytes);
  test::RawNetwork network(RingShape{});
  test::RawLinks links(network, rank);
  const BindOptions options{.message_bytes = request.block_bytes};
  for (auto _ : state) benchmark::DoNotOptimize(Operation::bind(plan, geometry, options, links));
}

void prove(benchmark::State& state, const Request& request) {
  const Facts facts;
  const std::vector<Plan> plans = all_plans(request, facts);
  for (auto _ : state) benchmark::DoNotOptimize(verify_plans(plans));
}

void price_all(benchmark::State& state, const Request& request) {
  const Facts facts;
  const std::vector<Plan> plans = all_plans(request, facts);
  for (auto _ : state) benchmark::DoNotOptimize(price_plans(plans, request.block_bytes));
}

/// A communicator of one rank.
class Alone {
 public:
  Alone() {
    tutti_unique_id_t id;
    check(tutti_get_unique_id(&id));
    check(tutti_comm_create(&comm_, 1, id, 0, nullptr));
  }
  ~Alone() { check(tutti_comm_destroy(comm_)); }
  void all_reduce(size_t count) {
    check(tutti_all_reduce(input_, output_, count, TUTTI_FLOAT32, TUTTI_SUM, comm_, TUTTI_BLOCKING));
  }

 private:
  static void check(tutti_result_t result) {
    if (result == TUTTI_SUCCESS) return;
    std::fprintf(stderr, "%s\n", tutti_last_error());
    std::exit(1);
  }
  tutti_comm_t* comm_ = nullptr;
  float input_[16] = {};
  float output_[16] = {};
};

void repeated_call(benchmark::State& state) {
  Alone rank;
  for (auto _ : state) rank.all_reduce(2);
}

/// Alternates between shapes, so that no call equals the one before.
void other_call(benchmark::State& state) {
  Alone rank;
  size_t count = 0;
  for (auto _ : state) rank.all_reduce(1 + (count++ & 7));
}

void register_all() {
  for (const auto& [name, request] : requests()) {
    benchmark::RegisterBenchmark(("look_up" + name).c_str(), look_up, request);
    benchmark::RegisterBenchmark(("make" + name).c_str(), make, request);
    benchmark::RegisterBenchmark(("bind" + name).c_str(), bind, request);
    benchmark::RegisterBenchmark(("prove" + name).c_str(), prove, request)->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("price" + name).c_str(), price_all, request)->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("repeated_call", repeated_call);
  benchmark::RegisterBenchmark("other_call", other_call);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tutti::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
