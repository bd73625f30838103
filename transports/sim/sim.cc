// SimNetwork: the events, and the links that they act on. See sim.h.
#include "transports/sim/sim.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace tutti {

uint64_t SimRandom::next() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void SimNetwork::FreeRing::operator()(std::byte* ring) const {
  ::operator delete[](ring, std::align_val_t{alignof(Cell)});
}

SimNetwork::SimNetwork(const SimOptions& options)
    : options_(options), random_(options.seed), ranks_(options.rank_count), published_(options.rank_count) {}

// ---- links

RingShape SimNetwork::shape(uint32_t readers) const {
  return {.slots = options_.slots, .slot_bytes = options_.slot_bytes, .readers = readers};
}

SimNetwork::Ring SimNetwork::make_ring(uint32_t readers) const {
  const size_t bytes = shape(readers).ring_bytes();
  Ring ring(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{alignof(Cell)})));
  std::memset(ring.get(), 0, bytes);
  return ring;
}

SimNetwork::Source& SimNetwork::make_source(uint32_t writer, uint32_t readers) {
  auto source = std::make_unique<Source>();
  source->ring = make_ring(readers);
  source->link = SendLink::at(source->ring.get(), shape(readers));
  source->link.peer = writer;
  source->link.same_process = !options_.pull;
  source->link.next = options_.first_number;
  source->link.limit = options_.first_number + options_.slots;
  for (uint32_t i = 0; i < readers; ++i) {
    store_shared(source->link.credits[i].released, options_.first_number);
    store_shared(source->link.credits[i].can_pull, options_.pull ? 1 : 0);
  }
  sources_.push_back(std::move(source));
  return *sources_.back();
}

std::unique_ptr<SimNetwork::Wire> SimNetwork::make_wire(uint32_t writer, uint32_t reader, Source& source,
                                                        uint32_t credit) {
  auto wire = std::make_unique<Wire>();
  wire->writer = writer;
  wire->reader = reader;
  wire->source = &source;
  wire->credit = credit;
  wire->ring = make_ring(1);
  wire->link = RecvLink::at(wire->ring.get(), shape(1), 0);
  wire->link.peer = writer;
  wire->link.next = options_.first_number;
  store_shared(wire->link.credit->released, options_.first_number);
  if (options_.pull) {
    wire->bounce.resize(size_t{3} * options_.slot_bytes);
    wire->link.bounce = wire->bounce.data();
    wire->link.bounce_bytes = wire->bounce.size();
    wire->link.pull_pid = getpid();
  }
  wire->cells = reinterpret_cast<Cell*>(wire->ring.get());
  wire->slots = wire->ring.get() + shape(1).header_bytes();
  wire->taken = wire->delivered = wire->returned = options_.first_number;
  ranks_[writer].outgoing.push_back(wire.get());
  ranks_[reader].incoming.push_back(wire.get());
  return wire;
}

SimNetwork::Wire& SimNetwork::wire(uint32_t writer, uint32_t reader, uint32_t channel) {
  std::unique_ptr<Wire>& wire = wires_[{writer, reader, channel}];
  if (wire == nullptr) {
    Source& source = make_source(writer, 1);
    source.link.peer = reader;
    wire = make_wire(writer, reader, source, 0);
  }
  return *wire;
}

void SimNetwork::publish(uint32_t writer) {
  if (!published_[writer].empty()) return;
  Source& source = make_source(writer, options_.rank_count);
  source.link.self_reader = writer;
  for (uint32_t reader = 0; reader < options_.rank_count; ++reader) {
    published_[writer].push_back(reader == writer ? nullptr : make_wire(writer, reader, source, reader));
  }
}

SendLink* SimNetwork::send_link(uint32_t writer, uint32_t reader, uint32_t channel) {
  return &wire(writer, reader, channel).source->link;
}

RecvLink* SimNetwork::recv_link(uint32_t writer, uint32_t reader, uint32_t channel) {
  return &wire(writer, reader, channel).link;
}

SendLink* SimNetwork::publish_link(uint32_t writer) {
  publish(writer);
  return &published_[writer][writer == 0 ? 1 : 0]->source->link;
}

RecvLink* SimNetwork::published_by(uint32_t writer, uint32_t reader) {
  publish(writer);
  return &published_[writer][reader]->link;
}

// ---- faults

void SimNetwork::slow_rank(uint32_t rank, uint32_t factor) {
  ranks_[rank].slowness = factor;
}

void SimNetwork::stop_rank_after_turns(uint32_t rank, uint64_t turns) {
  ranks_[rank].turns_left = turns;
  ranks_[rank].stopped = ranks_[rank].stopped || turns == 0;
}

void SimNetwork::stop_rank_after_messages(uint32_t rank, uint64_t messages) {
  ranks_[rank].messages_most = messages;
}

void SimNetwork::tear_link(uint32_t writer, uint32_t reader, uint32_t channel, uint64_t messages) {
  wire(writer, reader, channel).tear_at = options_.first_number + messages;
}

void SimNetwork::revive_rank(uint32_t rank) {
  ranks_[rank].turns_left = UINT64_MAX;
  ranks_[rank].messages_most = UINT64_MAX;
  ranks_[rank].stopped = false;
  progress(rank);
  wake(rank);
}

