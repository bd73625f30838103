// See trial_data.h. Reductions get small integers, few enough of them not zero that no type rounds in any
// order.
#include "tests/conformance/trial_data.h"

#include <algorithm>
#include <cstring>

#include "tests/support/values.h"

namespace tutti::test {
namespace {

constexpr uint64_t kGap = 3;

/// Variable counts: full, none and half, and another row of them for every sender.
uint64_t variable_count(const Trial& trial, int from, int to) {
  switch ((from + 2 * to) % 3) {
    case 0: return trial.count;
    case 1: return 0;
    default: return trial.count / 2 + 1;
  }
}

/// Blocks back to front from another one on each rank, with gaps: displacements matter, and differ.
std::vector<Block> scattered(const std::vector<uint64_t>& counts, int rank) {
  std::vector<Block> blocks(counts.size());
  uint64_t next = kGap;
  for (size_t left = counts.size(); left > 0; --left) {
    const size_t i = (left - 1 + static_cast<size_t>(rank)) % counts.size();
    blocks[i] = {next, counts[i]};
    next += counts[i] + kGap + static_cast<uint64_t>(rank);
  }
  return blocks;
}

std::vector<Block> uniform(uint64_t count, int blocks) {
  std::vector<Block> result;
  for (int i = 0; i < blocks; ++i) result.push_back({static_cast<uint64_t>(i) * count, count});
  return result;
}

uint64_t word_at(const Trial& trial, int rank, int block, uint64_t i) {
  return mix(trial.seed + i, static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(block));
}

int64_t largest_addend(tutti_type_t type) {
  if (type == TUTTI_FLOAT8_E4M3 || type == TUTTI_FLOAT8_E5M2) return 1;
  return tutti_type_bytes(type) <= 2 ? 15 : 1000;
}

int64_t between(uint64_t word, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(word % static_cast<uint64_t>(high - low + 1));
}

/// The operand of a rank in a reduction.
int64_t operand(const Trial& trial, int rank, int ranks, int block, uint64_t i) {
  const uint64_t word = word_at(trial, rank, block, i);
  if (trial.type == TUTTI_BOOL) return static_cast<int64_t>(word & 1);
  const bool is_signed = is_signed_type(trial.type);
  const int64_t most = largest_addend(trial.type);
  const uint64_t turn = i + static_cast<uint64_t>(rank) + static_cast<uint64_t>(block);
  switch (trial.op) {
    case TUTTI_SUM: return between(word, is_signed ? -most : 0, most);
    case TUTTI_PROD:
      if (turn % static_cast<uint64_t>(ranks) == 0) return 2 + static_cast<int64_t>(word & 1);
      return is_signed && (word & 1) != 0 ? -1 : 1;
    case TUTTI_MAX:
    case TUTTI_MIN: return between(word, is_signed ? -7 : 0, 7);
    case TUTTI_AVG:
      if (!is_float_type(trial.type)) return between(word, is_signed ? -15 : 0, 15);
      return turn % static_cast<uint64_t>(ranks) == 0 ? ((word & 1) != 0 ? -ranks : ranks) : 0;
    case kPremulOp: return turn % 4 == 0 ? between(word, is_signed ? -most : 0, most) : 0;
    default: return static_cast<int64_t>(word);
  }
}

int64_t combine(const Trial& trial, int64_t a, int64_t b) {
  const bool boolean = trial.type == TUTTI_BOOL;
  switch (trial.op) {
    case TUTTI_PROD: return boolean ? a & b : a * b;
    case TUTTI_MAX: return std::max(a, b);
    case TUTTI_MIN: return std::min(a, b);
    case TUTTI_BAND: return a & b;
    case TUTTI_BOR: return a | b;
    case TUTTI_BXOR: return a ^ b;
    default: return boolean ? a | b : a + b;
  }
}

int64_t reduced(const Trial& trial, int ranks, int block, uint64_t i) {
  int64_t result = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t value = operand(trial, rank, ranks, block, i);
    if (trial.op == kPremulOp) value *= premul_scalar(rank);
    result = rank == 0 ? value : combine(trial, result, value);
  }
  return trial.op == TUTTI_AVG ? result / ranks : result;
}

void store(std::byte* target, tutti_type_t type, int64_t value) {
  if (is_float_type(type)) {
    store_float(target, type, static_cast<double>(value));
  } else {
    store_integer(target, type, value);
  }
}

}  // namespace

