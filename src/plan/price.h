// Price: the predicted time of a set of plans, from walking the very steps that run with link
// latencies and bandwidths instead of symbols.
//
// The model: a rank has one thread, which runs its lanes' steps one at a time; `cores` ranks run at once. A
// step is ready when its lane is free and its messages have arrived. It costs a fixed overhead, plus the
// bytes that it reads from and writes to memory (slots that it fills included) over the memory bandwidth,
// plus the bytes of its messages over the link's bandwidth. A message arrives one latency after its sender's
// step has ended. A host's network sends one message after the other, and receives one after the other. A
// core that goes from one rank to another pays the switch. Steps start in the order in which they become
// ready.
//
// Not in the model: slices (a message arrives whole), caches, references.
//
// The work is near linear in the number of steps. Plans that an algorithm makes for hosts that are all alike
// may be folded: one host is walked and stands for all (fold.h). There is no limit on ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/result.h"
#include "plan/fold.h"
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
  /// What messages between hosts cost. Defaults: 10 Gbit/s Ethernet and a round trip of 40 us, not measured;
  /// a message of 8 bytes over TCP on one machine takes 3.2 us, which its two ends share.
  double network_overhead_us = 1.6;
  double network_latency_us = 20;
  double network_bytes_per_us = 1250;  ///< of a host, in each direction
  /// As Facts::host_of: each rank's host; empty: one host. Borrowed.
  std::span<const uint32_t> host_of = {};
};

struct Price {
  double microseconds = 0;      ///< until the last rank ends
  bool is_lower_bound = false;  ///< the limits ended the work: the time is at least this, the counts are 0
  uint64_t link_bytes = 0;      ///< bytes over links, all ranks; what is published counts once a reader
  uint64_t network_bytes = 0;   ///< of these, bytes between hosts
  uint64_t memory_bytes = 0;    ///< bytes read from and written to memory, all ranks
  uint32_t critical_steps = 0;  ///< steps on the longest chain of steps that wait for each other
};

/// `block_bytes`: as in Request. Errors: kInvalidArgument when the plans do not have the right shape, do not
/// fit together or deadlock, when a cost is not positive (latency, overhead and switch may be 0), when
/// host_of is not of as many ranks, and when there are more than 67 million steps.
Result<Price> price_plans(std::span<const Plan> plans, uint64_t block_bytes, const Costs& costs = {});

/// What ends the pricing of plans early.
struct PriceLimits {
  double microseconds = std::numeric_limits<double>::infinity();  ///< a price above is not worth knowing
  uint64_t steps = uint64_t{1} << 26;                             ///< of all ranks; 67 million take a minute
};

/// The same for plans of one algorithm. One host stands for all where all hosts have equally many
/// neighbouring ranks, and the plans of the second, the middle and the last host are those of the first with
/// the hosts of all peers shifted (fold.h). The price is then that of all ranks but for a byte a
/// chunk. Memory: proportional to the steps that are walked. A plan beyond `limits` gets a lower bound, from
/// the work of the first host's ranks.
Result<Price> price_plans(const PlanMaker& maker, uint64_t block_bytes, const Costs& costs = {},
                          const PriceLimits& limits = {});

/// The prices of several algorithms for one request, in the order of `makers`. The cheapest one is walked to
/// its end. The walk of another one stops when that one has lost. Plans of more than 8 million steps are not
/// walked: at 4,096 ranks 2,000 a rank.
Result<std::vector<Price>> price_candidates(std::span<const PlanMaker> makers, uint64_t block_bytes,
                                            const Costs& costs = {});

}  // namespace tutti
