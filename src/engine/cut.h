// Cut: how a plan's messages are cut into rounds and slices, and what a step computes. All ranks find the
// same cut on every executor, since both ends of a link must expect the same messages.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "engine/geometry.h"
#include "plan/plan.h"
#include "plan/rounds.h"

namespace tutti {

/// A pure function of what the ranks have agreed on.
struct Cut {
  uint64_t slice_bytes = 0;  ///< of a message; the last slice may be shorter
  uint64_t round_bytes = 0;  ///< bytes of each chunk that one round moves
  uint32_t round_count = 1;
  bool merges = false;          ///< the adjacent chunks of a step travel as one piece
  uint64_t scratch_stride = 0;  ///< distance of chunks in scratch, which holds one round of each

  /// `slots`: of each link.
  static Cut of(const Plan& plan, const Geometry& geometry, uint32_t slots, const SliceLimits& limits);
};

/// The bytes of all chunks of a step.
uint64_t merged_bytes(const Step& step, const Geometry& geometry);

/// What a step computes, and what its links may refer to.
struct StepUse {
  uint32_t scaled_sources = 0;  ///< bit i: the operator's scalar multiplies source i
  bool finish = false;          ///< kAvg divides in this step
  bool copies = false;          ///< one source and no arithmetic
  bool refers = false;          ///< links may carry a reference to end `refer_end`
  uint8_t refer_end = 0;        ///< the source of a copy, or a sink in the receive buffer

  static StepUse of(const Plan& plan, const Step& step, ReduceOp op);
};

/// The ranks whose receive buffers may take the step's result directly.
std::vector<uint32_t> direct_write_peers(const Plan& plan, const Step& step, const StepUse& use);

}  // namespace tutti
