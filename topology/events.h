// Events: runs the lanes of a walk against its servers, in the order of time. One event is one slice of one
// step.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "core/result.h"
#include "topology/event_queue.h"
#include "topology/rank_costs.h"
#include "topology/simulate.h"
#include "topology/walk.h"

namespace tutti::topology {

/// How a walk's messages are cut. The stripes of a lane do the same at once, so one slice stands for a slice
/// of each.
struct WalkCut {
  Rounds rounds = {};  ///< of one stripe
  uint32_t stripes = 1;
  uint32_t walked_rounds = 1;
  uint32_t slices_in_one = 1;  ///< slices that are walked as one, where there are too many

  /// Slices of a step in a round, and the bytes of each.
  struct Slices {
    uint32_t count = 0;
    double bytes = 0;
    double stand_for = 1;  ///< slices of the engine in each
  };
  Slices of(const WalkStep& step, uint32_t round) const;
};

/// Why a span began when it began, and what it did.
struct Reason {
  uint32_t server = UINT32_MAX;  ///< the slowest on the way of the message that came last
  double latency_us = 0;         ///< of that message
  double queued_us = 0;          ///< that it waited for other messages
  uint32_t own_server = UINT32_MAX;
  double own_queued_us = 0;
  double own_fixed_us = 0;
};

class Events {
 public:
  struct Options {
    RankCosts costs;
    bool trace = false;
    double most_us = 0;  ///< stop beyond
    uint32_t calls =
        1;  ///< with measured costs: a rank begins its next call as soon as its last one has ended
  };
  Events(const Walk& walk, const WalkCut& cut, const Options& options);

  /// Errors: kInvalidArgument: the plans deadlock.
  Status run();

