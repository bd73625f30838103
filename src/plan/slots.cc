#include "plan/slots.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kRounds = 4;

/// One run of counters: each lane's position, and the slices in every link.
class SlotRun {
 public:
  /// `slices`: slices of a chunk in each round.
  SlotRun(const PlanGraph& graph, uint64_t capacity, const std::array<uint32_t, kRounds>& slices)
      : graph_(graph),
        capacity_(capacity),
        slices_(slices),
        lanes_(graph.lane_count()),
        filled_(graph.links().size(), 0),
        waiting_reader_(graph.links().size(), kNone),
        waiting_writer_(graph.links().size(), kNone) {}

  Status run() {
    for (uint32_t lane = graph_.lane_count(); lane-- > 0;) {
      lanes_[lane].event = graph_.lane_begin(lane);
      ready_.push_back(lane);
    }
    while (!ready_.empty()) {
      const uint32_t lane = ready_.back();
      ready_.pop_back();
      while (advance(lane)) {
      }
    }
    for (uint32_t lane = 0; lane < graph_.lane_count(); ++lane) {
      if (!is_done(lane)) return blocked(lane);
    }
    return {};
  }

 private:
  struct LaneState {
    uint32_t event = 0;
    uint32_t round = 0;
    uint64_t slices_done = 0;  ///< of this event
    uint32_t link = kNone;     ///< waited for
    bool sending = false;
  };

  bool is_done(uint32_t lane) const {
    return lanes_[lane].round == kRounds || graph_.lane_begin(lane) == graph_.lane_begin(lane + 1);
  }

  /// Runs as many slices of the lane's step as its links allow. Returns false when the lane is done or
  /// blocked.
  bool advance(uint32_t lane) {
    if (is_done(lane)) return false;
    LaneState& state = lanes_[lane];
    const uint64_t total = uint64_t{slices_[state.round]} * graph_.events()[state.event].step->chunk_count;
    uint64_t count = total - state.slices_done;
    for (const GraphMessage& message : graph_.received(state.event)) {
      if (filled_[message.link] == 0) return wait(lane, message.link, false);
      count = std::min(count, filled_[message.link]);
    }
    for (const uint32_t link : graph_.sent(state.event)) {
      if (filled_[link] == capacity_) return wait(lane, link, true);
      count = std::min(count, capacity_ - filled_[link]);
    }
    for (const GraphMessage& message : graph_.received(state.event)) {
      filled_[message.link] -= count;
      wake(waiting_writer_[message.link]);
    }
    for (const uint32_t link : graph_.sent(state.event)) {
      filled_[link] += count;
      wake(waiting_reader_[link]);
    }
    state.slices_done += count;
    if (state.slices_done == total) {
      state.slices_done = 0;
      if (++state.event == graph_.lane_begin(lane + 1)) {
        state.event = graph_.lane_begin(lane);
        ++state.round;
      }
    }
    return true;
  }

  bool wait(uint32_t lane, uint32_t link, bool sending) {
    (sending ? waiting_writer_ : waiting_reader_)[link] = lane;
    lanes_[lane].link = link;
    lanes_[lane].sending = sending;
    return false;
  }

  void wake(uint32_t& waiter) {
    if (waiter == kNone) return;
    ready_.push_back(waiter);
    waiter = kNone;
  }

  Status blocked(uint32_t lane) const {
    const LaneState& state = lanes_[lane];
    const GraphLink& link = graph_.links()[state.link];
    return {Code::kInvalidArgument,
            format("%s waits forever for %s rank %u, with %llu slots a link and %u slices a chunk",
                   graph_.name(state.event).c_str(), state.sending ? "a free slot to" : "a message from",
                   state.sending ? link.to : link.from, static_cast<unsigned long long>(capacity_),
                   slices_[state.round])};
  }

  const PlanGraph& graph_;
  uint64_t capacity_;
  const std::array<uint32_t, kRounds>& slices_;
  std::vector<LaneState> lanes_;
  std::vector<uint64_t> filled_;          ///< slices, by link
  std::vector<uint32_t> waiting_reader_;  ///< lane, by link
  std::vector<uint32_t> waiting_writer_;
  std::vector<uint32_t> ready_;
};

}  // namespace

Status check_slots(const PlanGraph& graph, uint32_t slots_needed) {
  for (const uint32_t slices : {1u, 2u, 4u}) {
    const std::array<uint32_t, kRounds> full = {slices, slices, slices, slices};
    TUTTI_TRY(SlotRun(graph, uint64_t{slots_needed} * slices, full).run());
    const std::array<uint32_t, kRounds> uneven = {slices, 1, slices, 1};
    TUTTI_TRY(SlotRun(graph, uint64_t{slots_needed} * slices, uneven).run());
  }
  return {};
}

}  // namespace tutti
