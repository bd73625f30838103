#include "tools/machine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/packets.h"
#include "topology/file.h"
#include "transports/shm/segment.h"
#include "transports/tcp/tcp_transport.h"

namespace tutti::tool {

using namespace topology;

namespace {
constexpr uint32_t kMostMulticastRanks = 16;  // as cuda::kMaxMulticastRanks
}  // namespace

Result<Machine> Machine::load(const std::string& file, const std::string& description) {
  auto found = file.empty() ? parse_topology(description) : read_topology(file);
  if (!found) return found.status();
  return of(std::move(found->graph));
}

Result<Machine> Machine::of(Graph graph, RanksAre ranks) {
  Machine machine;
  machine.graph_ = std::make_unique<Graph>(std::move(graph));
  auto routes = Routes::of(*machine.graph_, ranks);
  if (!routes) return routes.status();
  machine.routes_ = std::make_unique<Routes>(std::move(*routes));
  machine.costs_ = usual_costs(ranks == RanksAre::kGpus && !machine.graph_->of_kind(NodeKind::kGpu).empty());
  machine.costs_.measured = machine.graph_->slices();
  if (!machine.on_gpus()) machine.corrections_ = Corrections(machine.graph_->calls());
  return machine;
}

uint32_t Machine::host_count(uint32_t rank_count) const {
  return routes_->host_of()[std::min<size_t>(rank_count, routes_->ranks().size()) - 1] + 1;
}

uint64_t Machine::packet_bytes_max(const Request& request) const {
  const uint32_t ranks = request.rank_count;
  const bool has_mail = on_gpus() && ranks > 1 && ranks <= kPacketRanksMax && host_count(ranks) == 1;
  return has_mail ? tutti::packet_bytes_max(request) : 0;
}

RankCosts Machine::costs(uint32_t rank_count, uint32_t emulated_hosts) const {
  RankCosts costs = costs_;
  if (costs.is_measured()) costs.slots = usual_slots(rank_count);
  if (emulated_hosts == rank_count && rank_count > 1) {
    const uint64_t slot_bytes = tcp::kTcpTraits.slot_bytes;
    costs.slices = {.least = slot_bytes, .most = slot_bytes};
  }
  const bool own_cores =
      emulated_hosts == 1 && host_count(rank_count) == 1 && rank_count <= routes_->hosts()[0].rank_count();
  if (costs.is_measured() && own_cores)
    costs.slices.wide_slots = SegmentShape{.slots = costs.slots, .has_wide_slots = true}.wide_slots();
  return costs;
}

/// As in the library: ranks that share cores, or are on devices of several hosts, have no orders and levels.
Placement Machine::arrange(std::vector<uint32_t> places) const {
  const auto ranks = static_cast<uint32_t>(places.size());
  if (ranks > rank_count()) return {};
  if (!on_gpus()) return arrange_ranks(*routes_, std::move(places));
  return host_count(ranks) == 1 ? arrange_devices(*routes_, std::move(places)) : Placement();
}

Facts Machine::facts(uint32_t rank_count, uint32_t emulated_hosts) {
  auto placement = placements_.find(rank_count);
  if (placement == placements_.end()) {
    std::vector<uint32_t> places(rank_count);
    std::iota(places.begin(), places.end(), 0u);
    placement = placements_.emplace(rank_count, arrange(std::move(places))).first;
  }
  Facts facts;
  facts.host_count = host_count(rank_count);
  if (facts.host_count > 1) facts.host_of = std::span(routes_->host_of()).first(rank_count);
  facts.can_publish = facts.host_count == 1 && !on_gpus();
  facts.can_multicast =
      has_multicast_ && facts.host_count == 1 && rank_count > 1 && rank_count <= kMostMulticastRanks;
  facts.levels = placement->second.levels;
  facts.order = placement->second.order;
  facts.cores = routes_->hosts()[0].rank_count();
  facts.slots = costs_.is_measured() ? usual_slots(rank_count) / 2
                : on_gpus()          ? costs_.slots / 2
                                     : costs_.slots;
  facts.slot_bytes = costs(rank_count, emulated_hosts).slices.most;
  if (emulated_hosts == 1) return facts;
  auto& host_of = emulated_host_of_[{rank_count, emulated_hosts}];
  host_of.clear();
  for (uint32_t rank = 0; rank < rank_count; ++rank) host_of.push_back(emulated_hosts * rank / rank_count);
  facts.host_count = emulated_hosts;
  facts.host_of = host_of;
  facts.are_containers = true;
  facts.can_publish = false;
  facts.levels = {};
  facts.order = {};
  return facts;
}

namespace {

Result<std::vector<Candidate>> predict_uncorrected(Machine& machine, const Request& request,
                                                   const PredictOptions& options, uint32_t emulated_hosts) {
  return predict(
      PricedMachine{.routes = machine.routes(), .costs = machine.costs(request.rank_count, emulated_hosts)},
      machine.facts(request.rank_count, emulated_hosts), request, options);
}

/// What the trials took, as predicted.
double predict_trial(Machine& machine, const TriedCall& call, uint64_t bytes) {
  const Request request{.collective = call.collective,
                        .rank_count = call.ranks,
                        .block_bytes = block_bytes_of(call.collective, call.ranks, bytes)};
  const auto found = predict_uncorrected(
      machine, request, {.algorithms = {call.algorithm}, .repeated_slices = kRepeatedSlices}, call.hosts);
  const bool is_known = found && !found->empty() && !found->front().simulation.is_lower_bound;
  return is_known ? found->front().simulation.microseconds : 0;
}

void correct(Machine& machine, const Request& request, uint32_t emulated_hosts,
             std::vector<Candidate>& candidates) {
  for (Candidate& candidate : candidates) {
    const double factor = machine.corrections().factor(
        {request.collective, request.rank_count, emulated_hosts, std::string(candidate.way.algorithm->name)},
        message_bytes(request),
        [&](const TriedCall& call, uint64_t bytes) { return predict_trial(machine, call, bytes); });
    candidate.simulation.microseconds *= factor;
    for (Share& share : candidate.simulation.shares) share.microseconds *= factor;
  }
  sort_by_time(candidates);
}

}  // namespace

Result<std::vector<Candidate>> predict(Machine& machine, const Request& request,
                                       const PredictOptions& options, uint32_t emulated_hosts) {
  auto candidates = predict_uncorrected(machine, request, options, emulated_hosts);
  if (candidates && machine.corrections().are_known() && machine.host_count(request.rank_count) == 1)
    correct(machine, request, emulated_hosts, *candidates);
  return candidates;
}

LibraryChoice choice_of_library(Machine& machine, const Request& request) {
  const Facts facts = machine.facts(request.rank_count);
  const uint64_t packet_bytes = machine.packet_bytes_max(request);
  LibraryChoice choice{.by_table = choose_by_table(ChoiceTable::built_in(), request, facts, packet_bytes)};
  choice.way = choice.by_table.way;
  choice.by_price = machine.on_gpus() && facts.host_count == 1 && choice.by_table.is_estimate;
  if (!choice.by_price) return choice;
  PricedChoice prices({.routes = machine.routes(), .costs = machine.costs(request.rank_count)});
  choice.way = prices.choose(request, facts, choice.way, packet_bytes).way;
  return choice;
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
