#include "topology/events.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::topology {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kProbedCores = 2;  // which worked at once (tools/slice_probes.cc)

}  // namespace

WalkCut::Slices WalkCut::of(const WalkStep& step, uint32_t round) const {
  const uint64_t chunk =
      (step.bytes + uint64_t{step.chunks} * stripes - 1) / (uint64_t{step.chunks} * stripes);
  const uint64_t done = uint64_t{round} * rounds.round_bytes;
  // An empty message still travels, in the first round.
  if (chunk <= done) return {.count = round == 0 ? 1u : 0u, .bytes = 0};
  uint64_t piece = std::min(chunk - done, rounds.round_bytes);
  uint64_t count = 0;
  if (rounds.count == 1) {  // adjacent chunks travel as one piece
    piece *= step.chunks;
    count = (piece + rounds.slice_bytes - 1) / rounds.slice_bytes;
  } else {
    count = (piece + rounds.slice_bytes - 1) / rounds.slice_bytes * step.chunks;
    piece *= step.chunks;
  }
  const uint64_t walked = (count + slices_in_one - 1) / slices_in_one;
  return {.count = static_cast<uint32_t>(walked),
          .bytes = static_cast<double>(piece * step.stripes) / static_cast<double>(walked),
          .stand_for = static_cast<double>(count) / static_cast<double>(walked)};
}

Events::Events(const Walk& walk, const WalkCut& cut, const Options& options)
    : walk_(walk),
      cut_(cut),
      options_(options),
      slot_count_(std::max(2u, cut.rounds.slots)),
      is_measured_(options.costs.is_measured()),
      lanes_(walk.lanes().size()),
      links_(walk.links().size()),
      round_end_us_(cut.walked_rounds, 0),
      ranks_(walk.rank_count()),
      call_end_us_(options.calls, 0) {
  // A GPU's lanes run on different multiprocessors. The lanes of a core take turns.
  uint32_t cores = 0;
  if (!options.costs.on_gpu()) {
    for (const WalkLane& lane : walk.lanes()) cores = std::max(cores, walk.core_of(lane.rank) + 1);
  }
  workers_.resize(options.costs.on_gpu() ? walk.lanes().size() : cores);
  has_other_cores_ = cores > kProbedCores;
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    const uint32_t rank = walk.lanes()[lane].rank;
    worker_of_.push_back(options.costs.on_gpu() ? lane : walk.core_of(rank));
    Worker& worker = workers_[worker_of_.back()];
    worker.is_shared = worker.is_shared || (worker.last_rank != kNone && worker.last_rank != rank);
    if (worker.last_rank != rank) ranks_[rank].place = worker.rank_count++;
    worker.last_rank = rank;
    ranks_[rank].lanes.push_back(lane);
    lanes_[lane].free_us = options.costs.call_us;
  }
  for (const Server& server : walk.servers()) servers_.push_back({.us_per_byte = server.us_per_byte});
  make_slots();
}

/// The first round has the most slices, so this many messages are enough of each link.
void Events::make_slots() {
  for (const WalkStep& step : walk_.steps()) {
    const uint32_t messages = cut_.of(step, 0).count * cut_.walked_rounds;
    for (const uint32_t link : walk_.writes_of(step)) {
      LinkState& state = links_[link];
      state.slots = std::min(slot_count_, state.slots + messages);
    }
  }
  uint32_t count = 0;
  for (LinkState& link : links_) {
    if (options_.calls > 1) link.slots = slot_count_;
    link.first_slot = count;
    count += link.slots;
  }
  slots_.resize(count);
  if (options_.trace) stories_.resize(count);
}

Status Events::run() {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (walk_.lanes()[lane].step_count == 0) continue;
    ++running_;
    ++ranks_[walk_.lanes()[lane].rank].lanes_left;
    go_on(lane, false);
  }
  while (!events_.empty()) {
    const EventQueue::Event event = events_.pop();
    if (event.us > options_.most_us) {
      stopped_ = true;
      end_us_ = event.us;
      return {};
    }
    if (event.is_message) {
      move_message(event.number, event.us);
    } else if (!is_measured_) {
      try_lane(event.number, event.us);
    } else if (lanes_[event.number].woken_us == event.us) {
      lanes_[event.number].woken_us = kNever;
      try_lane(event.number, event.us);
    }
  }
  if (running_ > 0) return {Code::kInvalidArgument, "the plans deadlock: steps are left that wait"};
  return {};
}

