// Shape: what can be said about plans without running them: ranks, ranges, ends, limits, the rules of each
// collective about who may touch which buffer.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// Ok, or kInvalidArgument with rank, lane, step and what is wrong there. Plans that pass have bounded
/// indices: later passes need no further checks.
Status check_shape(std::span<const Plan> plans);

/// Blocks of the buffer that Step::first_chunk counts in: the larger of input and output.
uint32_t geometry_blocks(const Plan& plan);

}  // namespace tutti
