#include "tests/plan/mutations.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::test {
namespace {

using Random = std::mt19937;

uint32_t below(Random& random, size_t bound) {
  return static_cast<uint32_t>(random() % bound);
}

/// A random lane with at least `least` steps; null when the rank drawn has none.
Lane* pick_lane(PlanSet& plans, Random& random, size_t least) {
  Plan& plan = plans[below(random, plans.size())];
  if (plan.lanes.empty()) return nullptr;
  Lane& lane = plan.lanes[below(random, plan.lanes.size())];
  return lane.steps.size() >= least ? &lane : nullptr;
}

Step* pick_step(PlanSet& plans, Random& random) {
  Lane* lane = pick_lane(plans, random, 1);
  return lane == nullptr ? nullptr : &lane->steps[below(random, lane->steps.size())];
}

/// A random end of a random step that `is_right`.
template <class Predicate>
End* pick_end(PlanSet& plans, Random& random, const Predicate& is_right) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return nullptr;
  std::vector<End*> ends;
  for (auto* side : {&step->sources, &step->sinks}) {
    for (End& end : *side) {
      if (is_right(end)) ends.push_back(&end);
    }
  }
  return ends.empty() ? nullptr : ends[below(random, ends.size())];
}

bool is_link(const End& end) {
  return end.kind == EndKind::kLink;
}
bool is_buffer(const End& end) {
  return end.kind < EndKind::kLink;
}

bool drop_step(PlanSet& plans, Random& random) {
  Lane* lane = pick_lane(plans, random, 1);
  if (lane == nullptr) return false;
  lane->steps.erase(lane->steps.begin() + below(random, lane->steps.size()));
  return true;
}

bool repeat_step(PlanSet& plans, Random& random) {
  Lane* lane = pick_lane(plans, random, 1);
  if (lane == nullptr) return false;
  const uint32_t at = below(random, lane->steps.size());
  const Step copy = lane->steps[at];
  lane->steps.insert(lane->steps.begin() + at, copy);
  return true;
}

bool swap_steps(PlanSet& plans, Random& random) {
  Lane* lane = pick_lane(plans, random, 2);
  if (lane == nullptr) return false;
  const uint32_t at = below(random, lane->steps.size() - 1);
  std::swap(lane->steps[at], lane->steps[at + 1]);
  return true;
}

/// On every rank, so that sends and receives still meet where the plan is symmetric.
bool swap_steps_everywhere(PlanSet& plans, Random& random) {
  const uint32_t at = below(random, 16);
  for (Plan& plan : plans) {
    if (plan.lanes.empty() || plan.lanes[0].steps.size() < at + 2) return false;
    std::swap(plan.lanes[0].steps[at], plan.lanes[0].steps[at + 1]);
  }
  return true;
}

bool move_step(PlanSet& plans, Random& random) {
  Lane* lane = pick_lane(plans, random, 2);
  if (lane == nullptr) return false;
  const uint32_t from = below(random, lane->steps.size());
  const Step step = lane->steps[from];
  lane->steps.erase(lane->steps.begin() + from);
  lane->steps.insert(lane->steps.begin() + below(random, lane->steps.size() + 1), step);
  return true;
}

bool redirect_peer(PlanSet& plans, Random& random) {
  End* end = pick_end(plans, random, is_link);
  if (end == nullptr) return false;
  end->peer = below(random, plans.size() + 1);
  return true;
}

bool change_channel(PlanSet& plans, Random& random) {
  End* end = pick_end(plans, random, is_link);
  if (end == nullptr) return false;
  end->channel = static_cast<uint8_t>(end->channel == kPublishChannel ? 0 : end->channel + 1);
  return true;
}

bool change_chunk(PlanSet& plans, Random& random) {
  End* end = pick_end(plans, random, is_buffer);
  if (end == nullptr) return false;
  end->first_chunk = end->first_chunk + below(random, 3) - 1;
  return true;
}

bool change_named_chunk(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  step->first_chunk += random() % 2 == 0 ? 1u : UINT32_MAX;
  return true;
}

bool change_chunk_count(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  const uint32_t change = random() % 2 == 0 ? 1u : UINT32_MAX;
  step->chunk_count += change;
  for (auto* side : {&step->sources, &step->sinks}) {
    for (End& end : *side) {
      if (is_buffer(end)) end.chunk_count += change;
    }
  }
  return true;
}

bool change_buffer(PlanSet& plans, Random& random) {
  End* end = pick_end(plans, random, is_buffer);
  if (end == nullptr) return false;
  end->kind = static_cast<EndKind>((static_cast<uint32_t>(end->kind) + 1 + below(random, 2)) % 3);
  return true;
}

bool toggle_finish(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  step->finish = !step->finish;
  return true;
}

bool repeat_source(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  step->sources.push_back(step->sources[below(random, step->sources.size())]);
  return true;
}

bool add_own_input(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  step->sources.push_back(input(step->first_chunk, step->chunk_count));
  return true;
}

bool swap_sources(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr || step->sources.size() < 2) return false;
  const uint32_t at = below(random, step->sources.size() - 1);
  std::swap(step->sources[at], step->sources[at + 1]);
  return true;
}

bool drop_source(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr || step->sources.size() < 2) return false;
  step->sources.erase(step->sources.begin() + below(random, step->sources.size()));
  return true;
}

bool drop_sink(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr || step->sinks.size() < 2) return false;
  step->sinks.erase(step->sinks.begin() + below(random, step->sinks.size()));
  return true;
}

bool add_sink(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  const uint32_t chunk = below(random, plans[0].chunks_per_block * 2);
  step->sinks.push_back(random() % 2 == 0 ? output(chunk, step->chunk_count)
                                          : scratch(chunk, step->chunk_count));
  return true;
}

