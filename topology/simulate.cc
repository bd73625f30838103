#include "topology/simulate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "topology/events.h"
#include "topology/walk.h"

namespace tutti::topology {
namespace {

/// The first rounds fill pipelines and slots; the rounds after them take equally long. A tree of 72 GPUs is 7
/// % too fast if 12 rounds are walked, and 1 % with 64.
constexpr uint32_t kRoundsMax = 64;
constexpr uint32_t kRoundsMin = 2;
constexpr size_t kBusiestShown = 4;
/// With more steps than this of all ranks, one host stands for all even if hosts send in different orders.
constexpr uint64_t kStepsWalkedWhole = uint64_t{1} << 22;
/// In plans with more steps than this, all stripes of a GPU are one group.
constexpr uint64_t kStepsInGroups = uint64_t{1} << 14;
constexpr uint64_t kCallsMax = 256;
constexpr uint64_t kCallsMin = 4;

/// The number of stripes of a call. A stripe has a block for each lane.
uint32_t stripes_of(uint64_t bytes, size_t lanes, const RankCosts& costs) {
  const uint64_t most = std::max<uint64_t>(1, costs.stripes_max / std::max<size_t>(1, lanes));
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / costs.stripe_bytes, 1, most));
}

/// How many ranks stand for all, and how the others differ. Only hosts of one shape, each with all its ranks,
/// can be folded.
std::optional<HostShift> find_fold(const Routes& routes, const PlanMaker& maker, bool is_long,
                                   std::vector<Plan>& first_host) {
  const auto& hosts = routes.hosts();
  const uint32_t size = hosts[0].rank_count();
  const size_t used = maker.rank_count / size;
  if (used < 4 || used > hosts.size() || maker.rank_count % size != 0) return std::nullopt;
  for (size_t host = 0; host < used; ++host) {
    if (hosts[host].shape != hosts[0].shape) return std::nullopt;
  }
  const auto shift = find_shift(maker, size, first_host);
  return shift || !is_long ? shift : find_shift(maker, size, first_host, Likeness::kMessages);
}

WalkCut cut_of(const Walk& walk, uint32_t stripes, const SimulateOptions& options) {
  const RankCosts& costs = options.costs;
  WalkCut cut{.stripes = stripes};
  const uint64_t chunk = (walk.largest_chunk_bytes() + stripes - 1) / stripes;
  cut.rounds = Rounds::of(chunk, costs.slots, walk.slots_needed(), costs.slices);
  uint64_t slices = 0;  // of a full round
  for (const WalkStep& step : walk.steps()) slices += cut.of(step, 0).count;
  const uint64_t affordable =
      std::max<uint64_t>(kRoundsMin, options.slices_max / std::max<uint64_t>(1, slices));
  cut.walked_rounds = static_cast<uint32_t>(std::min<uint64_t>({cut.rounds.count, affordable, kRoundsMax}));
  const uint64_t all = slices * cut.walked_rounds;
  cut.slices_in_one = static_cast<uint32_t>((all + options.slices_max - 1) / options.slices_max);
  return cut;
}

/// How many calls to walk: the first ones fill the slots.
uint32_t calls_of(const Walk& walk, const WalkCut& cut, const SimulateOptions& options) {
  if (!options.costs.is_measured() || options.trace || cut.walked_rounds < cut.rounds.count) return 1;
  uint64_t slices = 1;
  for (uint32_t round = 0; round < cut.walked_rounds; ++round) {
    for (const WalkStep& step : walk.steps()) slices += cut.of(step, round).count;
  }
  const uint64_t calls = std::min(kCallsMax, options.repeated_slices / slices);
  return static_cast<uint32_t>(calls < kCallsMin ? 1 : calls);
}

/// Sums what happened on the longest chain of spans, by kind.
class Chain {
 public:
  Chain(const Walk& walk, Events& events, double call_us) : walk_(walk), events_(events), call_us_(call_us) {}

  /// Spans of rounds from `steady` on count `times` times.
  std::vector<Share> shares(uint32_t steady, double times) {
    const auto& spans = events_.spans();
    if (spans.empty()) return {};
    const auto last = std::ranges::max_element(spans, {}, [](const Span& span) { return span.end_us; });
    for (auto at = static_cast<uint32_t>(last - spans.begin()); at != kNoSpan; at = spans[at].cause) {
      const double weight = spans[at].round >= steady ? times : 1;
      add_span(at, weight);
      if (spans[at].cause == kNoSpan) add(Share::Kind::kCall, "the call itself", call_us_, 1);
    }
    std::vector<Share> result;
    for (auto& [what, share] : by_kind_) {
      if (share.microseconds > 0) result.push_back(std::move(share));
    }
    std::ranges::sort(result, std::greater<>(), &Share::microseconds);
    return result;
  }

