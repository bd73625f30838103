// A list schedule: of all steps that are ready, the one that was ready first runs next, on the core that is
// free. Cores without work sleep until a step of their host becomes ready, so the work is near linear in the
// number of steps.
#include "plan/price.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "plan/fold.h"
#include "plan/price_graph.h"
#include "plan/shape.h"

namespace tutti {
namespace {

/// Steps of all ranks of a candidate that is walked; the walk takes about half a microsecond a step.
constexpr uint64_t kMaxCandidateSteps = uint64_t{1} << 23;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

bool is_valid(const Costs& costs) {
  return costs.step_overhead_us >= 0 && costs.link_latency_us >= 0 && costs.network_overhead_us >= 0 &&
         costs.network_latency_us >= 0 && costs.switch_us >= 0 && costs.link_bytes_per_us > 0 &&
         costs.network_bytes_per_us > 0 && costs.memory_bytes_per_us > 0 && costs.cores > 0;
}

class Schedule {
 public:
  Schedule(const PriceGraph& graph, const Costs& costs, double most_us)
      : graph_(graph),
        costs_(costs),
        most_us_(most_us),
        ready_(graph.rank_count()),
        core_of_(graph.rank_count(), kNone),
        ready_us_(graph.step_count(), 0),
        depth_(graph.step_count(), 0),
        missing_(graph.waits()) {
    for (uint32_t rank = 0; rank < graph.rank_count(); ++rank) {
      const uint32_t host = graph.host_of(rank);
      if (host >= hosts_.size()) hosts_.resize(host + 1);
      if (hosts_[host].ranks++ >= costs.cores) continue;
      hosts_[host].cores.push_back(static_cast<uint32_t>(cores_.size()));
      cores_.push_back({.host = host});
    }
  }

