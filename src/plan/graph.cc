#include "plan/graph.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/text.h"

namespace tutti {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

/// One end of one message, before sends and receives are matched. `index` is the message's place in its
/// side's list.
struct MessageEnd {
  uint64_t link = 0;  ///< from, to, channel
  uint32_t event = 0;
  uint32_t index = 0;
  bool by_reference = false;
  bool direct = false;
};

uint64_t link_key(uint32_t from, uint32_t to, uint8_t channel) {
  return (uint64_t{from} << 36) | (uint64_t{to} << 8) | channel;
}

GraphLink link_of(uint64_t key) {
  return {.from = static_cast<uint32_t>(key >> 36),
          .to = static_cast<uint32_t>(key >> 8) & ((1u << 28) - 1),
          .channel = static_cast<uint8_t>(key)};
}

std::string link_name(const GraphLink& link) {
  const char* const kind = link.channel == kPublishChannel   ? "publication"
                           : link.channel == kCollectChannel ? "contribution"
                                                             : "link";
  return format("%s %u -> %u@%u", kind, link.from, link.to, link.channel);
}

/// Sorts the messages of one side by link, and within a link by the order of its lane.
void sort_ends(std::vector<MessageEnd>& ends) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const MessageEnd& a, const MessageEnd& b) { return a.link < b.link; });
}

void add_receives(uint32_t event, const GraphEvent& at, uint32_t rank_count,
                  std::vector<MessageEnd>& receives) {
  for (const End& end : at.step->sources) {
    const bool collects = end.kind == EndKind::kCollect;
    if (!collects && end.kind != EndKind::kLink) continue;
    const uint32_t last = collects ? rank_count : end.peer + 1;
    for (uint32_t from = collects ? 0 : end.peer; from < last; ++from) {
      const auto index = static_cast<uint32_t>(receives.size());
      receives.push_back(
          {link_key(from, at.rank, collects ? kCollectChannel : end.channel), event, index, false, false});
    }
  }
}

void add_sends(uint32_t event, const GraphEvent& at, uint32_t rank_count, std::vector<MessageEnd>& sends) {
  for (const End& end : at.step->sinks) {
    const bool publishes = end.kind == EndKind::kPublish;
    if (!publishes && end.kind != EndKind::kLink) continue;
    const uint32_t last = publishes ? rank_count : end.peer + 1;
    for (uint32_t to = publishes ? 0 : end.peer; to < last; ++to) {
      if (publishes && to == at.rank) continue;
      const auto index = static_cast<uint32_t>(sends.size());
      sends.push_back({link_key(at.rank, to, publishes ? kPublishChannel : end.channel), event, index,
                       may_refer(*at.step), end.direct_write_ok});
    }
  }
}

Status refuse(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

}  // namespace

bool may_refer(const Step& step) {
  if (step.sources.size() == 1 && step.sources[0].reference_ok && step.sources[0].kind != EndKind::kLink)
    return true;
  return std::any_of(step.sinks.begin(), step.sinks.end(), [](const End& sink) { return sink.reference_ok; });
}

std::vector<End> referable_chunks(const Step& step) {
  std::vector<End> chunks;
  const auto add = [&](const End& end) {
    if (end.kind == EndKind::kInput || end.kind == EndKind::kOutput) chunks.push_back(end);
  };
  if (step.sources.size() == 1) add(step.sources[0]);
  for (const End& sink : step.sinks) add(sink);
  return chunks;
}

std::string PlanGraph::name(uint32_t event) const {
  const GraphEvent& at = events_[event];
  return format("rank %u lane %u step %u (%s)", at.rank, at.lane - rank_first_lane_[at.rank],
                event - lane_first_[at.lane], print_step(*at.step).c_str());
}

Result<PlanGraph> PlanGraph::build(std::span<const Plan> plans) {
  PlanGraph graph;
  graph.add_events(plans);
  TUTTI_TRY(graph.match_messages(static_cast<uint32_t>(plans.size())));
  TUTTI_TRY(graph.sort_events());
  return graph;
}

void PlanGraph::add_events(std::span<const Plan> plans) {
  lane_first_ = {0};
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    rank_first_lane_.push_back(lane_count());
    for (const Lane& lane : plans[rank].lanes) {
      const uint32_t number = lane_count();
      for (const Step& step : lane.steps) events_.push_back({&step, rank, number});
      lane_first_.push_back(static_cast<uint32_t>(events_.size()));
    }
  }
}

