// The kernel tables behind find_kernel, one source file per element width or format, so that they build in
// parallel. Each serves the types of its name, returns null for undefined operators, and chooses among the
// SIMD targets on each call.
#pragma once

#include "reduce/reduce.h"

namespace tutti::reduce {

Kernel find_int8(DataType type, ReduceOp op, Association association);
Kernel find_int16(DataType type, ReduceOp op, Association association);
Kernel find_int32(DataType type, ReduceOp op, Association association);
Kernel find_int64(DataType type, ReduceOp op, Association association);
Kernel find_float16(DataType type, ReduceOp op, Association association);
Kernel find_bfloat16(DataType type, ReduceOp op, Association association);
Kernel find_float32(DataType type, ReduceOp op, Association association);
Kernel find_float64(DataType type, ReduceOp op, Association association);
Kernel find_float8(DataType type, ReduceOp op, Association association);
Kernel find_bool(DataType type, ReduceOp op, Association association);

}  // namespace tutti::reduce
