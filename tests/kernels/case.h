// Case: one collective on all ranks of a World, run by its kernels and checked against the definition of the
// collective: at the moment at which each rank's host learns that its call has ended, and then its memory is
// overwritten.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "tests/kernels/world.h"

namespace tutti::test {

/// Under the thread sanitizer a fiber costs a millisecond.
inline constexpr bool kFew = simt::kThreadSanitizer;

/// Combinations that cases draw from: sizes of elements, arithmetic with and without a last step.
struct TypeAndOp {
  DataType type;
  ReduceOp op;
};
inline constexpr TypeAndOp kTypesAndOps[] = {
    {DataType::kUint32, ReduceOp::kSum},        {DataType::kUint8, ReduceOp::kBitXor},
    {DataType::kUint16, ReduceOp::kMax},        {DataType::kFloat64, ReduceOp::kAvg},
    {DataType::kFloat64, ReduceOp::kPremulSum}, {DataType::kInt8, ReduceOp::kMin},
    {DataType::kInt16, ReduceOp::kSum},         {DataType::kInt64, ReduceOp::kProd},
    {DataType::kBool, ReduceOp::kMax},          {DataType::kBfloat16, ReduceOp::kMin}};

/// Which of their lanes' tables blocks keep in shared memory, if they fit: bits.
enum Keeps : uint32_t { kKeepsLinks = 1, kKeepsEnds = 2, kKeepsBytes = 4, kKeepsSteps = 8, kKeepsAll = 15 };

/// One collective on all ranks.
struct Case {
  const Algorithm* algorithm = nullptr;
  Request request;
  WorldOptions world;   ///< but for the ranks
  bool refers = false;  ///< by reference and placed, where the plan allows it
  uint32_t stripes = 1;
  uint32_t slots_per_slice = 1;  ///< at most World::kMostSlotsPerSlice
  uint32_t calls = 2;
  bool by_packets = false;  ///< as a short call
  uint32_t keeps = kKeepsAll;
};

std::string describe(const Case& c);
/// What its algorithm may rely on.
Facts facts_of(const Case& c);
/// Whether the algorithm serves the case with the slots that the links have.
bool is_served(const Case& c);
/// What a rank of the case runs.
cuda::Image bind_rank(const Case& c, uint32_t rank, World& world);
/// Runs the case. Empty, or what went wrong.
std::string run(const Case& c);
/// What goes wrong in a case's first call, and not by the kernels' fault.
struct Trouble {
  uint32_t rank = 0;                ///< its host asks for an end, or
  bool makes_another_call = false;  ///< it makes a call of another signature
  uint64_t turn = 0;                ///< of the device, at which the host asks
  uint64_t delay = 0;               ///< turns, until the other ranks' hosts know and ask as well
};
/// Runs two calls of the case, with trouble. Every rank must end, and be done with the right result or fail
/// for a reason that is true, and nobody may write outside of the outputs. Empty, or what went wrong.
std::string run_into_trouble(const Case& c, const Trouble& trouble);
/// Short calls of two ranks whose numbers come again in the flags three times, large ones at the same numbers
/// each time and small ones between. Empty, or what went wrong.
std::string run_through_numbers(Kernel short_kernel);
/// Runs the cases one after the other in one World, which is the first one's: each rank goes on as soon as it
/// has ended its part. Empty, or what went wrong.
std::string run_in_sequence(const std::vector<Case>& cases);

}  // namespace tutti::test