 private:
  void add(Share::Kind kind, const std::string& what, double us, double weight) {
    Share& share = by_kind_[what];
    share.kind = kind;
    share.what = what;
    share.microseconds += us * weight;
    share.count += us > 0 ? static_cast<uint64_t>(weight) : 0;
  }

  void add_span(uint32_t number, double weight) {
    const Span& span = events_.spans()[number];
    const Reason& reason = events_.reasons()[number];
    double moves_us = span.end_us - span.start_us - reason.own_fixed_us;
    add(Share::Kind::kSteps, "fixed cost of steps", reason.own_fixed_us, weight);
    if (reason.own_server == UINT32_MAX && moves_us > 0) {
      add(Share::Kind::kBytes, "bytes that cores move", moves_us, weight);
    } else {
      add_server(reason.own_server, moves_us, reason.own_queued_us, weight);
    }
    if (span.cause == kNoSpan) return;
    double gap_us = span.start_us - events_.spans()[span.cause].end_us;
    if (gap_us <= 0) return;
    const double latency_us = std::min(gap_us, reason.latency_us);
    add(Share::Kind::kLatency, "latency of messages", latency_us, weight);
    add_server(reason.server, gap_us - latency_us, reason.queued_us, weight);
  }

  void add_server(uint32_t number, double us, double queued_us, double weight) {
    if (us <= 0) return;
    if (number == UINT32_MAX) return add(Share::Kind::kWaiting, "waiting", us, weight);
    const double waits_us = std::min(us, queued_us);
    const auto [known, is_new] = names_.try_emplace(number);
    if (is_new) {
      std::string& example = example_[walk_.kind_of(number)];
      if (example.empty()) example = walk_.name_of(number);
      known->second = walk_.kind_of(number) + " (as " + example + ")";
    }
    add(Share::Kind::kWaiting, "waiting for " + known->second, waits_us, weight);
    add(Share::Kind::kBytes, "bytes over " + known->second, us - waits_us, weight);
  }

  const Walk& walk_;
  Events& events_;
  double call_us_;
  std::map<std::string, Share> by_kind_;
  std::map<uint32_t, std::string> names_;
  std::map<std::string, std::string> example_;
};

std::vector<LinkUse> busiest(const Walk& walk, const Events& events, double times) {
  std::vector<uint32_t> order(walk.servers().size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t shown = std::min(order.size(), kBusiestShown);
  std::ranges::partial_sort(order, order.begin() + static_cast<ptrdiff_t>(shown), std::greater<>(),
                            [&](uint32_t server) { return events.busy_us(server); });
  std::vector<LinkUse> result;
  for (size_t i = 0; i < shown && events.busy_us(order[i]) > 0; ++i) {
    LinkUse& use = result.emplace_back();
    use = {.what = walk.name_of(order[i]),
           .busy_us = events.busy_us(order[i]) * times,
           .bytes = static_cast<uint64_t>(events.bytes_of(order[i]) * times),
           .alike = 0};
    for (const uint32_t other : order) {
      if (2 * events.bytes_of(other) >= events.bytes_of(order[i]) && walk.are_of_one_kind(other, order[i]))
        ++use.alike;
    }
  }
  return result;
}

/// Without walking: a rank runs its steps one after the other, or at least as many at once as it has lanes.
Simulation least(const Walk& walk, const RankCosts& costs) {
  double us = 0;
  uint64_t steps = 0;
  for (const WalkLane& lane : walk.lanes()) {
    steps = std::max<uint64_t>(steps, lane.step_count);
    double bytes = 0;
    for (uint32_t i = 0; i < lane.step_count; ++i) {
      const WalkStep& step = walk.steps()[lane.first_step + i];
      bytes +=
          static_cast<double>(step.bytes) * std::max({1, int{step.memory_reads}, int{step.memory_writes}});
    }
    double us_per_byte = 0;
    for (const Hop& hop : walk.memory_to(lane))
      us_per_byte = std::max(us_per_byte, walk.servers()[hop.server].us_per_byte);
    us = std::max(us, bytes * us_per_byte);
  }
  return {.microseconds = costs.call_us + std::max(us, static_cast<double>(steps) * costs.step_us),
          .is_lower_bound = true};
}

void conclude(const Walk& walk, Events& events, const WalkCut& cut, uint32_t calls,
              const SimulateOptions& options, Simulation& result) {
  result.microseconds = events.end_us();
  const uint32_t first = calls / 2;
  if (calls > 1 && !events.was_stopped())
    result.microseconds = (events.call_end_us(calls - 1) - events.call_end_us(first - 1)) / (calls - first);
  result.walked_slices = events.slice_count();
  result.rounds = cut.rounds.count;
  result.walked_rounds = cut.walked_rounds;
  result.is_lower_bound = events.was_stopped();
  const uint32_t walked = cut.walked_rounds;
  uint32_t steady = walked;
  double times = 1;  // that a steady round counts
  double ratio = 1.0 / calls;
  if (cut.rounds.count > walked && !result.is_lower_bound) {
    steady = walked / 2;
    const double chunk = static_cast<double>(walk.largest_chunk_bytes()) / static_cast<double>(cut.stripes);
    const double rounds = chunk / static_cast<double>(cut.rounds.round_bytes);
    const double round_us =
        (events.round_end_us(walked - 1) - events.round_end_us(steady - 1)) / (walked - steady);
    result.microseconds += (rounds - walked) * round_us;
    times = 1 + (rounds - walked) / (walked - steady);
    ratio = rounds / walked;
  }
  result.busiest = busiest(walk, events, ratio);
  if (!options.trace) return;
  result.shares = Chain(walk, events, options.costs.call_us).shares(steady, times);
  double sum_us = 0;
  for (const Share& share : result.shares) sum_us += share.microseconds;
  for (Share& share : result.shares) share.microseconds *= sum_us > 0 ? result.microseconds / sum_us : 0;
  result.spans = std::move(events.spans());
}

}  // namespace