void Events::push_lane(uint32_t lane, double us, bool goes_on) {
  if (is_measured_) {
    if (us >= lanes_[lane].woken_us) return;  // the lane wakes before, and looks again
    lanes_[lane].woken_us = us;
  }
  events_.push(us, lane, false, goes_on);
}

/// The lane looks at its next slice when it is free, or when the last message of the slice comes.
void Events::go_on(uint32_t lane, bool goes_on) {
  if (!awaits_messages(lane)) push_lane(lane, lanes_[lane].free_us, goes_on);
}

/// Whether messages are missing for the lane's next slice. With measured costs a lane looks whenever one
/// comes, because other lanes of its core look then, too.
bool Events::awaits_messages(uint32_t lane) {
  LaneState& state = lanes_[lane];
  const WalkLane& at = walk_.lanes()[lane];
  if (is_measured_ || !next_slices(state, at)) return false;
  state.here_us = state.free_us;
  for (const uint32_t link : walk_.reads_of(walk_.steps()[at.first_step + state.step])) {
    LinkState& from = links_[link];
    from.reader_waits = from.arrived == from.taken;
    if (from.reader_waits) {
      ++state.missing;
    } else {
      state.here_us = std::max(state.here_us, slots_[slot(from, from.taken)].arrived_us);
    }
  }
  return state.missing > 0;
}

/// The last lane of a rank ends its call.
void Events::end_lane(uint32_t lane, double now_us) {
  --running_;
  RankState& rank = ranks_[walk_.lanes()[lane].rank];
  if (--rank.lanes_left > 0) return;
  call_end_us_[rank.calls_done] = std::max(call_end_us_[rank.calls_done], now_us);
  if (++rank.calls_done == options_.calls) return;
  const double start_us = now_us + options_.costs.call_us;
  Worker& worker = workers_[worker_of_[lane]];
  worker.free_us = std::max(worker.free_us, start_us);
  for (const uint32_t next : rank.lanes) {
    if (walk_.lanes()[next].step_count == 0) continue;
    ++running_;
    ++rank.lanes_left;
    LaneState fresh;
    fresh.free_us = start_us;
    fresh.last_span = lanes_[next].last_span;
    lanes_[next] = fresh;
    push_lane(next, start_us, true);
  }
}

/// Goes to the lane's next slice. False at the end of the lane.
bool Events::next_slices(LaneState& state, const WalkLane& lane) const {
  while (state.slice == state.slices.count) {
    if (state.slices.count > 0) ++state.step;
    for (;;) {
      if (state.step == lane.step_count) {
        state.step = 0;
        ++state.round;
      }
      if (state.round >= cut_.walked_rounds) return false;
      const WalkStep& step = walk_.steps()[lane.first_step + state.step];
      state.slices = cut_.of(step, state.round);
      if (state.slices.count > 0) break;
      ++state.step;
    }
    state.slice = 0;
  }
  return true;
}

void Events::try_lane(uint32_t lane, double now_us) {
  LaneState& state = lanes_[lane];
  const WalkLane& at = walk_.lanes()[lane];
  if (!next_slices(state, at)) return end_lane(lane, now_us);
  const WalkStep& step = walk_.steps()[at.first_step + state.step];
  uint32_t cause = state.last_span;
  Reason reason;
  const double start_us = ready_us(lane, step, now_us, &cause, &reason);
  if (start_us == kNever) return;
  if (start_us > now_us) return push_lane(lane, start_us);
  if (is_measured_) return take_turn(lane, now_us);
  Worker& worker = workers_[worker_of_[lane]];
  if (worker.free_us > now_us) {
    if (worker.waiting.empty()) push_lane(lane, worker.free_us);
    worker.waiting.push_back(lane);
    return;
  }
  if (!worker.waiting.empty()) {
    // The one that has waited longest is next. This lane, if it is another one, waits behind the others.
    if (worker.waiting.front() != lane) {
      if (std::find(worker.waiting.begin(), worker.waiting.end(), lane) == worker.waiting.end())
        worker.waiting.push_back(lane);
      return;
    }
    worker.waiting.pop_front();
  }
  if (worker.last_span != kNoSpan && worker.free_us >= now_us && worker.free_us > state.free_us) {
    cause = worker.last_span;
    reason = {};
  }
  run_slice(lane, step, now_us, cause, reason);
  if (!worker.waiting.empty()) push_lane(worker.waiting.front(), worker.free_us);
}

