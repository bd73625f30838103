#include "plan/races.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/memory_map.h"

namespace tutti {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

/// A step of a round that accesses a chunk. `index`: the chunk's index within the step. Nodes are events,
/// round by round.
struct Access {
  uint32_t node = kNone;
  uint32_t index = 0;
};

/// `before` must happen before `after`.
struct Requirement {
  uint32_t before = 0;
  uint32_t after = 0;
  /// Messages alone do not order the accesses: the chunk comes later in `before` than in `after`.
  bool by_lane = false;

  // NOLINTNEXTLINE(modernize-use-nullptr): the check is wrong
  friend auto operator<=>(const Requirement&, const Requirement&) = default;
};

/// Walks the accesses of all chunks in one possible order. Collects the pairs that must have the same order
/// in every execution.
class AccessLog {
 public:
  AccessLog(std::span<const Plan> plans, const PlanGraph& graph, const RaceOptions& options)
      : plan_(plans[0]),
        graph_(graph),
        options_(options),
        memory_(plans[0], options.in_place),
        writes_(memory_.size()),
        first_read_(memory_.size(), kNone) {
    if (options.direct) find_direct_writes();
  }

  Status add_round(uint32_t round) {
    round_ = round;
    for (const uint32_t event : graph_.order()) {
      add_reads(event);
      add_writes(event);
      if (shifted_ == kNone) continue;
      return {Code::kInvalidArgument, graph_.name(shifted_) +
                                          " reads and writes one chunk at different positions" +
                                          (options_.in_place ? " (in place)" : "")};
    }
    return {};
  }

  std::vector<Requirement> take() {
    std::sort(requirements_.begin(), requirements_.end());
    requirements_.erase(std::unique(requirements_.begin(), requirements_.end()), requirements_.end());
    return std::move(requirements_);
  }

 private:
  struct Read {
    Access access;
    uint32_t next = kNone;
  };

  uint32_t node(uint32_t event) const {
    return round_ * static_cast<uint32_t>(graph_.events().size()) + event;
  }

  /// Finds the steps whose messages the senders write directly.
  void find_direct_writes() {
    first_placement_.assign(graph_.events().size(), kNone);
    for (uint32_t event = 0; event < graph_.events().size(); ++event) {
      for (const GraphMessage& message : graph_.received(event)) {
        if (!message.direct) continue;
        placements_.push_back({event, first_placement_[message.sender]});
        first_placement_[message.sender] = static_cast<uint32_t>(placements_.size() - 1);
      }
    }
  }

  bool is_placed(uint32_t event) const {
    const auto messages = graph_.received(event);
    return options_.direct && messages.size() == 1 && messages[0].direct;
  }

  void add_reads(uint32_t event) {
    const GraphEvent& at = graph_.events()[event];
    if (is_placed(event)) return read_all(event, at.rank, output_of(*at.step));
    auto message = graph_.received(event).begin();
    for (const End& source : at.step->sources) {
      if (source.kind == EndKind::kCollect) return;  // the only source, and nothing in it is a reference
      if (source.kind != EndKind::kLink) {
        read_all(event, at.rank, source);
        continue;
      }
      if (options_.by_reference && message->by_reference) {
        const GraphEvent& sender = graph_.events()[message->sender];
        for (const End& chunks : referable_chunks(*sender.step)) read_all(event, sender.rank, chunks);
      }
      ++message;
    }
  }

  void add_writes(uint32_t event) {
    const GraphEvent& at = graph_.events()[event];
    bool there_already = is_placed(event);
    for (const End& sink : at.step->sinks) {
      if (sink.kind != EndKind::kOutput && sink.kind != EndKind::kScratch) continue;
      if (sink.kind == EndKind::kOutput && std::exchange(there_already, false)) continue;
      for (uint32_t k = 0; k < sink.chunk_count; ++k) {
        const uint32_t location = memory_.at(at.rank, sink.kind, sink.first_chunk + k);
        if (watched(location) && !is_self_copy(at, location, k)) write(location, {node(event), k});
      }
    }
    if (!options_.direct) return;
    for (uint32_t i = first_placement_[event]; i != kNone; i = placements_[i].next) {
      const GraphEvent& receiver = graph_.events()[placements_[i].receiver];
      const End& chunks = output_of(*receiver.step);
      for (uint32_t k = 0; k < chunks.chunk_count; ++k) {
        const uint32_t location = memory_.at(receiver.rank, chunks.kind, chunks.first_chunk + k);
        if (watched(location)) write(location, {node(event), k});
      }
    }
  }

  /// The first output end of a step. check_direct_writes ensures that there is one.
  static const End& output_of(const Step& step) {
    return *std::find_if(step.sinks.begin(), step.sinks.end(),
                         [](const End& end) { return end.kind == EndKind::kOutput; });
  }