bool refer_once(PlanSet& plans, Random& random) {
  End* end = pick_end(plans, random,
                      [](const End& e) { return e.kind == EndKind::kLink || e.kind == EndKind::kPublish; });
  if (end == nullptr || end->reference_ok) return false;
  end->reference_ok = true;
  return true;
}

bool refer_everywhere(PlanSet& plans, Random&) {
  for (Plan& plan : plans) {
    for (Lane& lane : plan.lanes) {
      for (Step& step : lane.steps) {
        for (End& sink : step.sinks) {
          if (!is_buffer(sink)) sink.reference_ok = true;
        }
      }
    }
  }
  return true;
}

bool direct_write_once(PlanSet& plans, Random& random) {
  Step* step = pick_step(plans, random);
  if (step == nullptr) return false;
  for (End& sink : step->sinks) {
    if (!is_buffer(sink)) sink.reference_ok = sink.direct_write_ok = true;
  }
  return true;
}

bool direct_write_everywhere(PlanSet& plans, Random&) {
  for (Plan& plan : plans) {
    for (Lane& lane : plan.lanes) {
      for (Step& step : lane.steps) {
        const bool writes_output = std::any_of(step.sinks.begin(), step.sinks.end(),
                                               [](const End& end) { return end.kind == EndKind::kOutput; });
        for (End& sink : step.sinks) {
          if (writes_output && !is_buffer(sink)) sink.reference_ok = sink.direct_write_ok = true;
        }
      }
    }
  }
  return true;
}

bool state_fewer_slots(PlanSet& plans, Random&) {
  if (plans[0].slots_needed == 1) return false;
  for (Plan& plan : plans) --plan.slots_needed;
  return true;
}

/// The rest of a lane becomes a lane of its own: only messages order the two.
bool split_lane(PlanSet& plans, Random& random) {
  Plan& plan = plans[below(random, plans.size())];
  if (plan.lanes.empty()) return false;
  Lane& lane = plan.lanes[below(random, plan.lanes.size())];
  if (lane.steps.size() < 2) return false;
  const auto at = lane.steps.begin() + 1 + below(random, lane.steps.size() - 1);
  Lane rest{{at, lane.steps.end()}};
  lane.steps.erase(at, lane.steps.end());
  plan.lanes.push_back(std::move(rest));
  return true;
}

/// On every rank: channels are renamed so that each lane has links of its own.
bool split_lanes_everywhere(PlanSet& plans, Random& random) {
  const uint32_t at = 1 + below(random, 12);
  for (Plan& plan : plans) {
    if (plan.lanes.size() != 1 || plan.lanes[0].steps.size() <= at) return false;
  }
  for (Plan& plan : plans) {
    std::vector<Step>& steps = plan.lanes[0].steps;
    Lane rest{{steps.begin() + at, steps.end()}};
    steps.erase(steps.begin() + at, steps.end());
    for (Step& step : rest.steps) {
      for (auto* side : {&step.sources, &step.sinks}) {
        for (End& end : *side) {
          if (is_link(end) && end.channel != kPublishChannel) ++end.channel;
        }
      }
    }
    plan.lanes.push_back(std::move(rest));
  }
  return true;
}

/// Two lanes of one rank become one: a wait in the first then holds up the second.
bool join_lanes(PlanSet& plans, Random& random) {
  Plan& plan = plans[below(random, plans.size())];
  if (plan.lanes.size() < 2) return false;
  const std::vector<Step> last = std::move(plan.lanes.back().steps);
  plan.lanes.pop_back();
  plan.lanes.back().steps.insert(plan.lanes.back().steps.end(), last.begin(), last.end());
  return true;
}

bool reuse_scratch(PlanSet& plans, Random& random) {
  if (plans[0].scratch_chunks < 2) return false;
  End* end = pick_end(plans, random, [](const End& e) { return e.kind == EndKind::kScratch; });
  if (end == nullptr) return false;
  end->first_chunk = below(random, plans[0].scratch_chunks);
  return true;
}

constexpr std::array kMutations = {
    Mutation{"drop a step", drop_step},
    Mutation{"repeat a step", repeat_step},
    Mutation{"swap adjacent steps", swap_steps},
    Mutation{"swap adjacent steps on all ranks", swap_steps_everywhere},
    Mutation{"move a step", move_step},
    Mutation{"redirect a link", redirect_peer},
    Mutation{"change a channel", change_channel},
    Mutation{"change a chunk", change_chunk},
    Mutation{"change the named chunk", change_named_chunk},
    Mutation{"change a chunk count", change_chunk_count},
    Mutation{"change a buffer", change_buffer},
    Mutation{"toggle finish", toggle_finish},
    Mutation{"repeat a source", repeat_source},
    Mutation{"add the own input", add_own_input},
    Mutation{"swap sources", swap_sources},
    Mutation{"drop a source", drop_source},
    Mutation{"drop a sink", drop_sink},
    Mutation{"add a sink", add_sink},
    Mutation{"refer once", refer_once},
    Mutation{"refer everywhere", refer_everywhere},
    Mutation{"direct write once", direct_write_once},
    Mutation{"direct write everywhere", direct_write_everywhere},
    Mutation{"state fewer slots", state_fewer_slots},
    Mutation{"split a lane", split_lane},
    Mutation{"split the lanes of all ranks", split_lanes_everywhere},
    Mutation{"join lanes", join_lanes},
    Mutation{"reuse scratch", reuse_scratch},
};

}  // namespace

std::span<const Mutation> mutations() {
  return kMutations;
}

}  // namespace tutti::test
