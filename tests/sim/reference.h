// The result of a reduction, computed from its definition, one element after the other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/types.h"

namespace tutti::test {

/// The scalar of kPremulSum in the tests, in the element type's bits. Type: kFloat64.
uint64_t premul_scale_bits();

/// One rank's operand out of random bits: any bits for integers, small whole numbers for kFloat64 (their sums
/// are exact in every order), numbers of mixed size and sign for the other floats. Each 8 bytes make at least
/// one element.
void make_operands(DataType type, uint64_t seed, std::span<std::byte> bytes);

/// op over ranks of `operands`, one array each, all of one size. Exact arithmetic: kUint32 sum, kUint8 bitxor
/// and bitor, kFloat64 sum, avg and premul_sum. Other floats: in the canonical tree over ranks.
std::vector<std::byte> reduce_all(DataType type, ReduceOp op,
                                  const std::vector<std::vector<std::byte>>& operands);

}  // namespace tutti::test
