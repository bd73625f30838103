#include "algorithms/predict.h"

#include <algorithm>
#include <utility>

#include "plan/packets.h"

namespace tutti {
namespace {

/// Those of few steps first: their walks are short, and their times stop the hopeless ones early.
std::vector<Way> order_of(std::vector<Way> ways, const Facts& facts, const Request& request,
                          const PredictOptions& options) {
  const auto is_unwanted = [&names = options.algorithms](const Way& way) {
    return !names.empty() && std::ranges::find(names, way.algorithm->name) == names.end();
  };
  std::erase_if(ways, is_unwanted);
  std::vector<std::pair<size_t, Way>> by_steps;
  for (const Way& way : ways) {
    size_t steps = 0;
    if (way != options.first) {
      for (const Lane& lane : way.algorithm->make(request, facts, 0).lanes) steps += 1 + lane.steps.size();
    }
    by_steps.emplace_back(steps, way);
  }
  std::ranges::stable_sort(by_steps, {}, &std::pair<size_t, Way>::first);
  std::ranges::transform(by_steps, ways.begin(), &std::pair<size_t, Way>::second);
  return ways;
}

/// Plans of all ranks.
std::vector<Plan> plans_of(const Algorithm& algorithm, const Request& request, const Facts& facts) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < request.rank_count; ++rank)
    plans.push_back(algorithm.make(request, facts, rank));
  return plans;
}

uint64_t most_bytes_to_a_peer(std::span<const Plan> plans, const Request& request) {
  uint64_t most = 0;
  for (const Plan& plan : plans) {
    std::vector<uint64_t> chunks(request.rank_count, 0);
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        for (const End& sink : step.sinks) {
          if (sink.kind == EndKind::kLink) chunks[sink.peer] += step.chunk_count;
        }
      }
    }
    const uint64_t chunk_bytes = (request.block_bytes + plan.chunks_per_block - 1) / plan.chunks_per_block;
    most = std::max(most, std::ranges::max(chunks) * chunk_bytes);
  }
  return most;
}

/// Packets carry no parts of a block whose size only some ranks know.
bool can_send_packets(const Request& request, uint64_t packet_bytes_max) {
  return packet_bytes_max > 0 && !request.variable_counts && request.rank_count <= kPacketRanksMax &&
         request.block_bytes / request.rank_count <= packet_bytes_max;
}

/// The costs and bytes of packets in place of those of links.
topology::SimulateOptions options_of(const PricedMachine& machine, const Facts& facts, const Request& request,
                                     const PredictOptions& options, bool by_packets) {
  topology::SimulateOptions result{.block_bytes = request.block_bytes,
                                   .costs = machine.costs,
                                   .places = machine.places,
                                   .host_of = facts.host_of,
                                   .trace = options.trace,
                                   .steps_max = options.steps_max,
                                   .slices_max = options.slices_max,
                                   .repeated_slices = options.repeated_slices};
  if (!by_packets) return result;
  const uint64_t data = data_of_packet(reduces(request.collective), type_bytes(request.type));
  result.costs = topology::packet_costs();
  result.block_bytes = (request.block_bytes * kWholePacketBytes + data - 1) / data;
  return result;
}

}  // namespace

std::string name_of(const Way& way) {
  return std::string(way.algorithm->name) + (way.by_packets ? " by packets" : "");
}

std::vector<Way> ways_of(const Request& request, const Facts& facts, uint64_t packet_bytes_max) {
  std::vector<Way> ways;
  const bool has_packets = can_send_packets(request, packet_bytes_max);
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != request.collective || !algorithm.supports(request, facts)) continue;
    ways.push_back({&algorithm, false});
    if (!has_packets) continue;
    const std::vector<Plan> plans = plans_of(algorithm, request, facts);
    if (std::ranges::all_of(plans, suits_packets) && most_bytes_to_a_peer(plans, request) <= packet_bytes_max)
      ways.push_back({&algorithm, true});
  }
  return ways;
}

uint64_t most_bytes_to_a_peer(const Algorithm& algorithm, const Request& request, const Facts& facts) {
  return most_bytes_to_a_peer(plans_of(algorithm, request, facts), request);
}

Result<std::vector<Candidate>> predict(const PricedMachine& machine, const Facts& facts,
                                       const Request& request, const PredictOptions& options) {
  std::vector<Way> ways(options.ways.begin(), options.ways.end());
  if (ways.empty()) ways = ways_of(request, facts, options.packet_bytes_max);
  std::vector<Candidate> candidates;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Way& way : order_of(std::move(ways), facts, request, options)) {
    const PlanMaker maker{.rank_count = request.rank_count, .plan_of = [&](uint32_t rank) {
                            return way.algorithm->make(request, facts, rank);
                          }};
    auto wanted = options_of(machine, facts, request, options, way.by_packets);
    wanted.most_us = best_us * options.hopeless;
    auto simulation = topology::simulate(machine.routes, maker, wanted);
    if (!simulation) return simulation.status();
    if (!simulation->is_lower_bound) best_us = std::min(best_us, simulation->microseconds);
    candidates.push_back({way, std::move(*simulation)});
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
