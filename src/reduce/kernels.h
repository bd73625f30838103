// The kernel tables behind find_kernel. There is one source file per element width or format, so that they
// build in parallel. Each takes only the types of its name and returns null for operators undefined on them.
// A call chooses among the compiled SIMD targets.
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