/// A ready lane gets its core if no other ready one is before it. A rank keeps its core while it has
/// something to do. Then the ranks of the core look in turn, each once.
void Events::take_turn(uint32_t lane, double now_us) {
  Worker& worker = workers_[worker_of_[lane]];
  if (std::find(worker.waiting.begin(), worker.waiting.end(), lane) == worker.waiting.end())
    worker.waiting.push_back(lane);
  if (worker.free_us > now_us) return push_lane(lane, worker.free_us);
  const auto behind_last = [&](uint32_t one) {
    return (one + lanes_.size() - worker.last_lane) % lanes_.size();
  };
  const auto key = [&](uint32_t one) {
    return std::pair(turn_us(worker, walk_.lanes()[one].rank, now_us), behind_last(one));
  };
  const auto next = std::ranges::min_element(worker.waiting, {}, key);
  const uint32_t chosen = *next;
  const double start_us = key(chosen).first;
  worker.waiting.erase(next);
  const WalkStep& step = walk_.steps()[walk_.lanes()[chosen].first_step + lanes_[chosen].step];
  uint32_t cause = lanes_[chosen].last_span;
  Reason reason;
  (void)ready_us(chosen, step, now_us, &cause, &reason);
  if (worker.last_span != kNoSpan && worker.free_us >= now_us && worker.free_us > lanes_[chosen].free_us) {
    cause = worker.last_span;
    reason = {};
  }
  run_slice(chosen, step, start_us, cause, reason);
  if (!worker.waiting.empty()) push_lane(worker.waiting.front(), worker.free_us);
}

/// When the rank looks next: the ranks of a core look one after the other from the one that ran last.
double Events::turn_us(const Worker& worker, uint32_t rank, double now_us) const {
  if (!worker.is_shared || worker.free_us == 0) return now_us;  // nothing has run yet
  const double one_us = static_cast<double>(options_.costs.measured.turn_ns.value) / 1000;
  const double ranks = worker.rank_count;
  double turns =
      (ranks_[rank].place + worker.rank_count - ranks_[worker.last_rank].place) % worker.rank_count;
  const double past = (now_us - worker.free_us) / one_us;
  if (past > turns) turns += std::ceil((past - turns) / ranks) * ranks;
  return worker.free_us + turns * one_us;
}

double Events::ready_us(uint32_t lane, const WalkStep& step, double now_us, uint32_t* cause, Reason* reason) {
  double ready_us = lanes_[lane].free_us;
  for (const uint32_t link : walk_.reads_of(step)) {
    LinkState& state = links_[link];
    if (state.arrived == state.taken) {
      state.reader_waits = true;
      return kNever;
    }
    const uint32_t number = slot(state, state.taken);
    if (slots_[number].arrived_us <= ready_us) continue;
    ready_us = slots_[number].arrived_us;
    if (!options_.trace) continue;
    const Story& told = stories_[number];
    *cause = told.sender;
    *reason = {.server = told.server, .latency_us = told.latency_us, .queued_us = told.queued_us};
  }
  for (const uint32_t link : walk_.writes_of(step)) {
    LinkState& state = links_[link];
    if (state.sent < slot_count_) continue;
    if (state.sent - state.taken >= slot_count_) {
      state.writer_waits = true;
      return kNever;
    }
    const uint32_t number = slot(state, state.sent);
    if (slots_[number].released_us <= ready_us) continue;
    ready_us = slots_[number].released_us;
    if (!options_.trace) continue;
    *cause = stories_[number].reader;
    *reason = {.latency_us = walk_.links()[link].latency_us};
  }
  return std::max(ready_us, now_us);
}