  bool watched(uint32_t location) const { return round_ == 0 || memory_.is_scratch(location); }

  /// In place, a copy of a chunk to itself does nothing. (A reduction may pre-multiply, so there the copy
  /// counts.)
  bool is_self_copy(const GraphEvent& at, uint32_t location, uint32_t k) const {
    const End& source = at.step->sources[0];
    return !reduces(plan_.collective) && at.step->sources.size() == 1 && source.kind == EndKind::kInput &&
           memory_.at(at.rank, source.kind, source.first_chunk + k) == location;
  }

  void read_all(uint32_t event, uint32_t rank, const End& source) {
    for (uint32_t k = 0; k < source.chunk_count; ++k) {
      const uint32_t location = memory_.at(rank, source.kind, source.first_chunk + k);
      if (watched(location)) read(location, {node(event), k});
    }
  }

  void read(uint32_t location, Access access) {
    if (writes_[location].node != kNone) require(writes_[location], access);
    reads_.push_back({access, first_read_[location]});
    first_read_[location] = static_cast<uint32_t>(reads_.size() - 1);
  }

  void write(uint32_t location, Access access) {
    if (writes_[location].node != kNone) require(writes_[location], access);
    for (uint32_t i = first_read_[location]; i != kNone; i = reads_[i].next)
      require(reads_[i].access, access);
    first_read_[location] = kNone;
    writes_[location] = access;
  }

  void require(const Access& before, const Access& after) {
    const auto event_count = static_cast<uint32_t>(graph_.events().size());
    const uint32_t event = before.node % event_count;
    if (before.node == after.node) {
      if (before.index != after.index) shifted_ = event;
      return;
    }
    // A lane's steps run one after the other.
    if (graph_.events()[event].lane == graph_.events()[after.node % event_count].lane) return;
    requirements_.push_back({before.node, after.node, before.index > after.index});
  }

  const Plan& plan_;
  const PlanGraph& graph_;
  const RaceOptions& options_;
  MemoryMap memory_;
  std::vector<Access> writes_;        ///< the last write, by location
  std::vector<uint32_t> first_read_;  ///< list in reads_ since the last write, by location
  std::vector<Read> reads_;
  /// A step that reads a directly written message. One list for each sender.
  struct Placement {
    uint32_t receiver = kNone;
    uint32_t next = kNone;
  };
  std::vector<Placement> placements_;
  std::vector<uint32_t> first_placement_;
  std::vector<Requirement> requirements_;
  uint32_t round_ = 0;
  uint32_t shifted_ = kNone;
};

/// The steps of some lanes that happen before each node. Follows only lanes with requirements, kWidth at a
/// time: cheaper than vector clocks of all lanes.
class LaneClocks {
 public:
  static constexpr size_t kWidth = 8;

  LaneClocks(const PlanGraph& graph, uint32_t round_count) : graph_(graph), round_count_(round_count) {
    const size_t nodes = graph.events().size() * round_count;
    known_.resize(nodes);
    known_by_lane_.resize(nodes);
  }

  /// Follows these lanes (at most kWidth) through all rounds.
  void follow(std::span<const uint32_t> lanes) {
    const auto event_count = static_cast<uint32_t>(graph_.events().size());
    for (uint32_t round = 0; round < round_count_; ++round) {
      for (const uint32_t event : graph_.order()) {
        const uint32_t node = round * event_count + event;
        Clock known{};
        Clock by_lane{};
        const uint32_t previous = previous_in_lane(round, event);
        if (previous != kNone) known = by_lane = known_[previous];
        for (const GraphMessage& message : graph_.received(event)) {
          const uint32_t sender = round * event_count + message.sender;
          raise(known, known_[sender]);
          raise(by_lane, known_by_lane_[sender]);
        }
        for (size_t i = 0; i < lanes.size(); ++i) {
          if (lanes[i] == graph_.events()[event].lane) known[i] = position(node);
        }
        known_[node] = known;
        known_by_lane_[node] = by_lane;
      }
    }
  }

  /// Whether the requirement holds. `column`: the index, among the followed lanes, of the lane of its first
  /// node.
  bool holds(const Requirement& requirement, size_t column) const {
    const uint32_t needed = position(requirement.before);
    if (!requirement.by_lane) return known_[requirement.after][column] >= needed;
    // A later step of the lane happens after all of the earlier step.
    return known_by_lane_[requirement.after][column] >= needed || known_[requirement.after][column] > needed;
  }

 private:
  using Clock = std::array<uint32_t, kWidth>;

  static void raise(Clock& clock, const Clock& other) {
    for (size_t i = 0; i < kWidth; ++i) clock[i] = std::max(clock[i], other[i]);
  }

