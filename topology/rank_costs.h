// Rank costs: what ranks and the software on them add to what the graph's links cost. The defaults are those
// of ranks on cores. An all_reduce of 8 bytes between two near cores then comes to 0.09 us; it takes 0.089 us
// (Zen 5, docs/measurements/shared_memory.md). Numbers without a source are estimates.
#pragma once

#include <cstdint>

#include "plan/rounds.h"
#include "topology/graph.h"
#include "topology/slice_costs.h"

namespace tutti::topology {

struct RankCosts {
  double call_us = 0.01;  ///< of each call
  double step_us = 0.01;  ///< of each slice of a step
  double message_us = 0;  ///< that a message inside a host takes beyond the latency of its links
  /// Of a message between hosts: work at each of its ends, and time that passes in between beyond the links'
  /// latency. TCP: a message of 8 bytes takes 3.2 us on one machine, and about 20 us between two.
  double network_step_us = 1.6;
  double network_message_us = 18;
  /// What a GPU reads and writes in its own memory with each of its stripes. 0: a rank on a core, whose
  /// memory is reached over the links of the graph.
  double stripe_bytes_per_us = 0;
  double switch_us = 0.5;  ///< to give a core to another rank
  /// Stripes work at once, each on a part of the message. A call has one for each stripe_bytes; its plan's
  /// lanes share the most.
  uint32_t stripes_max = 1;
  uint64_t stripe_bytes = 1;
  uint32_t slots = 32;
  SliceLimits slices;
  /// If they are known: in place of step_us, message_us, switch_us and the links of cores, for ranks on
  /// cores. Buffers then lie in memory and not in caches. Ways that more cores share than the probes had
  /// still count.
  SliceCosts measured = {};

  bool is_measured() const { return !on_gpu() && measured.are_known(); }
  bool on_gpu() const { return stripe_bytes_per_us > 0; }
};

/// The usual costs of ranks on GPUs, or on cores.
RankCosts usual_costs(bool on_gpus);
/// Of short calls between GPUs, which send packets. Bytes are those of packets.
RankCosts packet_costs();

/// Slots of a link between ranks on cores. A ring of 2 MiB exceeds the L2 caches: a slot has left its
/// reader's cache for the shared one before it is written again, and near cores move 12 GB/s instead of 8
/// (docs/measurements/carriage.md). Many ranks have many rings, so theirs are shorter.
uint32_t usual_slots(uint32_t rank_count);

}  // namespace tutti::topology
