// PlanGraph: all ranks' steps as one graph of events and messages, in an order in which they can run.
//
// Plans have no wildcard waits, so the k-th send on a link meets the link's k-th receive. An *event* is one
// step of one lane. Its predecessors are the step before in its lane, and the sends of its messages. A
// published message counts once for each reader. A collect reads one message from each rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// An ordered path from one rank to another, with the lanes at both ends.
struct GraphLink {
  uint32_t from = 0;
  uint32_t to = 0;
  uint8_t channel = 0;
  uint32_t writer_lane = 0;  ///< PlanGraph lane numbers
  uint32_t reader_lane = 0;
};

/// A message that an event reads.
struct GraphMessage {
  uint32_t link = 0;
  uint32_t sender = 0;        ///< event
  bool by_reference = false;  ///< the sender may send a reference (may_refer)
  bool direct = false;        ///< the sender may store the message at the receiver's target
};

/// Whether an engine may send references on the link and publish sinks of `step`: on all of them, or on none.
bool may_refer(const Step& step);

/// The chunks to which such a reference may point: the source of a step that copies, and what the step writes
/// to the receive buffer. Never scratch, because the next round overwrites scratch.
std::vector<End> referable_chunks(const Step& step);

struct GraphEvent {
  const Step* step = nullptr;  ///< inside the plans given
  uint32_t rank = 0;
  uint32_t lane = 0;  ///< numbered over all ranks
};

class PlanGraph {
 public:
  /// `plans` must have passed check_shape and must outlive the graph. Errors: kInvalidArgument: a send
  /// without a receive or a receive without a send, different chunk counts, two lanes at one end of a link, a
  /// wait that never ends with any number of slots.
  static Result<PlanGraph> build(std::span<const Plan> plans);

  const std::vector<GraphEvent>& events() const { return events_; }
  const std::vector<GraphLink>& links() const { return links_; }
  uint32_t lane_count() const { return static_cast<uint32_t>(lane_first_.size() - 1); }
  /// Events of a lane: [lane_begin, lane_begin of the next lane), in the order of its steps.
  uint32_t lane_begin(uint32_t lane) const { return lane_first_[lane]; }

  /// One message for each link source of the event's step, in their order. A kCollect source has one message
  /// from each rank.
  std::span<const GraphMessage> received(uint32_t event) const {
    return slice(received_, received_first_, event);
  }
  /// Links that the event's step writes. A kPublish sink counts once for each reader.
  std::span<const uint32_t> sent(uint32_t event) const { return slice(sent_, sent_first_, event); }

  /// All events, each after its predecessors.
  const std::vector<uint32_t>& order() const { return order_; }

  /// "rank 1 lane 0 step 3 (link 2@0 -> output 1)", for messages.
  std::string name(uint32_t event) const;

 private:
  template <class T>
  static std::span<const T> slice(const std::vector<T>& all, const std::vector<uint32_t>& first,
                                  uint32_t event) {
    return std::span(all).subspan(first[event], first[event + 1] - first[event]);
  }

  void add_events(std::span<const Plan> plans);
  Status match_messages(uint32_t rank_count);
  Status check_matching(uint32_t send, uint32_t receive) const;
  Status sort_events();
  Status describe_cycle(const std::vector<uint32_t>& next_event) const;

  std::vector<GraphEvent> events_;
  std::vector<uint32_t> lane_first_;
  std::vector<uint32_t> rank_first_lane_;
  std::vector<GraphLink> links_;
  std::vector<GraphMessage> received_;
  std::vector<uint32_t> received_first_;
  std::vector<uint32_t> sent_;
  std::vector<uint32_t> sent_first_;
  std::vector<uint32_t> order_;
};

}  // namespace tutti