  /// Errors: kInvalidArgument: the plans deadlock.
  Result<Price> run() {
    for (uint32_t step = 0; step < missing_.size(); ++step) {
      if (missing_[step] == 0) add_ready(step);
    }
    left_ = missing_.size();
    while (!wakes_.empty() || !arrivals_.empty()) {
      if (price_.microseconds > most_us_)
        return Price{.microseconds = price_.microseconds, .is_lower_bound = true};
      // A message that arrives now may be what the core waits for.
      if (wakes_.empty() || (!arrivals_.empty() && arrivals_.top().first <= wakes_.top().first)) {
        take_arrival();
      } else {
        take_wake();
      }
    }
    if (left_ > 0) return Status(Code::kInvalidArgument, "the plans deadlock: steps are left that wait");
    return price_;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// When, and what: a step, a rank, a core or a message.
  using Ready = std::pair<double, uint32_t>;
  template <class T>
  using Earliest = std::priority_queue<T, std::vector<T>, std::greater<>>;

  struct Core {
    uint32_t host = 0;
    double free_us = 0;
    double wakes_us = kNever;  ///< its entry in wakes_ that counts
    uint32_t rank = kNone;     ///< that ran last
  };
  /// On its way between hosts.
  struct Message {
    double transfer_us = 0;
    uint32_t follower = 0;  ///< the step that waits for the message
    uint32_t depth = 0;     ///< steps on the longest chain that ends with the message
  };
  struct Host {
    uint32_t ranks = 0;
    std::vector<uint32_t> cores;
    std::set<Ready> waiting;  ///< ranks that have a step and no core
    double out_free_us = 0;   ///< when the network has taken what was sent
    double in_free_us = 0;    ///< when it has brought what was sent
  };

  void take_wake() {
    const auto [time_us, index] = wakes_.top();
    wakes_.pop();
    Core& core = cores_[index];
    if (core.wakes_us != time_us) return;
    core.wakes_us = kNever;
    core.free_us = std::max(core.free_us, time_us);
    if (!has_work(core)) change_rank(core, index);
    if (!has_work(core)) return sleep(core, index);
    run_step(core);
    wake(index, core.free_us);
  }

  /// The first byte of a message has reached its host, whose network brings messages one after the other.
  void take_arrival() {
    const auto [time_us, message] = arrivals_.top();
    arrivals_.pop();
    const Message& arrived = messages_[message];
    Host& receiver = hosts_[graph_.host_of(graph_.rank_of(arrived.follower))];
    receiver.in_free_us = std::max(time_us, receiver.in_free_us) + arrived.transfer_us;
    fulfill(arrived.follower, receiver.in_free_us, arrived.depth);
  }

  /// The core looks for work at that time, unless it does so earlier.
  void wake(uint32_t index, double time_us) {
    Core& core = cores_[index];
    time_us = std::max(time_us, core.free_us);
    if (time_us >= core.wakes_us) return;
    core.wakes_us = time_us;
    wakes_.push({time_us, index});
  }

  /// Until the next step that is known becomes ready; a step that becomes ready later wakes the core.
  void sleep(const Core& core, uint32_t index) {
    double next_us = kNever;
    const std::set<Ready>& waiting = hosts_[core.host].waiting;
    if (!waiting.empty()) next_us = waiting.begin()->first;
    if (core.rank != kNone && !ready_[core.rank].empty())
      next_us = std::min(next_us, ready_[core.rank].top().first);
    if (next_us != kNever) wake(index, next_us);
  }

  /// A message leaves its host, whose network takes messages one after the other.
  void send(Host& sender, double now_us, uint64_t bytes, uint32_t follower, uint32_t depth) {
    const double transfer_us = static_cast<double>(bytes) / costs_.network_bytes_per_us;
    const double begin_us = std::max(now_us, sender.out_free_us);
    sender.out_free_us = begin_us + transfer_us;
    arrivals_.push({begin_us + costs_.network_latency_us, static_cast<uint32_t>(messages_.size())});
    messages_.push_back({.transfer_us = transfer_us, .follower = follower, .depth = depth});
  }

  /// One of the things that the step waits for has happened, at the end of a chain of `depth` steps.
  void fulfill(uint32_t step, double us, uint32_t depth) {
    ready_us_[step] = std::max(ready_us_[step], us);
    depth_[step] = std::max(depth_[step], depth);
    if (--missing_[step] == 0) add_ready(step);
  }

  void add_ready(uint32_t step) {
    const uint32_t rank = graph_.rank_of(step);
    stop_waiting(rank);
    ready_[rank].push({ready_us_[step], step});
    start_waiting(rank);
    const double us = ready_[rank].top().first;
    if (core_of_[rank] != kNone) return wake(core_of_[rank], us);
    for (const uint32_t core : hosts_[graph_.host_of(rank)].cores) wake(core, us);
  }

  void stop_waiting(uint32_t rank) {
    if (core_of_[rank] == kNone && !ready_[rank].empty())
      hosts_[graph_.host_of(rank)].waiting.erase({ready_[rank].top().first, rank});
  }
  void start_waiting(uint32_t rank) {
    if (core_of_[rank] == kNone && !ready_[rank].empty())
      hosts_[graph_.host_of(rank)].waiting.insert({ready_[rank].top().first, rank});
  }

  /// Whether the core's rank has a step to run now.
  bool has_work(const Core& core) const {
    return core.rank != kNone && !ready_[core.rank].empty() && ready_[core.rank].top().first <= core.free_us;
  }

  /// Gives the core to the rank of its host that has waited longest, if one waits by now.
  void change_rank(Core& core, uint32_t index) {
    const Host& host = hosts_[core.host];
    if (host.waiting.empty() || host.waiting.begin()->first > core.free_us) return;
    const uint32_t rank = host.waiting.begin()->second;
    stop_waiting(rank);
    core_of_[rank] = index;
    if (core.rank != kNone) {
      core_of_[core.rank] = kNone;
      start_waiting(core.rank);
      if (host.ranks > costs_.cores) core.free_us += costs_.switch_us;
    }
    core.rank = rank;
  }

  void run_step(Core& core) {
    const uint32_t step = ready_[core.rank].top().second;
    ready_[core.rank].pop();
    core.free_us += graph_.duration_us(step);
    price_.microseconds = std::max(price_.microseconds, core.free_us);
    const uint32_t depth = depth_[step] + 1;
    for (const PriceGraph::Follower follower : graph_.followers(step)) {
      if (follower.way == PriceGraph::Way::kNetwork) {
        send(hosts_[core.host], core.free_us, graph_.message_bytes(step), follower.step, depth);
      } else {
        const double latency_us = follower.way == PriceGraph::Way::kLink ? costs_.link_latency_us : 0;
        fulfill(follower.step, core.free_us + latency_us, depth);
      }
    }
    --left_;
    price_.critical_steps = std::max(price_.critical_steps, depth);
  }

  const PriceGraph& graph_;
  const Costs& costs_;
  const double most_us_;
  std::vector<Host> hosts_;
  std::vector<Core> cores_;
  Earliest<Ready> wakes_;     ///< cores, when they look for work
  Earliest<Ready> arrivals_;  ///< messages, when their first bytes reach their hosts
  std::vector<Message> messages_;
  size_t left_ = 0;  ///< steps that have not run
  /// By rank: its steps that only wait for the rank, the first to become so on top.
  std::vector<Earliest<Ready>> ready_;
  std::vector<uint32_t> core_of_;  ///< by rank; kNone: it has none
  std::vector<double> ready_us_;   ///< of what has happened so far, by step
  std::vector<uint32_t> depth_;    ///< steps on the longest chain before this one
  std::vector<uint32_t> missing_;  ///< predecessors that have not run
  Price price_;
};

Status check(const Costs& costs, size_t rank_count) {
  if (!is_valid(costs))
    return {Code::kInvalidArgument, "a cost is negative, or a bandwidth or the cores are 0"};
  const bool fits = costs.host_of.size() == rank_count &&
                    std::ranges::all_of(costs.host_of, [&](uint32_t host) { return host < rank_count; });
  if (costs.host_of.empty() || fits) return Status::ok();
  return {Code::kInvalidArgument, format("host_of must hold the hosts, from 0, of %zu ranks", rank_count)};
}

Result<Price> price_graph(PriceGraph& graph, const Costs& costs, uint32_t copies, double most_us) {
  TUTTI_TRY(graph.finish());
  auto price = Schedule(graph, costs, most_us).run();
  TUTTI_TRY(price.status());
  if (price->is_lower_bound) return price;
  price->link_bytes = graph.link_bytes() * copies;
  price->network_bytes = graph.network_bytes() * copies;
  price->memory_bytes = graph.memory_bytes() * copies;
  return price;
}

/// What can be said of plans from those of the first host's ranks.
struct Estimate {
  double least_us = 0;
  uint64_t steps = 0;  ///< of all ranks, if the others have as many
};

/// A rank runs one step at a time, a host's cores share its ranks' work, and the messages of a host leave it
/// one after the other.
Result<Estimate> estimate(const PlanMaker& maker, uint64_t block_bytes, const Costs& costs) {
  uint32_t ranks = 1;
  while (ranks < costs.host_of.size() && costs.host_of[ranks] == costs.host_of[0]) ++ranks;
  PriceGraph graph(maker.rank_count, ranks, block_bytes, costs);
  for (uint32_t rank = 0; rank < ranks; ++rank) TUTTI_TRY(graph.add(maker.plan_of(rank)));
  std::vector<double> busy_us(ranks, 0);
  double all_us = 0;
  for (uint32_t step = 0; step < graph.step_count(); ++step) {
    busy_us[graph.rank_of(step)] += graph.duration_us(step);
    all_us += graph.duration_us(step);
  }
  const double sent_us = static_cast<double>(graph.network_bytes()) / costs.network_bytes_per_us;
  return Estimate{.least_us = std::max({*std::ranges::max_element(busy_us), all_us / costs.cores, sent_us}),
                  .steps = uint64_t{graph.step_count()} * maker.rank_count / ranks};
}

Result<Price> price_within(const PlanMaker& maker, uint64_t block_bytes, const Costs& costs,
                           const PriceLimits& limits, const Estimate& estimate) {
  const Price least{.microseconds = estimate.least_us, .is_lower_bound = true};
  if (estimate.least_us > limits.microseconds) return least;
  const uint32_t host_size = ranks_per_host(costs.host_of);
  std::vector<Plan> first_host;
  const std::optional<HostShift> shift = find_shift(maker, host_size, first_host);
  if (!shift && estimate.steps > limits.steps) return least;
  const uint32_t ranks = shift ? host_size : maker.rank_count;
  PriceGraph graph(maker.rank_count, ranks, block_bytes, costs, shift.value_or(HostShift::kAdd));
  for (uint32_t rank = 0; rank < ranks; ++rank)
    TUTTI_TRY(graph.add(rank < first_host.size() ? std::move(first_host[rank]) : maker.plan_of(rank)));
  return price_graph(graph, costs, maker.rank_count / ranks, limits.microseconds);
}

}  // namespace

Result<Price> price_plans(std::span<const Plan> plans, uint64_t block_bytes, const Costs& costs) {
  TUTTI_TRY(check_shape(plans, ShapeLimits::none()));
  TUTTI_TRY(check(costs, plans.size()));
  PriceGraph graph(static_cast<uint32_t>(plans.size()), static_cast<uint32_t>(plans.size()), block_bytes,
                   costs);
  for (const Plan& plan : plans) TUTTI_TRY(graph.add(plan));
  return price_graph(graph, costs, 1, PriceLimits{}.microseconds);
}

Result<Price> price_plans(const PlanMaker& maker, uint64_t block_bytes, const Costs& costs,
                          const PriceLimits& limits) {
  TUTTI_TRY(check(costs, maker.rank_count));
  const auto sample = estimate(maker, block_bytes, costs);
  TUTTI_TRY(sample.status());
  return price_within(maker, block_bytes, costs, limits, *sample);
}

Result<std::vector<Price>> price_candidates(std::span<const PlanMaker> makers, uint64_t block_bytes,
                                            const Costs& costs) {
  std::vector<Estimate> estimates;
  for (const PlanMaker& maker : makers) {
    TUTTI_TRY(check(costs, maker.rank_count));
    const auto sample = estimate(maker, block_bytes, costs);
    TUTTI_TRY(sample.status());
    estimates.push_back(*sample);
  }
  std::vector<size_t> order(makers.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return estimates[i].least_us; });
  // The candidate with the least bound comes first, so that the others lose early.
  std::vector<Price> prices(makers.size());
  PriceLimits limits{.steps = kMaxCandidateSteps};
  for (const size_t i : order) {
    const auto price = price_within(makers[i], block_bytes, costs, limits, estimates[i]);
    TUTTI_TRY(price.status());
    prices[i] = *price;
    if (!price->is_lower_bound) limits.microseconds = std::min(limits.microseconds, price->microseconds);
  }
  return prices;
}

}  // namespace tutti