Status PlanGraph::match_messages(uint32_t rank_count) {
  std::vector<MessageEnd> sends;
  std::vector<MessageEnd> receives;
  for (uint32_t event = 0; event < events_.size(); ++event) {
    received_first_.push_back(static_cast<uint32_t>(receives.size()));
    sent_first_.push_back(static_cast<uint32_t>(sends.size()));
    add_receives(event, events_[event], rank_count, receives);
    add_sends(event, events_[event], rank_count, sends);
  }
  received_first_.push_back(static_cast<uint32_t>(receives.size()));
  sent_first_.push_back(static_cast<uint32_t>(sends.size()));
  received_.resize(receives.size());
  sent_.resize(sends.size());
  sort_ends(sends);
  sort_ends(receives);
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const uint64_t send_key = i < sends.size() ? sends[i].link : UINT64_MAX;
    const uint64_t receive_key = i < receives.size() ? receives[i].link : UINT64_MAX;
    if (send_key < receive_key) {
      return refuse(name(sends[i].event) + " sends a message on " + link_name(link_of(send_key)) +
                    " that is never received");
    }
    if (send_key > receive_key) {
      return refuse(name(receives[i].event) + " waits for a message on " + link_name(link_of(receive_key)) +
                    " that is never sent");
    }
    if (i == 0 || sends[i - 1].link != send_key) {
      links_.push_back(link_of(send_key));
      links_.back().writer_lane = events_[sends[i].event].lane;
      links_.back().reader_lane = events_[receives[i].event].lane;
    }
    TUTTI_TRY(check_matching(sends[i].event, receives[i].event));
    const auto link = static_cast<uint32_t>(links_.size() - 1);
    sent_[sends[i].index] = link;
    received_[receives[i].index] = {link, sends[i].event, sends[i].by_reference, sends[i].direct};
  }
  return {};
}

/// Checks a send and its receive on the last link of links_.
Status PlanGraph::check_matching(uint32_t send, uint32_t receive) const {
  const GraphLink& link = links_.back();
  if (link.writer_lane != events_[send].lane) {
    return refuse(name(send) + " is in the second lane that writes " + link_name(link));
  }
  if (link.reader_lane != events_[receive].lane) {
    return refuse(name(receive) + " is in the second lane that reads " + link_name(link));
  }
  const uint32_t sent = events_[send].step->chunk_count;
  const uint32_t expected = events_[receive].step->chunk_count;
  if (sent == expected) return {};
  return refuse(format("%s expects %u chunks, but %s sends %u", name(receive).c_str(), expected,
                       name(send).c_str(), sent));
}

Status PlanGraph::sort_events() {
  std::vector<uint32_t> next_event(lane_first_.begin(), lane_first_.end() - 1);
  std::vector<char> done(events_.size(), 0);
  // Lanes that wait for an event, as linked lists. A lane waits for one event at a time.
  std::vector<uint32_t> first_waiter(events_.size(), kNone);
  std::vector<uint32_t> next_waiter(lane_count(), kNone);
  std::vector<uint32_t> ready;
  for (uint32_t lane = lane_count(); lane-- > 0;) ready.push_back(lane);
  order_.reserve(events_.size());
  while (!ready.empty()) {
    const uint32_t lane = ready.back();
    ready.pop_back();
    for (uint32_t& event = next_event[lane]; event < lane_first_[lane + 1]; ++event) {
      const auto messages = received(event);
      const auto missing = std::find_if(messages.begin(), messages.end(),
                                        [&](const GraphMessage& m) { return !done[m.sender]; });
      if (missing != messages.end()) {
        next_waiter[lane] = std::exchange(first_waiter[missing->sender], lane);
        break;
      }
      done[event] = 1;
      order_.push_back(event);
      for (uint32_t waiter = first_waiter[event]; waiter != kNone; waiter = next_waiter[waiter]) {
        ready.push_back(waiter);
      }
    }
  }
  return order_.size() == events_.size() ? Status::ok() : describe_cycle(next_event);
}

Status PlanGraph::describe_cycle(const std::vector<uint32_t>& next_event) const {
  std::vector<char> done(events_.size(), 0);
  for (const uint32_t event : order_) done[event] = 1;
  uint32_t lane = 0;
  while (next_event[lane] == lane_first_[lane + 1]) ++lane;
  // Every blocked lane waits for a blocked lane, so after lane_count steps the walk is on the cycle.
  std::string text;
  const auto waits_for = [&](uint32_t at) {
    const auto messages = received(next_event[at]);
    return std::find_if(messages.begin(), messages.end(),
                        [&](const GraphMessage& m) { return !done[m.sender]; })
        ->sender;
  };
  for (uint32_t i = 0; i < lane_count(); ++i) lane = events_[waits_for(lane)].lane;
  const uint32_t sender = waits_for(lane);
  text = name(next_event[lane]) + " waits for " + name(sender);
  if (events_[sender].lane != lane)
    text += ", and that lane waits at " + name(next_event[events_[sender].lane]);
  return refuse(text + ": a deadlock with any number of slots");
}

}  // namespace tutti
