#include "tools/machine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "topology/file.h"

namespace tutti::tool {

using namespace topology;

namespace {

/// A candidate that takes so many times the best time is not walked to its end.
constexpr double kHopeless = 100;

}  // namespace

Result<Machine> Machine::load(const std::string& file, const std::string& description) {
  auto found = file.empty() ? parse_topology(description) : read_topology(file);
  if (!found) return found.status();
  Machine machine;
  machine.graph_ = std::make_unique<Graph>(std::move(found->graph));
  auto routes = Routes::of(*machine.graph_);
  if (!routes) return routes.status();
  machine.routes_ = std::make_unique<Routes>(std::move(*routes));
  machine.costs_ = usual_costs(*machine.graph_);
  return machine;
}

uint32_t Machine::host_count(uint32_t rank_count) const {
  return routes_->host_of()[std::min<size_t>(rank_count, routes_->ranks().size()) - 1] + 1;
}

Facts Machine::facts(uint32_t rank_count) const {
  Facts facts;
  facts.host_count = host_count(rank_count);
  if (facts.host_count > 1) facts.host_of = std::span(routes_->host_of()).first(rank_count);
  facts.can_publish = facts.host_count == 1 && !on_gpus();
  facts.cores = routes_->hosts()[0].rank_count();
  facts.slots = costs_.slots;
  facts.slot_bytes = costs_.slices.most;
  return facts;
}

Result<std::vector<Candidate>> predict(Machine& machine, const Request& request,
                                       const PredictOptions& options) {
  const Facts facts = machine.facts(request.rank_count);
  std::vector<Candidate> candidates;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Algorithm& algorithm : algorithms()) {
    const auto& names = options.algorithms;
    if (algorithm.collective != request.collective || !algorithm.supports(request, facts)) continue;
    if (!names.empty() && std::ranges::find(names, algorithm.name) == names.end()) continue;
    const PlanMaker maker{.rank_count = request.rank_count,
                          .plan_of = [&](uint32_t rank) { return algorithm.make(request, facts, rank); }};
    auto simulation = simulate(machine.routes(), maker,
                               {.block_bytes = request.block_bytes,
                                .costs = machine.costs(),
                                .trace = options.trace,
                                .most_us = best_us * kHopeless});
    if (simulation.status().code() == Code::kUnsupported) continue;
    if (!simulation) return simulation.status();
    if (!simulation->is_lower_bound) best_us = std::min(best_us, simulation->microseconds);
    candidates.push_back({&algorithm, std::move(*simulation)});
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

double bus_factor(Collective collective, uint32_t rank_count) {
  const double count = rank_count;
  switch (collective) {
    case Collective::kAllReduce: return 2 * (count - 1) / count;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: return (count - 1) / count;
    default: return 1;
  }
}

std::string short_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return format(
      value < 10 && value != static_cast<double>(static_cast<uint64_t>(value)) ? "%.1f%s" : "%.0f%s", value,
      kUnits[unit]);
}

std::string short_time(double microseconds) {
  const bool is_long = microseconds >= 10000;
  const double value = is_long ? microseconds / 1000 : microseconds;
  return format(value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, is_long ? "ms" : "us");
}

}  // namespace tutti::tool