  uint32_t previous_in_lane(uint32_t round, uint32_t event) const {
    const auto event_count = static_cast<uint32_t>(graph_.events().size());
    const uint32_t lane = graph_.events()[event].lane;
    if (event > graph_.lane_begin(lane)) return round * event_count + event - 1;
    return round == 0 ? kNone : (round - 1) * event_count + graph_.lane_begin(lane + 1) - 1;
  }

  /// The node's position in its lane over all rounds, from 1.
  uint32_t position(uint32_t node) const {
    const auto event_count = static_cast<uint32_t>(graph_.events().size());
    const uint32_t event = node % event_count;
    const uint32_t lane = graph_.events()[event].lane;
    const uint32_t length = graph_.lane_begin(lane + 1) - graph_.lane_begin(lane);
    return node / event_count * length + event - graph_.lane_begin(lane) + 1;
  }

  const PlanGraph& graph_;
  uint32_t round_count_;
  std::vector<Clock> known_;          ///< by node
  std::vector<Clock> known_by_lane_;  ///< over paths on which some lane moves on to its next step
};

/// Whether some rank has two lanes. Then one round can overtake another in scratch.
bool has_parallel_lanes(const PlanGraph& graph) {
  uint32_t last_rank = kNone;
  for (uint32_t lane = 0; lane < graph.lane_count(); ++lane) {
    if (graph.lane_begin(lane) == graph.lane_begin(lane + 1)) continue;
    const uint32_t rank = graph.events()[graph.lane_begin(lane)].rank;
    if (rank == last_rank) return true;
    last_rank = rank;
  }
  return false;
}

Status race(const PlanGraph& graph, const Requirement& requirement, const RaceOptions& options) {
  const auto event_count = static_cast<uint32_t>(graph.events().size());
  const std::string next_round =
      requirement.after >= event_count && requirement.before < event_count ? " of the next round" : "";
  return {Code::kInvalidArgument, "race: " + graph.name(requirement.before % event_count) + " and " +
                                      graph.name(requirement.after % event_count) + next_round +
                                      " access one chunk in undefined order" +
                                      (options.in_place ? " (in place)" : "") +
                                      (options.direct         ? " (direct writes)"
                                       : options.by_reference ? " (by reference)"
                                                              : "")};
}

/// Checks that the receiver's step only copies a directly written message, and copies it to the chunks that
/// the sender writes.
Status check_direct_writes(const PlanGraph& graph) {
  const auto output_of = [](const Step& step) {
    return std::find_if(step.sinks.begin(), step.sinks.end(),
                        [](const End& end) { return end.kind == EndKind::kOutput; });
  };
  for (uint32_t event = 0; event < graph.events().size(); ++event) {
    for (const GraphMessage& message : graph.received(event)) {
      if (!message.direct) continue;
      const Step& sender = *graph.events()[message.sender].step;
      const Step& receiver = *graph.events()[event].step;
      const auto target = output_of(receiver);
      if (receiver.sources.size() == 1 && target != receiver.sinks.end() && !receiver.finish &&
          target->first_chunk == output_of(sender)->first_chunk) {
        continue;
      }
      return {Code::kInvalidArgument, graph.name(message.sender) + " may write directly what " +
                                          graph.name(event) +
                                          " does not copy to the same chunks of its output"};
    }
  }
  return {};
}

}  // namespace

Status check_races(std::span<const Plan> plans, const PlanGraph& graph, const RaceOptions& options) {
  if (options.direct) TUTTI_TRY(check_direct_writes(graph));
  const uint32_t round_count = plans[0].scratch_chunks > 0 && has_parallel_lanes(graph) ? 2 : 1;
  AccessLog log(plans, graph, options);
  for (uint32_t round = 0; round < round_count; ++round) TUTTI_TRY(log.add_round(round));
  std::vector<Requirement> requirements = log.take();
  if (requirements.empty()) return {};

  const auto event_count = static_cast<uint32_t>(graph.events().size());
  const auto lane_of = [&](const Requirement& r) { return graph.events()[r.before % event_count].lane; };
  std::stable_sort(requirements.begin(), requirements.end(),
                   [&](const Requirement& a, const Requirement& b) { return lane_of(a) < lane_of(b); });
  LaneClocks clocks(graph, round_count);
  for (auto next = requirements.begin(); next != requirements.end();) {
    std::vector<uint32_t> lanes;
    const auto first = next;
    for (; next != requirements.end(); ++next) {
      if (!lanes.empty() && lanes.back() == lane_of(*next)) continue;
      if (lanes.size() == LaneClocks::kWidth) break;
      lanes.push_back(lane_of(*next));
    }
    clocks.follow(lanes);
    size_t column = 0;
    for (auto it = first; it != next; ++it) {
      while (lanes[column] != lane_of(*it)) ++column;
      if (!clocks.holds(*it, column)) return race(graph, *it, options);
    }
  }
  return {};
}

}  // namespace tutti
