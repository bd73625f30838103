#include "plan/price_graph.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

/// More steps take a minute and gigabytes.
constexpr size_t kMaxSteps = size_t{1} << 26;

}  // namespace

/// Both ends of a message have its key. It holds the receiver as a sender on host 0 would see it, so that
/// the key is the same on all hosts.
uint64_t PriceGraph::key(uint32_t from, uint32_t to, uint8_t channel) const {
  const uint32_t hosts = rank_count_ / ranks_;
  const uint32_t host = from / ranks_;
  const uint32_t back = shift_ == HostShift::kAdd ? (hosts - host) % hosts : host;
  const uint32_t receiver = hosts == 1 ? to : shifted(to, back, rank_count_, ranks_, shift_);
  return (uint64_t{from % ranks_} << 36) | (uint64_t{receiver} << 8) | channel;
}

PriceGraph::Way PriceGraph::way(uint32_t from, uint32_t to) const {
  if (from == to) return Way::kNone;
  return host_of(from) == host_of(to) ? Way::kLink : Way::kNetwork;
}

Status PriceGraph::add(const Plan& plan) {
  for (const Lane& lane : plan.lanes) {
    bool is_first = true;
    for (const tutti::Step& step : lane.steps) {
      if (steps_.size() == kMaxSteps) {
        return {Code::kInvalidArgument,
                format("the plans have more than %zu steps: too many to price", kMaxSteps)};
      }
      add_step(plan, step, is_first);
      is_first = false;
    }
  }
  ++added_;
  return Status::ok();
}

uint64_t PriceGraph::step_bytes(const Plan& plan, const tutti::Step& step) const {
  const uint64_t cut = plan.chunks_per_block;
  const uint64_t longer = block_bytes_ % cut;  // chunks of a block that have one byte more
  const auto before = [&](uint64_t chunk) {
    return chunk / cut * block_bytes_ + chunk % cut * (block_bytes_ / cut) + std::min(chunk % cut, longer);
  };
  return before(uint64_t{step.first_chunk} + step.chunk_count) - before(step.first_chunk);
}

void PriceGraph::add_step(const Plan& plan, const tutti::Step& step, bool is_first) {
  const auto number = static_cast<uint32_t>(steps_.size());
  const uint64_t bytes = step_bytes(plan, step);
  const uint32_t network = add_receives(number, added_, step) + add_sends(number, added_, step, bytes);
  // What is collected is reduced on its way: once its size arrives.
  const auto arrives = [](const End& end) {
    return end.kind == EndKind::kLink || end.kind == EndKind::kCollect;
  };
  const uint64_t arrived = bytes * static_cast<uint64_t>(std::ranges::count_if(step.sources, arrives));
  const uint64_t touched = bytes * (step.sources.size() + step.sinks.size()) - arrived;
  link_bytes_ += arrived;
  memory_bytes_ += touched;
  const double overhead_us =
      costs_.step_overhead_us + costs_.network_overhead_us * static_cast<double>(network);
  steps_.push_back({.rank = added_,
                    .is_first = is_first,
                    .bytes = bytes,
                    .duration_us = overhead_us + static_cast<double>(touched) / costs_.memory_bytes_per_us +
                                   static_cast<double>(arrived) / costs_.link_bytes_per_us});
}

/// How many of them come from other hosts.
uint32_t PriceGraph::add_receives(uint32_t number, uint32_t rank, const tutti::Step& step) {
  uint32_t network = 0;
  for (const End& end : step.sources) {
    const bool collects = end.kind == EndKind::kCollect;
    if (!collects && end.kind != EndKind::kLink) continue;
    const uint32_t last = collects ? rank_count_ : end.peer + 1;
    for (uint32_t from = collects ? 0 : end.peer; from < last; ++from) {
      const Way kind = way(from, rank);
      network += kind == Way::kNetwork ? 1 : 0;
      receives_.push_back({key(from, rank, collects ? kCollectChannel : end.channel), number, kind});
    }
  }
  return network;
}

uint32_t PriceGraph::add_sends(uint32_t number, uint32_t rank, const tutti::Step& step, uint64_t bytes) {
  uint32_t network = 0;
  for (const End& end : step.sinks) {
    const bool publishes = end.kind == EndKind::kPublish;
    if (!publishes && end.kind != EndKind::kLink) continue;
    const uint32_t last = publishes ? rank_count_ : end.peer + 1;
    for (uint32_t to = publishes ? 0 : end.peer; to < last; ++to) {
      if (publishes && to == rank) continue;
      const Way kind = way(rank, to);
      network += kind == Way::kNetwork ? 1 : 0;
      sends_.push_back({key(rank, to, publishes ? kPublishChannel : end.channel), number, kind});
    }
  }
  network_bytes_ += bytes * network;
  return network;
}

/// The indices of the ends, sorted by key; ends with equal keys stay in their order.
std::vector<uint32_t> PriceGraph::by_key(const std::vector<MessageEnd>& ends) {
  std::vector<uint32_t> order(ends.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) { return ends[i].key; });
  return order;
}

Status PriceGraph::finish() {
  if (sends_.size() != receives_.size())
    return {Code::kInvalidArgument,
            format("the plans send %zu messages and receive %zu", sends_.size(), receives_.size())};
  const std::vector<uint32_t> send_order = by_key(sends_);
  const std::vector<uint32_t> receive_order = by_key(receives_);
  waits_.assign(steps_.size(), 0);
  std::vector<Follower> readers(sends_.size());  // by send
  for (size_t i = 0; i < send_order.size(); ++i) {
    const MessageEnd& receive = receives_[receive_order[i]];
    if (sends_[send_order[i]].key != receive.key)
      return {Code::kInvalidArgument, "a message is sent and never received, or received and never sent"};
    readers[send_order[i]] = {receive.step, receive.way};
    ++waits_[receive.step];
  }
  // A step's messages leave in the order of its sinks.
  followers_.reserve(steps_.size() + sends_.size());
  followers_first_.reserve(steps_.size() + 1);
  size_t send = 0;
  for (uint32_t step = 0; step < steps_.size(); ++step) {
    followers_first_.push_back(static_cast<uint32_t>(followers_.size()));
    for (; send < sends_.size() && sends_[send].step == step; ++send) followers_.push_back(readers[send]);
    const uint32_t next = step + 1;
    if (next == steps_.size() || steps_[next].is_first) continue;
    followers_.push_back({next, Way::kNone});
    ++waits_[next];
  }
  followers_first_.push_back(static_cast<uint32_t>(followers_.size()));
  sends_ = {};
  receives_ = {};
  return Status::ok();
}

}  // namespace tutti
