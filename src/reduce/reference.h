// The reference kernel: what a reduction means, one element at a time. For tests only; the library does not
// hold this kernel. The reference shares nothing with the fast kernels but the element formats (formats.h)
// and the functions of core/operators.h. Tests check both on their own: the formats against exact arithmetic,
// and the functions against definitions that a test spells out.
#pragma once

#include "core/types.h"
#include "reduce/reduce.h"

namespace tutti::reduce {

/// The contract of find_kernel's kernels, without SIMD and without fusion. A kernel of find_kernel writes the
/// same bits, except for the NaN payloads that kLeft leaves open.
void reference_kernel(const Job& job, DataType type, ReduceOp op, Association association);

}  // namespace tutti::reduce
