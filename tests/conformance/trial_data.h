// The data of a trial: what each rank sends, and what each must receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/conformance/trial.h"

namespace tutti::test {

/// A block of a buffer, in elements.
struct Block {
  uint64_t offset = 0;
  uint64_t count = 0;
};

/// The blocks that `rank` of `ranks` sends and receives; empty: the buffer is not used.
std::vector<Block> send_blocks(const Trial& trial, int rank, int ranks);
std::vector<Block> recv_blocks(const Trial& trial, int rank, int ranks);

/// The factor of a rank in a pre-multiplied sum.
int64_t premul_scalar(int rank);

/// Writes what `rank` sends in its block number `block`.
void fill_block(const Trial& trial, int rank, int ranks, int block, uint64_t count, std::byte* target);
/// Writes what `rank` must find in its received block number `block`.
void expected_block(const Trial& trial, int rank, int ranks, int block, uint64_t count, std::byte* target);

}  // namespace tutti::test