  bool was_stopped() const { return stopped_; }
  double end_us() const { return end_us_; }
  /// When the last lane ended a round.
  double round_end_us(uint32_t round) const { return round_end_us_[round]; }
  /// When the last rank ended a call.
  double call_end_us(uint32_t call) const { return call_end_us_[call]; }
  uint64_t slice_count() const { return slice_count_; }
  double busy_us(uint32_t server) const { return servers_[server].busy_us; }
  double bytes_of(uint32_t server) const { return servers_[server].bytes; }
  std::vector<Span>& spans() { return spans_; }
  const std::vector<Reason>& reasons() const { return reasons_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct LaneState {
    uint32_t step = 0;
    uint32_t round = 0;
    uint32_t slice = 0;
    WalkCut::Slices slices;
    double free_us = 0;
    double here_us = 0;    ///< when the last message of the step comes
    uint32_t missing = 0;  ///< messages of the step that have not been sent yet
    double woken_us =
        std::numeric_limits<double>::infinity();  ///< measured costs: of the only event that counts
    uint32_t last_span = kNoSpan;
  };
  struct RankState {
    uint32_t lanes_left = 0;  ///< in this call
    uint32_t calls_done = 0;
    uint32_t place = 0;  ///< among the ranks of its core
    std::vector<uint32_t> lanes = {};
  };
  struct LinkState {
    uint32_t sent = 0;
    uint32_t arrived = 0;
    uint32_t taken = 0;
    uint32_t first_slot = 0;
    uint32_t slots = 0;  ///< no more than the link has messages
    bool reader_waits = false;
    bool writer_waits = false;
    double last_us = 0;  ///< of the last arrival
  };
  /// What a slot of a link tells: when its message arrived, and when the reader let it go.
  struct Slot {
    double arrived_us = 0;
    double released_us = 0;
  };
  /// Of a slot, for the trace.
  struct Story {
    uint32_t sender = kNoSpan;
    uint32_t reader = kNoSpan;
    uint32_t server = UINT32_MAX;
    float latency_us = 0;
    float queued_us = 0;
  };
  struct ServerState {
    double us_per_byte = 0;
    double free_us = 0;
    double busy_us = 0;
    double bytes = 0;
  };
  struct Worker {
    double free_us = 0;
    uint32_t last_rank = kNone;
    uint32_t last_span = kNoSpan;
    uint32_t last_lane = 0;
    uint32_t rank_count = 0;
    std::deque<uint32_t> waiting;
    bool is_shared = false;
  };
  /// On its way between hosts.
  struct Message {
    uint32_t link = 0;
    bool has_left = false;
    double bytes = 0;
    double last_byte_us = 0;
    double queued_us = 0;
    uint32_t sender = kNoSpan;
  };
  struct Served {
    double first_us = 0;  ///< when the last server has begun
    double last_us = 0;   ///< when the last byte has passed all servers
    double queued_us = 0;
    uint32_t slowest = UINT32_MAX;
    double slowest_us = -1;  ///< what that one took
  };

  void make_slots();
  void go_on(uint32_t lane, bool goes_on);
  bool awaits_messages(uint32_t lane);
  void try_lane(uint32_t lane, double now_us);
  void end_lane(uint32_t lane, double now_us);
  void take_turn(uint32_t lane, double now_us);
  double turn_us(const Worker& worker, uint32_t rank, double now_us) const;
  bool next_slices(LaneState& state, const WalkLane& lane) const;
  /// When the slice can start, kNever if something is missing that will wake the lane.
  double ready_us(uint32_t lane, const WalkStep& step, double now_us, uint32_t* cause, Reason* reason);
  void run_slice(uint32_t lane, const WalkStep& step, double start_us, uint32_t cause, Reason reason);
  double work(uint32_t lane, const WalkStep& step, double start_us, Reason& reason);
  double measured_work(uint32_t lane, const WalkStep& step, double start_us, Reason& reason);
  double pass_links(const WalkStep& step, double bytes, double start_us, double end_us, Reason& reason);
  double measured_slice_us(const WalkStep& step, double bytes) const;
  double pass_shared(uint32_t lane, const WalkStep& step, double start_us, double bytes, Reason& reason);
  std::span<const Hop> shared_part(std::span<const Hop> hops) const;
  double latency_us(uint32_t link, double bytes) const;
  double socket_latency_us(double bytes) const;
  double gap_us(uint32_t link, double bytes) const;
  void take_messages(const WalkStep& step, double end_us, uint32_t span);
  void send_messages(const WalkStep& step, const WalkCut::Slices& slices, double end_us, uint32_t span);
  void move_message(uint32_t number, double now_us);
  void arrive(uint32_t link, double us, const Story& told);
  Served serve(std::span<const Hop> hops, double now_us, double bytes);
  void pass(std::span<const Hop> hops, double bytes, Served& served);
  void push_lane(uint32_t lane, double us, bool goes_on = false);
  bool is_own_core(uint32_t link) const {
    return worker_of_[walk_.links()[link].writer] == worker_of_[walk_.links()[link].reader];
  }
  static uint32_t slot(const LinkState& link, uint32_t number) {
    return link.first_slot + (number < link.slots ? number : number % link.slots);
  }

  const Walk& walk_;
  const WalkCut& cut_;
  const Options options_;
  const uint32_t slot_count_;
  const bool is_measured_;
  bool has_other_cores_ = false;  ///< beside those of the probes
  std::vector<LaneState> lanes_;
  std::vector<LinkState> links_;
  std::vector<Slot> slots_;
  std::vector<Story> stories_;  ///< of slots, with a trace
  std::vector<Worker> workers_;
  std::vector<uint32_t> worker_of_;  ///< by lane
  std::vector<ServerState> servers_;
  std::vector<Served> outgoing_;  ///< of the slice that runs, on a GPU
  std::vector<Message> messages_;
  std::vector<uint32_t> free_messages_;
  EventQueue events_;
  std::vector<double> round_end_us_;
  std::vector<RankState> ranks_;
  std::vector<double> call_end_us_;
  std::vector<Span> spans_;
  std::vector<Reason> reasons_;
  uint64_t slice_count_ = 0;
  uint32_t running_ = 0;  ///< lanes with steps left
  double end_us_ = 0;
  bool stopped_ = false;
};

}  // namespace tutti::topology
