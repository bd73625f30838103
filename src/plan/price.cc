// A list schedule: of all steps that are ready, the one that was ready first runs next, on the core that is
// free.
#include "plan/price.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "plan/graph.h"
#include "plan/shape.h"

namespace tutti {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

bool is_valid(const Costs& costs) {
  return costs.step_overhead_us >= 0 && costs.link_latency_us >= 0 && costs.network_overhead_us >= 0 &&
         costs.network_latency_us >= 0 && costs.switch_us >= 0 && costs.link_bytes_per_us > 0 &&
         costs.network_bytes_per_us > 0 && costs.memory_bytes_per_us > 0 && costs.cores > 0;
}

class Schedule {
 public:
  Schedule(std::span<const Plan> plans, const PlanGraph& graph, uint64_t block_bytes, const Costs& costs)
      : plan_(plans[0]),
        graph_(graph),
        block_bytes_(block_bytes),
        costs_(costs),
        ready_(plans.size()),
        on_core_(plans.size(), 0),
        ready_us_(graph.events().size(), 0),
        depth_(graph.events().size(), 0),
        missing_(graph.events().size(), 0) {
    for (uint32_t rank = 0; rank < plans.size(); ++rank) {
      if (host_of(rank) >= hosts_.size()) hosts_.resize(host_of(rank) + 1);
      Host& host = hosts_[host_of(rank)];
      if (host.ranks++ < costs.cores) cores_.push_back({.host = host_of(rank)});
    }
  }

  Price run() {
    find_followers();
    for (uint32_t event = 0; event < missing_.size(); ++event) {
      if (missing_[event] == 0) add_ready(event);
    }
    for (size_t left = missing_.size(); left > 0;) {
      Core& core = next_core();
      if (!has_work(core)) change_rank(core);
      if (!has_work(core)) continue;
      run_step(core);
      --left;
    }
    return price_;
  }

 private:
  /// When, and what (an event; in waiting a rank).
  using Ready = std::pair<double, uint32_t>;

  struct Core {
    uint32_t host = 0;
    double free_us = 0;
    uint32_t rank = kNone;  ///< that ran last
  };
  struct Host {
    uint32_t ranks = 0;
    std::set<Ready> waiting;  ///< ranks that have a step and no core
    double out_free_us = 0;   ///< when the network has taken what was sent
    double in_free_us = 0;    ///< when it has brought what was sent
  };

  uint32_t host_of(uint32_t rank) const { return costs_.host_of.empty() ? 0 : costs_.host_of[rank]; }

  /// Turns "waits for" around, to learn which steps become ready.
  void find_followers() {
    const auto for_each_wait = [&](const auto& body) {
      for (uint32_t event = 0; event < missing_.size(); ++event) {
        if (event > graph_.lane_begin(graph_.events()[event].lane)) body(event - 1, event);
        for (const GraphMessage& message : graph_.received(event)) body(message.sender, event);
      }
    };
    followers_first_.assign(missing_.size() + 1, 0);
    for_each_wait([&](uint32_t before, uint32_t after) {
      ++followers_first_[before + 1];
      ++missing_[after];
    });
    for (size_t i = 1; i < followers_first_.size(); ++i) followers_first_[i] += followers_first_[i - 1];
    followers_.resize(followers_first_.back());
    std::vector<uint32_t> place(followers_first_.begin(), followers_first_.end() - 1);
    for_each_wait([&](uint32_t before, uint32_t after) { followers_[place[before]++] = after; });
  }

  /// When a message of `bytes` arrives that is sent now.
  double arrival(uint32_t from, uint32_t to, double now_us, uint64_t bytes) {
    if (host_of(from) == host_of(to)) return now_us + costs_.link_latency_us;
    Host& sender = hosts_[host_of(from)];
    Host& receiver = hosts_[host_of(to)];
    const double begin_us = std::max({now_us, sender.out_free_us, receiver.in_free_us});
    const double end_us = begin_us + static_cast<double>(bytes) / costs_.network_bytes_per_us;
    sender.out_free_us = receiver.in_free_us = end_us;
    price_.network_bytes += bytes;
    return end_us + costs_.network_latency_us;
  }

  void add_ready(uint32_t event) {
    const uint32_t rank = graph_.events()[event].rank;
    stop_waiting(rank);
    ready_[rank].push({ready_us_[event], event});
    start_waiting(rank);
  }

  std::set<Ready>& waiting_beside(uint32_t rank) { return hosts_[host_of(rank)].waiting; }
  void stop_waiting(uint32_t rank) {
    if (!on_core_[rank] && !ready_[rank].empty())
      waiting_beside(rank).erase({ready_[rank].top().first, rank});
  }
  void start_waiting(uint32_t rank) {
    if (!on_core_[rank] && !ready_[rank].empty())
      waiting_beside(rank).insert({ready_[rank].top().first, rank});
  }

  /// The core that is free first; of several, one that has something to do now, for it may make work for the
  /// others.
  Core& next_core() {
    const auto free_us = [](const Core& core) { return core.free_us; };
    Core& first = *std::ranges::min_element(cores_, {}, free_us);
    for (Core& core : cores_) {
      if (core.free_us == first.free_us && (has_work(core) || has_waiting(core))) return core;
    }
    return first;
  }

  /// Whether a rank of the core's host waits for a core by now.
  bool has_waiting(const Core& core) const {
    const std::set<Ready>& waiting = hosts_[core.host].waiting;
    return !waiting.empty() && waiting.begin()->first <= core.free_us;
  }

  /// Whether the core's rank has a step to run now.
  bool has_work(const Core& core) const {
    return core.rank != kNone && !ready_[core.rank].empty() && ready_[core.rank].top().first <= core.free_us;
  }

