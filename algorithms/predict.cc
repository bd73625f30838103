#include "algorithms/predict.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

bool is_wanted(const Algorithm& algorithm, const Facts& facts, const Request& request,
               const PredictOptions& options) {
  const auto& names = options.algorithms;
  return algorithm.collective == request.collective && algorithm.supports(request, facts) &&
         (names.empty() || std::ranges::find(names, algorithm.name) != names.end());
}

/// Those of few steps first: their walks are short, and their times stop the hopeless ones early.
std::vector<const Algorithm*> candidates_of(const Facts& facts, const Request& request,
                                            const PredictOptions& options) {
  std::vector<std::pair<size_t, const Algorithm*>> by_steps;
  for (const Algorithm& algorithm : algorithms()) {
    if (!is_wanted(algorithm, facts, request, options)) continue;
    size_t steps = 0;
    if (&algorithm != options.first) {
      for (const Lane& lane : algorithm.make(request, facts, 0).lanes) steps += 1 + lane.steps.size();
    }
    by_steps.emplace_back(steps, &algorithm);
  }
  std::ranges::stable_sort(by_steps, {}, &std::pair<size_t, const Algorithm*>::first);
  std::vector<const Algorithm*> order;
  for (const auto& [steps, algorithm] : by_steps) order.push_back(algorithm);
  return order;
}

}  // namespace

Result<std::vector<Candidate>> predict(const PricedMachine& machine, const Facts& facts,
                                       const Request& request, const PredictOptions& options) {
  std::vector<Candidate> candidates;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Algorithm* algorithm : candidates_of(facts, request, options)) {
    const PlanMaker maker{.rank_count = request.rank_count,
                          .plan_of = [&](uint32_t rank) { return algorithm->make(request, facts, rank); }};
    auto simulation = topology::simulate(machine.routes, maker,
                                         {.block_bytes = request.block_bytes,
                                          .costs = machine.costs,
                                          .places = machine.places,
                                          .host_of = facts.host_of,
                                          .trace = options.trace,
                                          .steps_max = options.steps_max,
                                          .slices_max = options.slices_max,
                                          .repeated_slices = options.repeated_slices,
                                          .most_us = best_us * options.hopeless});
    if (!simulation) return simulation.status();
    if (!simulation->is_lower_bound) best_us = std::min(best_us, simulation->microseconds);
    candidates.push_back({algorithm, std::move(*simulation)});
  }
  sort_by_time(candidates);
  return candidates;
}

void sort_by_time(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, {}, [](const Candidate& candidate) {
    return std::pair(candidate.simulation.is_lower_bound, candidate.simulation.microseconds);
  });
}

uint64_t block_bytes_of(Collective collective, uint32_t rank_count, uint64_t bytes) {
  if (collective == Collective::kBarrier) return 0;
  return bytes / std::max(input_blocks(collective, rank_count), output_blocks(collective, rank_count));
}

uint64_t message_bytes(const Request& request) {
  const uint64_t blocks = std::max(input_blocks(request.collective, request.rank_count),
                                   output_blocks(request.collective, request.rank_count));
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  return request.block_bytes > most / blocks ? most : request.block_bytes * blocks;
}

}  // namespace tutti
