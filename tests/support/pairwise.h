// Pairwise covering samples: few rows in which every pair of values of every two factors occurs.
//
// Greedy: each row starts with a missing pair and sets the other factors to the values that cover most
// missing pairs. The seed breaks ties. Source: Cohen, Dalal, Fredman, Patton, "The AETG system", 1997.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::test {

/// Each row has one value, 0..sizes[f)-1, for every factor f.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& sizes, uint64_t seed);

}  // namespace tutti::test