void Events::run_slice(uint32_t lane, const WalkStep& step, double start_us, uint32_t cause, Reason reason) {
  LaneState& state = lanes_[lane];
  const uint32_t rank = walk_.lanes()[lane].rank;
  Worker& worker = workers_[worker_of_[lane]];
  double begin_us = start_us;
  if (!is_measured_ && worker.is_shared && worker.last_rank != rank) begin_us += options_.costs.switch_us;
  const auto span = options_.trace ? static_cast<uint32_t>(spans_.size()) : kNoSpan;
  double end_us = work(lane, step, begin_us, reason);
  if (options_.costs.on_gpu())
    end_us = pass_links(step, state.slices.bytes, begin_us + reason.own_fixed_us, end_us, reason);
  reason.own_fixed_us += begin_us - start_us;
  ++slice_count_;
  if (options_.trace) {
    const SpanKind kind = step.reads > 0 ? (step.writes > 0 ? SpanKind::kPassesOn : SpanKind::kReceives)
                                         : (step.writes > 0 ? SpanKind::kSends : SpanKind::kLocal);
    spans_.push_back({.kind = kind,
                      .rank = rank,
                      .lane = lane,
                      .step = state.step,
                      .round = state.round,
                      .start_us = start_us,
                      .end_us = end_us,
                      .cause = cause});
    reasons_.push_back(reason);
  }
  take_messages(step, end_us, span);
  send_messages(step, state.slices, end_us, span);
  worker.free_us = end_us;
  worker.last_rank = rank;
  worker.last_span = span;
  worker.last_lane = lane;
  state.last_span = span;
  state.free_us = end_us;
  ++state.slice;
  end_us_ = std::max(end_us_, end_us);
  round_end_us_[state.round] = std::max(round_end_us_[state.round], end_us);
  go_on(lane, true);
}

/// A GPU's loads and stores over links and the work in its memory are one copy: the slowest one decides.
double Events::pass_links(const WalkStep& step, double bytes, double start_us, double end_us,
                          Reason& reason) {
  const auto decide = [&](const Served& served, double latency_us) {
    if (served.last_us + latency_us <= end_us) return;
    end_us = served.last_us + latency_us;
    reason.own_server = served.slowest;
    reason.own_queued_us = served.queued_us;
  };
  for (const uint32_t link : walk_.reads_of(step)) {
    const WalkLink& from = walk_.links()[link];
    // A load goes to the other end and comes back.
    if (from.is_collected) decide(serve(walk_.hops_of(from.own), start_us, bytes), 2 * from.latency_us);
  }
  for (const uint32_t link : walk_.writes_of(step)) {
    const WalkLink& to = walk_.links()[link];
    const auto hops = to.is_collected ? std::span<const Hop>() : walk_.hops_of(to.own);
    outgoing_.push_back(serve(hops, start_us, bytes));
    decide(outgoing_.back(), 0);
  }
  return end_us;
}

/// A slice of a step between ranks on cores, with measured costs: what each end takes alone, as far as the
/// ends do not overlap.
double Events::measured_slice_us(const WalkStep& step, double bytes) const {
  const SliceCosts& costs = options_.costs.measured;
  const auto beyond_us = [&](SliceWork work) { return costs.beyond_copy_us(work, bytes); };
  const bool reduces = step.sources > 1;
  double us = reduces ? (step.sources - 1) * beyond_us(SliceWork::kReduce) : 0;
  us += step.buffer_reads * beyond_us(SliceWork::kRead) + step.buffer_writes * beyond_us(SliceWork::kWrite);
  uint32_t received = 0;
  for (const uint32_t link : walk_.reads_of(step)) {
    if (walk_.links()[link].is_between_hosts()) {
      us += beyond_us(SliceWork::kSocketReceive);
      continue;
    }
    received += is_own_core(link) ? 0 : 1;
    us += beyond_us(is_own_core(link) ? SliceWork::kReceiveOwn : SliceWork::kReceive);
  }
  uint32_t left = step.slot_writes;  // a slot that several ranks read is written once
  uint32_t sent = 0;
  for (const uint32_t link : walk_.writes_of(step)) {
    if (walk_.links()[link].is_between_hosts()) us += beyond_us(SliceWork::kSocketSend);
    if (walk_.links()[link].is_between_hosts() || left == 0) continue;
    --left;
    sent += is_own_core(link) ? 0 : 1;
    us += beyond_us(is_own_core(link) ? SliceWork::kSendOwn : SliceWork::kSend);
  }
  double part = 1;
  if (reduces && step.buffer_writes > 0) part = std::min(part, costs.part_of_reduce(bytes));
  if (received > 0 && step.buffer_writes > 0)
    part = std::min(part,
                    costs.part_of(SliceWork::kReceiveMemory, SliceWork::kReceive, SliceWork::kWrite, bytes));
  if (sent > 0 && step.buffer_reads > 0)
    part = std::min(part, costs.part_of(SliceWork::kSendMemory, SliceWork::kRead, SliceWork::kSend, bytes));
  if (step.buffer_reads > 0 && step.buffer_writes > 0)
    part = std::min(part, costs.part_of(SliceWork::kCopyMemory, SliceWork::kRead, SliceWork::kWrite, bytes));
  return costs.us(SliceWork::kCopy, bytes) + us * part;
}

