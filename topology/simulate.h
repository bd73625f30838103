// Simulate: the predicted time of the plans that run, on the links of a machine's graph, event by event.
//
// The model. A lane runs its steps round by round and slice by slice, as the engine does (plan/rounds.h): a
// slice starts when its lane is free, its messages have arrived and the links it writes have a free slot.
// Lanes of a core take turns. A link of the graph serves slices one after the other in each direction, in the
// order in which they come; bytes begin to leave a link as soon as they arrive (cut-through). Ranks on cores
// read the messages of their host where the sender has put them, and reach memory over the same links; GPUs
// and network cards push. What ranks contribute to multicast memory, the collector loads through the switch.
// After some rounds every further round takes as long as the last ones, so a long message is not walked to
// its end.
//
// A lane of a GPU has a block for each stripe. The stripes are walked in a few groups, which share the links:
// while a group pays the fixed cost of a slice, the bytes of other groups move.
//
// Folding. Where all hosts are alike and do the same at the same time, one host is walked and stands for all
// (plan/fold.h). Links of the network then carry what all hosts send at that moment; the busiest link counts.
//
// Not in the model: caches beyond that slots stay in them, and the noise of a busy machine.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "plan/fold.h"
#include "topology/rank_costs.h"
#include "topology/routes.h"

namespace tutti::topology {

struct SimulateOptions {
  uint64_t block_bytes = 0;  ///< as in Request
  RankCosts costs = {};
  bool by_reference =
      false;         ///< messages whose plan allows it travel as references, without a copy into a slot
  bool fold = true;  ///< one host may stand for all; false: every rank is walked
  /// Of each rank: its place in Routes::ranks(); several ranks may share one. Empty: rank r has place r.
  /// Borrowed.
  std::span<const uint32_t> places = {};
  /// Of each rank: which host it takes its own for. Ranks that one host of the graph holds, and that differ
  /// here, send over sockets (emulated hosts). Empty: the graph's. Borrowed.
  std::span<const uint32_t> host_of = {};
  bool trace = false;  ///< fill Simulation::spans and ::shares
  /// Plans with more steps than this, of all ranks that must be walked, get a lower bound.
  uint64_t steps_max = uint64_t{1} << 23;
  /// Longer walks take fewer rounds, and several slices as one. The default is a few seconds of work.
  uint64_t slices_max = uint64_t{1} << 19;
  /// Slices for calls that follow each other without a pause, for ranks with measured costs: the time is then
  /// that from one call to the next, as in a loop of calls. 0: a call alone.
  uint64_t repeated_slices = 0;
  /// A time above is not worth knowing: the walk stops there.
  double most_us = std::numeric_limits<double>::infinity();
};

inline constexpr uint32_t kNoSpan = UINT32_MAX;

enum class SpanKind : uint8_t {
  kLocal,  ///< moves bytes in its rank's memory only
  kSends,
  kReceives,
  kPassesOn,  ///< receives and sends
};

/// One slice of a step, as one rank ran it.
struct Span {
  SpanKind kind = SpanKind::kLocal;
  uint32_t rank = 0;
  uint32_t lane = 0;
  uint32_t step = 0;
  uint32_t round = 0;
  double start_us = 0;
  double end_us = 0;
  uint32_t cause = kNoSpan;  ///< the span that ended last of those it had to wait for
};

/// A part of the time on the longest chain of spans that wait for each other.
struct Share {
  std::string what;  ///< "bytes over nvlink from gpu to nvswitch (as nvlink gpu0 -> nvswitch)"
  double microseconds = 0;
  uint64_t count = 0;  ///< slices or messages

  enum class Kind : uint8_t { kCall, kSteps, kLatency, kBytes, kWaiting } kind = Kind::kCall;
};

/// How much a link of the graph had to do.
struct LinkUse {
  std::string what;
  double busy_us = 0;
  uint64_t bytes = 0;
  uint32_t alike = 1;  ///< links of its kind, of the walked hosts, that carry at least half as many bytes
};

struct Simulation {
  double microseconds = 0;
  bool is_lower_bound = false;        ///< not walked to the end: the time is at least this
  uint32_t walked_ranks = 0;          ///< fewer than all if one host stands for all
  uint64_t walked_slices = 0;         ///< slices of steps that were walked
  uint32_t rounds = 1;                ///< of the whole message
  uint32_t walked_rounds = 1;         ///< fewer if the others were added at the same speed
  uint64_t network_bytes = 0;         ///< that all ranks send to other hosts
  std::vector<LinkUse> busiest = {};  ///< the links with the most to do, the busiest first; at most 4
  std::vector<Share> shares = {};     ///< with trace, the largest first; they sum to the time
  std::vector<Span> spans = {};       ///< with trace, of the walked ranks and rounds
};

/// Without places, more ranks than cores share the cores in turn. Errors: kInvalidArgument if there are more
/// ranks than GPUs, if nothing joins two ranks that send to each other, if
/// the plans do not fit together or deadlock. Memory: proportional to the steps of the walked ranks.
Result<Simulation> simulate(Routes& routes, const PlanMaker& maker, const SimulateOptions& options);

}  // namespace tutti::topology
