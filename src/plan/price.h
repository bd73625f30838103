// Price: the predicted time of a set of plans, from walking the very steps that run with link
// latencies and bandwidths instead of symbols.
//
// The model: a rank has one thread, which runs its lanes' steps one at a time; `cores` ranks run at once. A
// step is ready when its lane is free and its messages have arrived. It costs a fixed overhead, plus the
// bytes that it reads from and writes to memory (slots that it fills included) over the memory bandwidth,
// plus the bytes of its messages over the link's bandwidth. A message arrives one latency after its sender's
// step has ended. A core that goes from one rank to another pays the switch. Steps start in the order in
// which they become ready.
//
// Not in the model: slices (a message arrives whole), caches, references.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// One machine's constants. Defaults: measured on 2 cores of an EPYC (Zen 5), shared memory;
/// `tutti-plan --help` names the command that measures them again.
struct Costs {
  double step_overhead_us = 0.02;
  double link_latency_us = 0.06;
  double link_bytes_per_us = 20000;
  double memory_bytes_per_us = 20000;
  /// Ranks that compute at once on a host; the others wait their turn.
  uint32_t cores = 2;
  /// Cost of giving the core to another rank, when there are more ranks than cores.
  double switch_us = 0.5;
  /// Of messages between hosts. Defaults: 10 Gbit/s Ethernet and a round trip of 40 us, not measured; a
  /// message of 8 bytes over TCP on one machine takes 3.2 us, which its two ends share.
  double network_overhead_us = 1.6;
  double network_latency_us = 20;
  double network_bytes_per_us = 1250;  ///< of a host, in each direction
  /// As Facts::host_of: each rank's host; empty: one host. Borrowed.
  std::span<const uint32_t> host_of = {};
};

struct Price {
  double microseconds = 0;      ///< until the last rank ends
  uint64_t link_bytes = 0;      ///< bytes over links, all ranks; what is published counts once a reader
  uint64_t network_bytes = 0;   ///< of these, bytes between hosts
  uint64_t memory_bytes = 0;    ///< bytes read from and written to memory, all ranks
  uint32_t critical_steps = 0;  ///< steps on the longest chain of steps that wait for each other
};

/// `block_bytes`: as in Request. Errors: kInvalidArgument when the plans do not have the right shape or
/// deadlock, when a cost is not positive (latency, overhead and switch may be 0), when host_of is not of as
/// many ranks.
Result<Price> price_plans(std::span<const Plan> plans, uint64_t block_bytes, const Costs& costs = {});

}  // namespace tutti