std::span<const Hop> Events::shared_part(std::span<const Hop> hops) const {
  const auto is_own = [&](const Hop& hop) { return walk_.servers()[hop.server].is_cores_own; };
  while (!hops.empty() && is_own(hops.front())) hops = hops.subspan(1);
  while (!hops.empty() && is_own(hops.back())) hops = hops.first(hops.size() - 1);
  return hops;
}

/// When the ways that cores share have carried the slices. The probes say what two cores take, so ways matter
/// where more cores meet.
double Events::pass_shared(uint32_t lane, const WalkStep& step, double start_us, double bytes,
                           Reason& reason) {
  const WalkLane& at = walk_.lanes()[lane];
  double end_us = start_us;
  const auto pass = [&](std::span<const Hop> hops, double moved) {
    if (hops.empty() || moved == 0) return;
    const Served served = serve(hops, start_us, moved);
    if (served.last_us <= end_us) return;
    end_us = served.last_us;
    reason.own_server = served.slowest;
    reason.own_queued_us = served.queued_us;
  };
  for (const uint32_t link : walk_.reads_of(step)) {
    if (!walk_.links()[link].is_network) pass(shared_part(walk_.hops_of(walk_.links()[link].own)), bytes);
  }
  pass(shared_part(walk_.memory_to(at)), bytes * step.buffer_reads);
  pass(shared_part(walk_.memory_from(at)), bytes * step.buffer_writes);
  return end_us;
}

double Events::measured_work(uint32_t lane, const WalkStep& step, double start_us, Reason& reason) {
  const LaneState& state = lanes_[lane];
  const auto is_network = [&](uint32_t link) { return walk_.links()[link].is_network; };
  const auto network = std::ranges::count_if(walk_.reads_of(step), is_network) +
                       std::ranges::count_if(walk_.writes_of(step), is_network);
  // The curves of sockets have it.
  const double network_us = options_.costs.measured.know_sockets()
                                ? 0
                                : options_.costs.network_step_us * static_cast<double>(network);
  const double slices = state.slices.stand_for;
  const double work_us = slices * (measured_slice_us(step, state.slices.bytes / slices) + network_us);
  reason.own_fixed_us = work_us;
  double end_us = start_us + work_us;
  if (options_.trace)
    reason.own_fixed_us = std::min(work_us, slices * (measured_slice_us(step, 0) + network_us));
  if (has_other_cores_)
    end_us = std::max(end_us, pass_shared(lane, step, start_us, state.slices.bytes, reason));
  return end_us;
}

/// From the end of the sender's slice to the beginning of the receiver's.
double Events::latency_us(uint32_t link, double bytes) const {
  if (!is_measured_) return walk_.links()[link].latency_us + options_.costs.message_us;
  const SliceCosts& costs = options_.costs.measured;
  if (walk_.links()[link].is_socket) return socket_latency_us(bytes);
  if (is_own_core(link)) return 0;
  const double probed_us = costs.us(SliceWork::kPass, bytes) - costs.us(SliceWork::kSendMemory, bytes) -
                           costs.us(SliceWork::kReceiveMemory, bytes);
  const double apart_us = static_cast<double>(costs.apart_ns.value) / 1000;
  const double beyond_us = apart_us > 0 ? walk_.links()[link].latency_us - apart_us : 0;
  return std::max(0.0, probed_us) + std::max(0.0, beyond_us);
}

