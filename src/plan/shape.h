// Shape: what can be said about plans without running them: ranks, ranges, ends, limits, the rules of each
// collective about who may touch which buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// How large plans may be. The defaults keep the proof of a foreign plan within a gigabyte; generated plans
/// stay far below.
struct ShapeLimits {
  uint64_t locations_most = uint64_t{1} << 24;  ///< chunks of all buffers of all ranks
  uint64_t moves_most = uint64_t{1} << 27;  ///< chunks that steps touch, times the words of a set of ranks

  static ShapeLimits none() { return {UINT64_MAX, UINT64_MAX}; }
};

/// Ok, or kInvalidArgument with rank, lane, step and what is wrong there. Plans that pass have bounded
/// indices: later passes need no further checks.
Status check_shape(std::span<const Plan> plans, const ShapeLimits& limits = {});

/// Blocks of the buffer that Step::first_chunk counts in: the larger of input and output.
uint32_t geometry_blocks(const Plan& plan);

}  // namespace tutti