  /// Gives the core to the rank of its host that has waited longest; if none waits, lets time pass until
  /// something happens.
  void change_rank(Core& core) {
    const Host& host = hosts_[core.host];
    if (has_waiting(core)) {
      const uint32_t rank = host.waiting.begin()->second;
      stop_waiting(rank);
      on_core_[rank] = 1;
      if (core.rank != kNone) {
        on_core_[core.rank] = 0;
        start_waiting(core.rank);
        if (host.ranks > costs_.cores) core.free_us += costs_.switch_us;
      }
      core.rank = rank;
      return;
    }
    core.free_us = next_moment(core.free_us);
  }

  /// When something happens next, anywhere.
  double next_moment(double now_us) const {
    double next_us = std::numeric_limits<double>::max();
    const auto consider = [&](double us) {
      if (us > now_us) next_us = std::min(next_us, us);
    };
    for (const Host& host : hosts_) {
      if (!host.waiting.empty()) consider(host.waiting.begin()->first);
    }
    for (const Core& core : cores_) {
      consider(core.free_us);
      if (core.rank != kNone && !ready_[core.rank].empty()) consider(ready_[core.rank].top().first);
    }
    return next_us;
  }

  void run_step(Core& core) {
    const uint32_t event = ready_[core.rank].top().second;
    ready_[core.rank].pop();
    const uint64_t bytes = step_bytes(event);
    core.free_us += duration(event, bytes);
    price_.microseconds = std::max(price_.microseconds, core.free_us);
    for (uint32_t i = followers_first_[event]; i < followers_first_[event + 1]; ++i) {
      const uint32_t follower = followers_[i];
      const uint32_t rank = graph_.events()[follower].rank;
      const bool is_message = rank != core.rank;
      const double us = is_message ? arrival(core.rank, rank, core.free_us, bytes) : core.free_us;
      ready_us_[follower] = std::max(ready_us_[follower], us);
      depth_[follower] = std::max(depth_[follower], depth_[event] + 1);
      if (--missing_[follower] == 0) add_ready(follower);
    }
    price_.critical_steps = std::max(price_.critical_steps, depth_[event] + 1);
  }

  uint64_t step_bytes(uint32_t event) const {
    const Step& step = *graph_.events()[event].step;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < step.chunk_count; ++k) bytes += chunk_bytes(step.first_chunk + k);
    return bytes;
  }

  double duration(uint32_t event, uint64_t bytes) {
    const Step& step = *graph_.events()[event].step;
    // What is collected is reduced on its way: once its size arrives.
    const auto arrives = [](const End& end) {
      return end.kind == EndKind::kLink || end.kind == EndKind::kCollect;
    };
    const uint64_t arrived = bytes * static_cast<uint64_t>(std::ranges::count_if(step.sources, arrives));
    const uint64_t touched = bytes * (step.sources.size() + step.sinks.size()) - arrived;
    price_.link_bytes += arrived;
    price_.memory_bytes += touched;
    const double overhead_us =
        costs_.step_overhead_us + costs_.network_overhead_us * static_cast<double>(network_messages(event));
    return overhead_us + static_cast<double>(touched) / costs_.memory_bytes_per_us +
           static_cast<double>(arrived) / costs_.link_bytes_per_us;
  }

  /// How many messages the step sends to and receives from other hosts.
  size_t network_messages(uint32_t event) const {
    const auto is_far = [&](uint32_t peer) { return host_of(peer) != host_of(graph_.events()[event].rank); };
    const auto sent = std::ranges::count_if(graph_.sent(event),
                                            [&](uint32_t link) { return is_far(graph_.links()[link].to); });
    const auto received = std::ranges::count_if(graph_.received(event), [&](const GraphMessage& message) {
      return is_far(graph_.events()[message.sender].rank);
    });
    return static_cast<size_t>(sent + received);
  }

  uint64_t chunk_bytes(uint32_t chunk) const {
    const uint64_t cut = plan_.chunks_per_block;
    const uint64_t index = chunk % cut;
    return block_bytes_ / cut + (index < block_bytes_ % cut ? 1 : 0);
  }

  const Plan& plan_;
  const PlanGraph& graph_;
  uint64_t block_bytes_;
  const Costs& costs_;
  std::vector<Host> hosts_;
  std::vector<Core> cores_;
  /// By rank: its steps that only wait for the rank, the first to become so on top.
  std::vector<std::priority_queue<Ready, std::vector<Ready>, std::greater<>>> ready_;
  std::vector<char> on_core_;      ///< by rank
  std::vector<double> ready_us_;   ///< of what has happened so far, by event
  std::vector<uint32_t> depth_;    ///< steps on the longest chain before this one
  std::vector<uint32_t> missing_;  ///< predecessors that have not run
  std::vector<uint32_t> followers_;
  std::vector<uint32_t> followers_first_;
  Price price_;
};

}  // namespace

Result<Price> price_plans(std::span<const Plan> plans, uint64_t block_bytes, const Costs& costs) {
  if (!is_valid(costs))
    return Status(Code::kInvalidArgument, "a cost is negative, or a bandwidth or the cores are 0");
  TUTTI_TRY(check_shape(plans));
  const bool fits = costs.host_of.size() == plans.size() &&
                    std::ranges::all_of(costs.host_of, [&](uint32_t host) { return host < plans.size(); });
  if (!costs.host_of.empty() && !fits) {
    return Status(Code::kInvalidArgument,
                  format("host_of must hold the hosts, from 0, of %zu ranks", plans.size()));
  }
  const auto graph = PlanGraph::build(plans);
  if (!graph) return graph.status();
  return Schedule(plans, *graph, block_bytes, costs).run();
}

}  // namespace tutti