/// What a message over a socket takes beyond the work of its ends, as far as that does not overlap.
double Events::socket_latency_us(double bytes) const {
  const SliceCosts& costs = options_.costs.measured;
  const double ends_us =
      costs.us(SliceWork::kSocketSend, bytes) + costs.beyond_copy_us(SliceWork::kRead, bytes) +
      costs.us(SliceWork::kSocketReceive, bytes) + costs.beyond_copy_us(SliceWork::kWrite, bytes);
  return std::max(0.0, costs.us(SliceWork::kSocketPass, bytes) - ends_us);
}

/// Between two arrivals on a link: its lines go back and forth.
double Events::gap_us(uint32_t link, double bytes) const {
  if (walk_.links()[link].is_socket) return options_.costs.measured.us(SliceWork::kSocketStream, bytes);
  if (is_own_core(link)) return 0;
  return options_.costs.measured.us(SliceWork::kStream, bytes);
}

/// The rank's own part: fixed costs, then bytes into the rank and out of it at the same time.
double Events::work(uint32_t lane, const WalkStep& step, double start_us, Reason& reason) {
  if (is_measured_) return measured_work(lane, step, start_us, reason);
  const WalkLane& at = walk_.lanes()[lane];
  const LaneState& state = lanes_[lane];
  const RankCosts& costs = options_.costs;
  const auto is_network = [&](uint32_t link) { return walk_.links()[link].is_network; };
  const auto network = std::ranges::count_if(walk_.reads_of(step), is_network) +
                       std::ranges::count_if(walk_.writes_of(step), is_network);
  reason.own_fixed_us =
      state.slices.stand_for * (costs.step_us + costs.network_step_us * static_cast<double>(network));
  const double begin_us = start_us + reason.own_fixed_us;
  const double bytes = state.slices.bytes;
  if (bytes == 0) return begin_us;
  double in_us = begin_us;
  const auto decide = [&](const Served& served) {
    reason.own_server = served.slowest;
    reason.own_queued_us += served.queued_us;
  };
  if (costs.on_gpu()) {
    const Served served =
        serve(walk_.memory_to(at), begin_us, bytes * (step.memory_reads + step.memory_writes));
    decide(served);
    return served.last_us;
  }
  for (const uint32_t link : walk_.reads_of(step)) {
    if (is_network(link)) continue;
    const Served served = serve(walk_.hops_of(walk_.links()[link].own), in_us, bytes);
    decide(served);
    in_us = std::max(in_us, served.last_us);
  }
  if (step.memory_reads > 0) {
    const Served served = serve(walk_.memory_to(at), in_us, bytes * step.memory_reads);
    decide(served);
    in_us = std::max(in_us, served.last_us);
  }
  if (step.memory_writes == 0) return in_us;
  const Served served = serve(walk_.memory_from(at), begin_us, bytes * step.memory_writes);
  if (served.last_us > in_us) {
    reason.own_queued_us = 0;
    decide(served);
  }
  return std::max(in_us, served.last_us);
}

void Events::take_messages(const WalkStep& step, double end_us, uint32_t span) {
  for (const uint32_t link : walk_.reads_of(step)) {
    LinkState& state = links_[link];
    const uint32_t number = slot(state, state.taken++);
    const double released_us = end_us + walk_.links()[link].latency_us;
    slots_[number].released_us = released_us;
    if (options_.trace) stories_[number].reader = span;
    if (!state.writer_waits) continue;
    state.writer_waits = false;
    push_lane(walk_.links()[link].writer, released_us);
  }
}