int64_t premul_scalar(int rank) {
  return 1 + rank % 2;
}

std::vector<Block> send_blocks(const Trial& trial, int rank, int ranks) {
  const bool root = rank == trial.root;
  switch (trial.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kAllGather:
    case Kind::kGather: return uniform(trial.count, 1);
    case Kind::kBroadcast: return uniform(trial.count, root ? 1 : 0);
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
    case Kind::kSendRecv: return uniform(trial.count, ranks);
    case Kind::kScatter: return uniform(trial.count, root ? ranks : 0);
    case Kind::kBarrier: return {};
    case Kind::kAllGatherV: return uniform(variable_count(trial, 0, rank), 1);
    case Kind::kReduceScatterV:
    case Kind::kAllToAllV: break;
  }
  std::vector<uint64_t> counts;
  for (int to = 0; to < ranks; ++to) {
    counts.push_back(variable_count(trial, trial.kind == Kind::kAllToAllV ? rank : 0, to));
  }
  return scattered(counts, rank);
}

std::vector<Block> recv_blocks(const Trial& trial, int rank, int ranks) {
  const bool root = rank == trial.root;
  switch (trial.kind) {
    case Kind::kAllReduce:
    case Kind::kBroadcast:
    case Kind::kReduceScatter:
    case Kind::kScatter: return uniform(trial.count, 1);
    case Kind::kReduce: return uniform(trial.count, root ? 1 : 0);
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kSendRecv: return uniform(trial.count, ranks);
    case Kind::kGather: return uniform(trial.count, root ? ranks : 0);
    case Kind::kBarrier: return {};
    case Kind::kReduceScatterV: return uniform(variable_count(trial, 0, rank), 1);
    case Kind::kAllGatherV:
    case Kind::kAllToAllV: break;
  }
  std::vector<uint64_t> counts;
  for (int from = 0; from < ranks; ++from) {
    counts.push_back(trial.kind == Kind::kAllToAllV ? variable_count(trial, from, rank)
                                                    : variable_count(trial, 0, from));
  }
  return scattered(counts, rank);
}

void fill_block(const Trial& trial, int rank, int ranks, int block, uint64_t count, std::byte* target) {
  const size_t bytes = tutti_type_bytes(trial.type);
  for (uint64_t i = 0; i < count; ++i, target += bytes) {
    if (kind_reduces(trial.kind)) {
      store(target, trial.type, operand(trial, rank, ranks, block, i));
    } else {
      const uint64_t word = word_at(trial, rank, block, i) & (trial.type == TUTTI_BOOL ? 1 : UINT64_MAX);
      std::memcpy(target, &word, bytes);
    }
  }
}

void expected_block(const Trial& trial, int rank, int ranks, int block, uint64_t count, std::byte* target) {
  switch (trial.kind) {
    case Kind::kBroadcast: return fill_block(trial, trial.root, ranks, 0, count, target);
    case Kind::kScatter: return fill_block(trial, trial.root, ranks, rank, count, target);
    case Kind::kAllGather:
    case Kind::kAllGatherV:
    case Kind::kGather: return fill_block(trial, block, ranks, 0, count, target);
    case Kind::kAllToAll:
    case Kind::kAllToAllV:
    case Kind::kSendRecv: return fill_block(trial, block, ranks, rank, count, target);
    default: break;
  }
  const bool scatters = trial.kind == Kind::kReduceScatter || trial.kind == Kind::kReduceScatterV;
  const size_t bytes = tutti_type_bytes(trial.type);
  for (uint64_t i = 0; i < count; ++i, target += bytes) {
    store(target, trial.type, reduced(trial, ranks, scatters ? rank : 0, i));
  }
}

}  // namespace tutti::test
