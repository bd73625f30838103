// Cut: how the messages of a plan are cut into rounds and slices, and what a step does besides moving bytes.
// All ranks of a call find the same cut, whatever they run their plans on: the two ends of a link must expect
// the same messages.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "engine/geometry.h"
#include "plan/plan.h"

namespace tutti {

/// A piece is cut into four, so that the copy into the slots and the copy out of them overlap, but not into
/// slices so short that their flags count nor into ones longer than a slot.
struct SliceLimits {
  uint64_t least = 8192;  ///< where no core copies into the slots, as before a network: as `most`
  uint64_t most = 16384;  ///< of a slot
};

/// Pure functions of what the ranks have agreed on.
struct Cut {
  uint64_t slice_bytes = 0;  ///< of a message; the last one may be shorter
  uint64_t round_bytes = 0;  ///< of every chunk that one round moves
  uint32_t round_count = 1;
  bool merges = false;          ///< adjacent chunks of a step travel as one piece
  uint64_t scratch_stride = 0;  ///< from chunk to chunk of scratch: each holds one round

  /// `slots`: of every link.
  static Cut of(const Plan& plan, const Geometry& geometry, uint32_t slots, const SliceLimits& limits);
};

/// Bytes of the slices of a piece of a known size.
uint64_t slice_bytes_for(uint64_t bytes, const SliceLimits& limits);
/// Bytes of a step's chunks together.
uint64_t merged_bytes(const Step& step, const Geometry& geometry);

/// What a step computes, and what its links may refer to.
struct StepUse {
  uint32_t scaled_sources = 0;  ///< bit i: source i is multiplied by the operator's scalar
  bool finish = false;          ///< kAvg divides here
  bool copies = false;          ///< one source, no arithmetic
  bool refers = false;          ///< links may carry a reference to the end `refer_end`
  uint8_t refer_end = 0;        ///< among sources, then sinks: the one source of a copy, or a receive buffer

  static StepUse of(const Plan& plan, const Step& step, ReduceOp op);
};

/// The ranks in whose receive buffers the step's result may be placed as well; none: it must travel.
std::vector<uint32_t> direct_write_peers(const Plan& plan, const Step& step, const StepUse& use);

}  // namespace tutti
