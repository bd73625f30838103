// The reductions that the hardware between devices performs on load (EndKind::kCollect): a table of types and
// operators, which algorithms, the binding of calls and kernels share.
//
// Source: PTX ISA 8.2, multimem.ld_reduce: add of .u32, .s32, .u64 (.s64 has the same bits), .f16x2 and
// .bf16x2 (with .acc::f32), .f32, .f64; min and max of integers of 32 and 64 bits; and, or, xor of .b32 and
// .b64. Not here: min and max of floating-point numbers, because the hardware drops NaN and tutti keeps NaN.
#pragma once

#include "core/types.h"

namespace tutti {

/// Pre-multiplied sums and averages are sums: the senders multiply, and the collector divides.
constexpr bool multicast_reduces(DataType type, ReduceOp op) {
  const bool is_whole = type == DataType::kInt32 || type == DataType::kUint32 || type == DataType::kInt64 ||
                        type == DataType::kUint64;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      return is_whole || type == DataType::kFloat16 || type == DataType::kBfloat16 ||
             type == DataType::kFloat32 || type == DataType::kFloat64;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor: return is_whole;
    default: return false;
  }
}

}  // namespace tutti
