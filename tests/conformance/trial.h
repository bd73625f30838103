// Trial: one call of one collective with data whose result is exact in any order, and its check.
//
// What every rank sends and what it must find is worked out from (seed, rank, block, index) alone, so that a
// rank checks its result without asking another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {

enum class Kind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kAllGatherV,
  kReduceScatterV,
  kAllToAllV,
  kSendRecv,  ///< a group: every rank to every rank, itself included
};
inline constexpr int kKindCount = 13;
inline constexpr int kPremulOp = 8;  ///< an operator made for the trial
inline constexpr int kOpChoices = 9;

enum class Memory { kMalloc, kShifted, kHeap };  ///< kShifted: aligned to one element only

const char* kind_name(Kind kind);
bool kind_reduces(Kind kind);
/// Whether tutti.h defines the operator on the type.
bool op_defined(int op, tutti_type_t type);

struct Trial {
  Kind kind = Kind::kAllReduce;
  tutti_type_t type = TUTTI_FLOAT32;
  int op = TUTTI_SUM;
  int root = 0;
  bool in_place = false;
  uint64_t count = 0;
  Memory memory = Memory::kMalloc;
  uint64_t seed = 0;

  std::string name() const;
};

/// What the first columns of a row of draws say: collective, type, operator (the next one that the type has),
/// root (first, last, middle), in place. The count is the caller's.
Trial draw_trial(std::span<const int> row, int ranks, uint64_t seed);

/// Where trials keep their buffers and order their calls, if that is not host memory and blocking calls.
class Place {
 public:
  virtual ~Place() = default;
  /// Freed with the place. Null on failure.
  virtual std::byte* allocate(size_t bytes) = 0;
  /// Between host memory and the place's.
  virtual bool copy(void* to, const void* from, size_t bytes) = 0;
  /// Makes the call on a stream and waits for it. What has failed.
  virtual tutti_result_t run(const std::function<tutti_result_t(tutti_stream_t)>& call) = 0;
};

/// Runs it on this rank and checks the result, the input and the bytes around both. At most one failure is
/// reported.
void run_trial(Rank& rank, const Trial& trial);
/// The same elsewhere: what is checked are copies of the place's memory.
void run_trial(Rank& rank, const Trial& trial, Place& place);

}  // namespace tutti::test