// ---- the clock

void SimNetwork::push(Event event) {
  event.order = event_count_++;
  events_.push(event);
}

void SimNetwork::wake(uint32_t rank) {
  Rank& woken = ranks_[rank];
  if (woken.turn_due || woken.stopped) return;
  woken.turn_due = true;
  push({.time = now_ + 1 + random_.below(options_.turn_ticks) * woken.slowness,
        .kind = EventKind::kTurn,
        .rank = rank});
}

std::optional<uint32_t> SimNetwork::next_turn() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    switch (event.kind) {
      case EventKind::kTurn: {
        Rank& rank = ranks_[event.rank];
        rank.turn_due = false;
        if (rank.stopped) break;
        return event.rank;
      }
      case EventKind::kMessage: deliver(*event.wire); break;
      case EventKind::kCredit:
        if (event.wire->torn) break;
        store_shared(event.wire->source->link.credits[event.wire->credit].released, event.value);
        wake(event.wire->writer);
        break;
    }
  }
  return std::nullopt;
}

uint64_t SimNetwork::travel_ticks() {
  const uint64_t stall = random_.one_in(options_.stall_one_in) ? options_.stall_ticks : 0;
  return 1 + random_.below(options_.delay_ticks) + stall;
}

// ---- the network

void SimNetwork::progress(uint32_t number) {
  Rank& rank = ranks_[number];
  if (rank.stopped) return;
  // A rank that stops inside its last turn may or may not have released what it read.
  const bool credits_first = random_.one_in(2);
  if (credits_first) take_credits(rank);
  if (rank.messages_most == UINT64_MAX) {
    take_messages(rank);
  } else {
    take_messages_until_stop(rank);
  }
  if (rank.turns_left != UINT64_MAX && --rank.turns_left == 0) rank.stopped = true;
  if (!credits_first && !rank.stopped) take_credits(rank);
}

void SimNetwork::take_messages(Rank& rank) {
  for (Wire* wire : rank.outgoing) {
    while (wire->taken < wire->source->link.next) take_message(*wire);
  }
}

/// Which links a rank wrote before it died cannot be seen from outside, so any order may occur.
void SimNetwork::take_messages_until_stop(Rank& rank) {
  std::vector<Wire*> ready;
  for (Wire* wire : rank.outgoing) {
    if (wire->taken < wire->source->link.next) ready.push_back(wire);
  }
  while (!ready.empty() && rank.messages < rank.messages_most) {
    Wire*& wire = ready[random_.below(ready.size())];
    take_message(*wire);
    if (wire->taken == wire->source->link.next) {
      wire = ready.back();
      ready.pop_back();
    }
  }
  rank.stopped = rank.stopped || rank.messages >= rank.messages_most;
}

void SimNetwork::take_message(Wire& wire) {
  ++wire.taken;
  ++ranks_[wire.writer].messages;
  wire.message_due = std::max(wire.message_due, now_ + travel_ticks());
  push({.time = wire.message_due, .kind = EventKind::kMessage, .wire = &wire});
}

void SimNetwork::take_credits(Rank& rank) {
  for (Wire* wire : rank.incoming) {
    const uint64_t released = load_shared(wire->link.credit->released);
    if (released == wire->returned) continue;
    wire->returned = released;
    wire->credit_due = std::max(wire->credit_due, now_ + travel_ticks());
    push({.time = wire->credit_due, .kind = EventKind::kCredit, .wire = wire, .value = released});
  }
}

/// The writes become visible in this order: slot, payload, flag word.
void SimNetwork::deliver(Wire& wire) {
  if (wire.torn) return;
  if (wire.delivered == wire.tear_at) {
    tear(wire);
    return;
  }
  assert(wire.delivered - load_shared(wire.link.credit->released) < options_.slots &&
         "the writer overran its credits");
  const uint64_t index = wire.delivered & (options_.slots - 1);
  const SendLink& source = wire.source->link;
  const Cell& from = source.cells[index];
  Cell& to = wire.cells[index];
  const uint64_t word = load_shared(from.word);
  assert((word & flag::kNumberMask) == ((wire.delivered + 1) & flag::kNumberMask) &&
         "the writer lost a message");
  if (flag::carriage(word) == Carriage::kSlot) {
    const size_t offset = index * options_.slot_bytes;
    std::memcpy(wire.slots + offset, source.slots + offset, flag::bytes(word));
  }
  std::memcpy(to.payload, from.payload, sizeof(to.payload));
  store_shared(to.word, word);
  ++wire.delivered;
  wake(wire.reader);
}

/// Half of the message arrives, and its flag never does.
void SimNetwork::tear(Wire& wire) {
  const uint64_t index = wire.delivered & (options_.slots - 1);
  const SendLink& source = wire.source->link;
  const size_t offset = index * options_.slot_bytes;
  std::memcpy(wire.slots + offset, source.slots + offset, options_.slot_bytes / 2);
  std::memcpy(wire.cells[index].payload, source.cells[index].payload, kInlineBytes / 2);
  wire.torn = true;
}

}  // namespace tutti