Result<Simulation> simulate(Routes& routes, const PlanMaker& maker, const SimulateOptions& options) {
  RankCosts costs = options.costs;
  if (costs.is_measured()) costs.call_us = static_cast<double>(costs.measured.call_ns.value) / 1000;
  if (maker.rank_count == 0) return Status(Code::kInvalidArgument, "no ranks");
  if (!options.places.empty() && options.places.size() != maker.rank_count)
    return Status(Code::kInvalidArgument, "places of another number of ranks");
  if (options.places.empty() && maker.rank_count > routes.ranks().size() &&
      (costs.on_gpu() || routes.hosts().size() > 1)) {
    return Status(Code::kInvalidArgument, format("%u ranks, but the machine has places for %zu",
                                                 maker.rank_count, routes.ranks().size()));
  }
  std::vector<Plan> first_plans;
  first_plans.push_back(maker.plan_of(0));
  const Collective collective = first_plans[0].collective;
  const uint32_t blocks =
      std::max(input_blocks(collective, maker.rank_count), output_blocks(collective, maker.rank_count));
  const uint32_t stripes = stripes_of(options.block_bytes * blocks, first_plans[0].lanes.size(), costs);
  WalkOptions walk_options{.rank_count = maker.rank_count,
                           .ranks = 1,
                           .shift = std::nullopt,
                           .block_bytes = options.block_bytes,
                           .stripe_bytes_per_us = costs.stripe_bytes_per_us,
                           .stripes = stripes,
                           .by_reference = options.by_reference,
                           .places = options.places,
                           .host_of = options.host_of};
  uint64_t steps = 0;
  for (const Lane& lane : first_plans[0].lanes) steps += lane.steps.size();
  const bool is_long = steps * maker.rank_count > std::min(options.steps_max, kStepsWalkedWhole);
  // Where even one host is too long, nobody needs to know whether it stands for all.
  const bool may_fold =
      options.fold && options.places.empty() && steps * routes.hosts()[0].rank_count() <= options.steps_max;
  const auto shift = may_fold ? find_fold(routes, maker, is_long, first_plans) : std::nullopt;
  const uint32_t ranks = shift ? routes.hosts()[0].rank_count() : maker.rank_count;
  if (steps * ranks > options.steps_max) {
    Walk walk(routes, walk_options);
    TUTTI_TRY(walk.add(first_plans[0]));
    return least(walk, costs);
  }
  walk_options.ranks = ranks;
  walk_options.shift = shift;
  if (costs.on_gpu() && steps * ranks <= kStepsInGroups)
    walk_options.groups = std::min(stripes, Walk::kGroupsMax);
  Walk walk(routes, walk_options);
  for (uint32_t rank = 0; rank < ranks; ++rank)
    TUTTI_TRY(walk.add(rank < first_plans.size() ? std::move(first_plans[rank]) : maker.plan_of(rank)));
  TUTTI_TRY(walk.finish());
  const WalkCut cut = cut_of(walk, stripes, options);
  const uint32_t calls = calls_of(walk, cut, options);
  Events events(walk, cut,
                {.costs = costs, .trace = options.trace, .most_us = options.most_us * calls, .calls = calls});
  TUTTI_TRY(events.run());
  Simulation result{.walked_ranks = ranks,
                    .network_bytes = walk.network_bytes() * (maker.rank_count / ranks)};
  conclude(walk, events, cut, calls, options, result);
  return result;
}

}  // namespace tutti::topology
