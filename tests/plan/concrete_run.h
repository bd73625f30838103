// ConcreteRun: plans executed on numbers, under schedules that do their worst. It shares no code with the
// verifier: what it sees go wrong is wrong.
//
// Buffers are arrays of words, really shared in place; a message is a word or, by reference, the address of
// one, read when the receiver runs. A schedule is a seed: lanes run in random order, or by random priorities
// that change a few times, so that some lane is left behind for as long as the others can go on.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plan/plan.h"

namespace tutti::test {

struct RunOptions {
  bool in_place = false;
  bool by_reference = false;
  bool direct = false;         ///< what may be written directly is stored in the receivers' outputs
  bool premultiplied = false;  ///< reductions scale what they read from the input
  uint32_t slices = 1;         ///< of a chunk in a round
  uint64_t seed = 0;
};

/// What went wrong ("deadlock", "wrong result", ...); "" if nothing did.
std::string run_concretely(std::span<const Plan> plans, const RunOptions& options);

/// The first defect over `schedules` seeds of every placement and carriage, with and without scaling, one and
/// two slices; "" if none is seen.
std::string run_many_ways(std::span<const Plan> plans, bool in_place, uint32_t schedules, uint64_t seed);

}  // namespace tutti::test
