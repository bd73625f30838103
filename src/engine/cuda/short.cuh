// Short calls: plans whose messages travel as packets that hold data and flag together. A message costs one
// store and one load: no fence, no slot, no credit.
//
// First every thread pushes its packets into the receivers' mailboxes, without waiting. After a barrier it
// polls the packets that it needs, reduces or copies them and writes the result, to memory or as packets of
// the same index to other ranks. A rank's own contribution comes through its own mailbox too, so a block that
// gave up can poll again even if the result overwrites the input. Then the block sends some results again:
// the same packets to the same places, which their readers do not reuse before this rank's next call.
//
// Every thread takes its packets in the plan's order, so nobody waits for a packet that waits for this
// thread.
//
// In each call every rank sends every rank at least one packet. A rank that has ended call n knows that all
// ranks began call n, after ending n - 1. So nobody reads the half of n - 1 any more, and n + 1 may use it:
// two halves are enough, without credits.
//
// A flag holds 12 bits of the call's number and the call's signature. A packet with the right number and
// another signature is a mismatch. A rarely used packet could show a flag of long ago, so each call also
// writes some packets that it does not use: all of them in kRenewalPeriod calls.
#pragma once

#include "engine/cuda/device.h"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/move.cuh"
#include "engine/cuda/program.h"

