// PlanGraph: all ranks' steps as one graph of events and messages, in an order in which they can run.
//
// Plans have no wildcard waits, so which send meets which receive is known without running anything: the k-th
// send on a link meets its k-th receive. An *event* is one step of one lane; its predecessors are the step
// before it in its lane and the sends of the messages it reads. A published message is one message a reader;
// a collect reads one message a rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// An ordered path from one rank to another; both ends' lanes are known.
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
  bool by_reference = false;  ///< the sender may send a reference: see may_refer
  bool direct = false;        ///< the sender may store the message where the receiver's step copies it
};

/// Whether an engine may send a reference on `sink`, a link or publish sink of `step`.
bool may_refer(const Step& step, const End& sink);

/// What such a reference may point to: the source of a step that copies, and what the step writes to the
/// receive buffer. Never scratch, which the next round overwrites.
std::vector<End> referable_chunks(const Step& step);

struct GraphEvent {
  const Step* step = nullptr;  ///< inside the plans given
  uint32_t rank = 0;
  uint32_t lane = 0;  ///< numbered over all ranks
};

class PlanGraph {
 public:
  /// `plans` must have passed check_shape and outlive the graph. Errors: kInvalidArgument: a send without a
  /// receive or the reverse, other chunk counts, two lanes at one end of a link, a wait that no
  /// number of slots ends.
  static Result<PlanGraph> build(std::span<const Plan> plans);

  const std::vector<GraphEvent>& events() const { return events_; }
  const std::vector<GraphLink>& links() const { return links_; }
  uint32_t lane_count() const { return static_cast<uint32_t>(lane_first_.size() - 1); }
  /// Events of a lane: [lane_begin, lane_begin of the next lane), in the order of its steps.
  uint32_t lane_begin(uint32_t lane) const { return lane_first_[lane]; }

  /// One per link source of the event's step, in their order; of a kCollect source one per rank.
  std::span<const GraphMessage> received(uint32_t event) const {
    return slice(received_, received_first_, event);
  }
  /// Links that the event's step writes, a kPublish sink once per reader.
  std::span<const uint32_t> sent(uint32_t event) const { return slice(sent_, sent_first_, event); }

  /// Every event after its predecessors.
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
