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

}  // namespace

Result<std::vector<Candidate>> predict(const PricedMachine& machine, const Facts& facts,
                                       const Request& request, const PredictOptions& options) {
  std::vector<const Algorithm*> order;
  if (options.first != nullptr && is_wanted(*options.first, facts, request, options))
    order.push_back(options.first);
  for (const Algorithm& algorithm : algorithms()) {
    if (&algorithm != options.first && is_wanted(algorithm, facts, request, options))
      order.push_back(&algorithm);
  }
  std::vector<Candidate> candidates;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Algorithm* algorithm : order) {
    const PlanMaker maker{.rank_count = request.rank_count,
                          .plan_of = [&](uint32_t rank) { return algorithm->make(request, facts, rank); }};
    auto simulation = topology::simulate(machine.routes, maker,
                                         {.block_bytes = request.block_bytes,
                                          .costs = machine.costs,
                                          .places = machine.places,
                                          .trace = options.trace,
                                          .steps_max = options.steps_max,
                                          .slices_max = options.slices_max,
                                          .repeated_slices = options.repeated_slices,
                                          .most_us = best_us * options.hopeless});
    if (!simulation) return simulation.status();
    if (!simulation->is_lower_bound) best_us = std::min(best_us, simulation->microseconds);
    candidates.push_back({algorithm, std::move(*simulation)});
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& candidate) {
    return std::pair(candidate.simulation.is_lower_bound, candidate.simulation.microseconds);
  });
  return candidates;
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