namespace tutti::cuda {

struct ShortState : BlockState {
  ShortLane table;
  Calculation pushing;
  Calculation pulling;
  uint64_t half;   ///< offset of this call's half in a mailbox
  uint32_t epoch;  ///< low bits of the short call's number
  uint32_t mark;   ///< flag of its packets
};

// ---- beginning ----------------------------------------------------------------------------------

/// Copies a lane's table at once, so that no step waits for the next step's entry.
TUTTI_DEVICE void load_ahead(ShortState& block) {
  const auto* from = reinterpret_cast<const Packet*>(block.program.short_lanes + block.lane_index);
  auto* to = reinterpret_cast<Packet*>(&block.table);
  for (uint32_t i = first_word(3 * kWarpThreads); i < block.program.short_bytes / sizeof(Packet);
       i += device::thread_count())
    to[i] = device::load_packet(from + i);
}

/// Sets the flag and the mailbox half of this call (one thread).
TUTTI_DEVICE void begin_packets(ShortState& block) {
  const uint64_t number = block.state.short_calls + 1;
  block.epoch = static_cast<uint32_t>(number) & kEpochMask;
  block.half = (number & 1) * kHalfMailboxBytes;
  const auto signature = static_cast<uint32_t>(block.history >> 32) & ~kEpochMask;
  block.mark = signature | block.epoch;
}

TUTTI_DEVICE void begin_call(ShortState& block) {
  begin_packets(block);
  const ShortLane& table = block.table;
  block.pushing = {.source_count = 1,
                   .scaled_sources = table.pushing_scaled,
                   .finishes = 0,
                   .arithmetic = block.slice.arithmetic};
  block.pulling = {.source_count = table.pulling_sources,
                   .scaled_sources = table.pulling_scaled,
                   .finishes = table.pulling_finishes,
                   .arithmetic = block.slice.arithmetic};
}

// ---- data and packets ---------------------------------------------------------------------------

TUTTI_DEVICE unsigned char* memory_at(const ShortState& block, const ShortEnd& end) {
  // Nobody writes the input; one function serves both directions.
  auto* const base = end.kind == EndKind::kInput ? const_cast<void*>(block.part.input) : block.part.output;
  return static_cast<unsigned char*>(base) + end.location;
}
TUTTI_DEVICE Mail* packet_at(const ShortState& block, uint64_t location, uint32_t index) {
  return reinterpret_cast<Mail*>(location + block.half) + index;
}
TUTTI_DEVICE uint64_t data_offset(const ShortState& block, uint32_t index) {
  return static_cast<uint64_t>(index) * block.table.data_bytes;
}
TUTTI_DEVICE uint32_t data_bytes(const ShortState& block, const ShortStep& step, uint32_t index) {
  const uint32_t most = block.table.data_bytes;
  const uint32_t left = step.bytes - index * most;
  return left < most ? left : most;
}

/// Loads up to 12 bytes, in words of 4 bytes where aligned.
TUTTI_DEVICE PacketData load_data(const unsigned char* from, uint32_t bytes) {
  PacketData data = {};
  if (((reinterpret_cast<uint64_t>(from) | bytes) & 3) == 0) {
    TUTTI_UNROLL
    for (uint32_t w = 0; w < kPacketWords; ++w) {
      if (4 * w < bytes) data.words[w] = *reinterpret_cast<const uint32_t*>(from + 4 * w);
    }
  } else {
    TUTTI_UNROLL
    for (uint32_t i = 0; i < kFullPacketDataBytes; ++i) {
      if (i < bytes) data.words[i / 4] |= static_cast<uint32_t>(from[i]) << (8 * (i % 4));
    }
  }
  return data;
}
TUTTI_DEVICE void store_data(unsigned char* to, const PacketData& data, uint32_t bytes) {
  if (((reinterpret_cast<uint64_t>(to) | bytes) & 3) == 0) {
    TUTTI_UNROLL
    for (uint32_t w = 0; w < kPacketWords; ++w) {
      if (4 * w < bytes) *reinterpret_cast<uint32_t*>(to + 4 * w) = data.words[w];
    }
  } else {
    TUTTI_UNROLL
    for (uint32_t i = 0; i < kFullPacketDataBytes; ++i) {
      if (i < bytes) to[i] = static_cast<unsigned char>(data.words[i / 4] >> (8 * (i % 4)));
    }
  }
}

/// Writes a packet's data to all sinks of the step. `from`: where the data lies already, or null.
TUTTI_DEVICE void deliver(const ShortState& block, const ShortStep& step, uint32_t index,
                          const PacketData& data, const unsigned char* from) {
  const Mail mail{{data.words[0], data.words[1], data.words[2]}, block.mark};
  TUTTI_NO_UNROLL
  for (uint32_t m = 0; m < step.sink_count; ++m) {
    const ShortEnd& sink = step.ends[step.source_count + m];
    if (sink.kind == EndKind::kSend) {
      device::store_mail(packet_at(block, sink.location, index), mail);
    } else if (unsigned char* const to = memory_at(block, sink) + data_offset(block, index); to != from) {
      store_data(to, data, data_bytes(block, step, index));
    }
  }
}

// ---- pushing ------------------------------------------------------------------------------------

TUTTI_DEVICE void push_packet(const ShortState& block, const ShortStep& step, uint32_t index) {
  const unsigned char* const from =
      step.source_count == 0 ? nullptr : memory_at(block, step.ends[0]) + data_offset(block, index);
  const PacketData data = load_data(from, data_bytes(block, step, index));
  if (step.computes == 0) return deliver(block, step, index, data, from);
  Operands operands = {};
  operands.sources[0] = data;
  deliver(block, step, index, reduce_words(block.pushing, operands), nullptr);
}

/// Calls `move`(step, index of the packet) for this thread's packets of steps [first, last). The packets of
/// all steps are dealt out together.
template <class Move>
TUTTI_DEVICE void deal_packets(const ShortState& block, uint32_t first, uint32_t last, Move&& move) {
  uint32_t index = device::thread_index();
  for (uint32_t number = first; number < last; ++number) {
    const uint32_t packets = block.table.steps[number].packets;
    for (; index < packets; index += device::thread_count()) {
      if (!move(number, index)) return;
    }
    index -= packets;
  }
}

/// Writes this call's flag to some packets of its half, as far as the call does not use them. By the last
/// threads, which have the fewest packets to push.
TUTTI_DEVICE void renew_flags(const ShortState& block) {
  const uint32_t first = block.epoch / 2 % kRenewalsOfHalf * kRenewedPackets;
  const uint32_t end = first + kRenewedPackets < kMailPackets ? first + kRenewedPackets : kMailPackets;
  for (uint32_t b = 0; b < block.table.unused_count; ++b) {
    const UnusedMail& unused = block.table.unused[b];
    for (uint32_t i = first + device::thread_count() - 1 - device::thread_index(); i < end;
         i += device::thread_count()) {
      if (i >= unused.used) device::store_mail(packet_at(block, unused.location, i), Mail{{}, block.mark});
    }
  }
}

// ---- pulling ------------------------------------------------------------------------------------

/// What a thread has seen of the same packet of every source.
struct Arrival {
  uint32_t late;  ///< a source whose packet is missing or, if any is, from another call
  bool differs;   ///< the packet is from another call
};

/// Returns whether the wait is over.
TUTTI_DEVICE bool load_arrival(const ShortState& block, const ShortStep& step, uint32_t index,
                               Operands& operands, Arrival& arrival) {
  Mail mails[reduce::kMaxSources];
  TUTTI_UNROLL
  for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
    mails[k] = Mail{{}, block.mark};
    if (k < step.source_count) mails[k] = device::load_mail(packet_at(block, step.ends[k].location, index));
  }
  bool all = true;
  TUTTI_UNROLL
  for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
    operands.sources[k] = {{mails[k].data[0], mails[k].data[1], mails[k].data[2]}};
    const uint32_t flag = mails[k].flag;
    if (flag == block.mark) continue;
    all = false;
    const bool differs = (flag & kEpochMask) == block.epoch;
    if (differs || !arrival.differs) arrival.late = k;
    arrival.differs = arrival.differs || differs;
  }
  return all || arrival.differs;
}