void Events::send_messages(const WalkStep& step, const WalkCut::Slices& slices, double end_us,
                           uint32_t span) {
  size_t number = 0;
  for (const uint32_t link : walk_.writes_of(step)) {
    const WalkLink& to = walk_.links()[link];
    ++links_[link].sent;
    const Served served =
        options_.costs.on_gpu() ? outgoing_[number++] : Served{.first_us = end_us, .last_us = end_us};
    if (!to.is_network) {
      const double one = slices.bytes / slices.stand_for;
      const double after_us = latency_us(link, one);
      double at_us = std::max(end_us, served.last_us) + after_us;
      if (is_measured_) {
        at_us = std::max(at_us, links_[link].last_us + slices.stand_for * gap_us(link, one));
        links_[link].last_us = at_us;
      }
      arrive(link, at_us, {.sender = span, .latency_us = static_cast<float>(after_us)});
      continue;
    }
    if (free_messages_.empty()) {
      free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
      messages_.emplace_back();
    }
    const uint32_t message = free_messages_.back();
    free_messages_.pop_back();
    messages_[message] = {.link = link,
                          .has_left = options_.costs.on_gpu(),
                          .bytes = slices.bytes,
                          .last_byte_us = served.last_us,
                          .queued_us = 0,
                          .sender = span};
    events_.push(served.first_us, message, true, false);
  }
  outgoing_.clear();
}

/// A message between hosts leaves its host, and then passes the network and the receiver's host.
void Events::move_message(uint32_t number, double now_us) {
  Message& message = messages_[number];
  const WalkLink& link = walk_.links()[message.link];
  if (!message.has_left) {
    const Served served = serve(walk_.hops_of(link.own), now_us, message.bytes);
    message.has_left = true;
    message.last_byte_us = served.last_us;
    message.queued_us = served.queued_us;
    events_.push(served.first_us, number, true, false);
    return;
  }
  Served served = serve(walk_.hops_of(link.between), now_us, message.bytes);
  pass(walk_.hops_of(link.last), message.bytes, served);
  uint32_t slowest = served.slowest;
  for (const Hop& hop : options_.trace ? walk_.hops_of(link.own) : std::span<const Hop>()) {
    if (slowest == UINT32_MAX ||
        walk_.servers()[hop.server].us_per_byte > walk_.servers()[slowest].us_per_byte)
      slowest = hop.server;
  }
  const double latency_us = link.latency_us + options_.costs.network_message_us;
  const Message done = message;
  free_messages_.push_back(number);
  arrive(done.link, std::max(done.last_byte_us, served.last_us) + latency_us,
         {.sender = done.sender,
          .server = slowest,
          .latency_us = static_cast<float>(latency_us),
          .queued_us = static_cast<float>(done.queued_us + served.queued_us)});
}

void Events::arrive(uint32_t link, double us, const Story& told) {
  LinkState& state = links_[link];
  const uint32_t number = slot(state, state.arrived++);
  slots_[number].arrived_us = us;
  if (options_.trace) stories_[number] = told;
  if (!state.reader_waits) return;
  state.reader_waits = false;
  const uint32_t reader = walk_.links()[link].reader;
  if (is_measured_) return push_lane(reader, us);
  LaneState& lane = lanes_[reader];
  lane.here_us = std::max(lane.here_us, us);
  if (--lane.missing == 0) push_lane(reader, lane.here_us, lane.here_us == lane.free_us);
}

Events::Served Events::serve(std::span<const Hop> hops, double now_us, double bytes) {
  Served served{.first_us = now_us, .last_us = now_us};
  pass(hops, bytes, served);
  return served;
}

/// Goes on behind the servers that have served the bytes.
void Events::pass(std::span<const Hop> hops, double bytes, Served& served) {
  for (const Hop& hop : hops) {
    ServerState& server = servers_[hop.server];
    const double needs_us = bytes * server.us_per_byte * static_cast<double>(hop.factor);
    const double begin_us = std::max(served.first_us, server.free_us);
    served.queued_us += begin_us - served.first_us;
    served.first_us = begin_us;
    served.last_us = std::max(served.last_us, begin_us + needs_us);
    server.free_us = begin_us + needs_us;
    server.busy_us += needs_us;
    server.bytes += bytes * static_cast<double>(hop.factor);
    if (needs_us > served.slowest_us) {
      served.slowest_us = needs_us;
      served.slowest = hop.server;
    }
  }
}

}  // namespace tutti::topology
