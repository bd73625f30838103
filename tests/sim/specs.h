// The runs of the sim suites: every algorithm, rank counts, sizes, and what a seed draws for the rest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "tests/sim/workload.h"

namespace tutti::test {

/// TUTTI_SIM_SEED, or 1.
uint64_t base_seed();

/// The one command that runs the current test again with the current seed.
std::string replay_command();

/// A seed for one run out of the base seed and what identifies the run.
uint64_t run_seed(uint64_t base, const Algorithm& algorithm, uint64_t a, uint64_t b);

inline constexpr std::array<uint32_t, 11> kRankCounts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};

/// Sizes of a block, from nothing to many rounds.
enum class Size : uint32_t { kEmpty, kOne, kFew, kOdd, kSlot, kAllSlots, kManyRounds, kCount };

struct SpecOptions {
  uint32_t rank_count = 2;
  Size size = Size::kOne;
  uint64_t seed = 1;
  uint32_t iterations = 2;
};

/// A run whose root, type, operator, shape of links, delays, placement, way of carriage and facts are drawn
/// from the seed. Check supported() before running it.
RunSpec make_spec(const Algorithm& algorithm, const SpecOptions& options);
bool supported(const RunSpec& spec);

/// "all_reduce_ring": for test names.
std::string test_name(const Algorithm& algorithm);
/// All that hosts can run.
std::vector<const Algorithm*> all_algorithms();

}  // namespace tutti::test