/// The item that a stopping thread passes to stop(): step, source and packet.
inline constexpr uint32_t kItemSourceBits = 3;
inline constexpr uint32_t kItemPacketBits = 16;
static_assert(kMailPackets <= 1u << kItemPacketBits && reduce::kMaxSources <= 1 << kItemSourceBits);

/// Waits for one packet of every source and delivers the result. False: the thread stopped.
TUTTI_DEVICE bool pull_packet(ShortState& block, uint32_t number, uint32_t index) {
  const ShortStep& step = block.table.steps[number];
  Operands operands;
  Arrival arrival = {.late = 0, .differs = false};
  Stop why = wait_for(block, "a packet", packet_at(block, step.ends[0].location, index),
                      [&] { return load_arrival(block, step, index, operands, arrival); });
  if (arrival.differs) why = Stop::kMismatch;
  if (why != Stop::kNone) {
    stop(block, why, ((number << kItemSourceBits | arrival.late) << kItemPacketBits) | index);
    return false;
  }
  PacketData data = operands.sources[0];
  if (step.computes != 0) data = reduce_words(block.pulling, operands);
  deliver(block, step, index, data, nullptr);
  return true;
}

// ---- a lane (see run_block) ---------------------------------------------------------------------

/// A short call exposes no buffers, and its table needs no lane.
TUTTI_DEVICE void begin_operation(const ShortState& /*block*/) {}
TUTTI_DEVICE void load_tables(const ShortState& /*block*/) {}

TUTTI_DEVICE bool run_lane(ShortState& block) {
  const bool pushes = block.at.step == 0;
  if (pushes) {
    deal_packets(block, 0, block.table.push_count, [&](uint32_t number, uint32_t index) {
      push_packet(block, block.table.steps[number], index);
      return true;
    });
    renew_flags(block);
  }
  device::barrier("all is pushed");
  if (device::thread_index() == 0) block.at.step = 1;
  deal_packets(block, block.table.push_count, block.table.step_count,
               [&](uint32_t number, uint32_t index) { return pull_packet(block, number, index); });
  device::barrier("all is pulled");
  const bool finished = why_stopped(block) == Stop::kNone;
  if (device::thread_index() == 0 && finished) block.at.finished = 1;
  return pushes || finished;
}

TUTTI_DEVICE Obstacle find_obstacle(const ShortState& block) {
  Obstacle obstacle{};
  const Stop why = why_stopped(block);
  if (why != Stop::kNotReady && why != Stop::kMismatch) return obstacle;
  const uint32_t item = stopped_item(block);
  const uint32_t index = item & ((1u << kItemPacketBits) - 1);
  const uint32_t source = item >> kItemPacketBits & ((1u << kItemSourceBits) - 1);
  obstacle.lane = block.lane_index;
  obstacle.step = item >> (kItemPacketBits + kItemSourceBits);
  const ShortEnd& end = block.table.steps[obstacle.step].ends[source];
  obstacle.peer = end.peer;
  if (why == Stop::kMismatch) {
    obstacle.word = device::load_mail(packet_at(block, end.location, index)).flag;
    obstacle.expected = block.mark;
  }
  return obstacle;
}

/// Runs the calling block's lane of a short call.
TUTTI_DEVICE void run_short_launch(const Launch& launch) {
  TUTTI_SHARED(ShortState, block);
  run_block(block, launch);
}

}  // namespace tutti::cuda
