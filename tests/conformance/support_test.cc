// The tools of this suite: that a sample covers, that values are what the formats say, that a wrong result is
// found.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/conformance/trial.h"
#include "tests/support/pairwise.h"
#include "tests/support/values.h"

namespace tutti::test {
namespace {

TEST(PairwiseTest, EveryPairOccursInFewRows) {
  const std::vector<int> sizes = {13, 15, 9, 3, 2, 11};
  const auto rows = pairwise_rows(sizes, 1);
  EXPECT_LT(rows.size(), 2u * 13 * 15);
  for (size_t f = 0; f < sizes.size(); ++f) {
    for (size_t g = f + 1; g < sizes.size(); ++g) {
      std::set<std::pair<int, int>> pairs;
      for (const auto& row : rows) pairs.emplace(row[f], row[g]);
      EXPECT_EQ(pairs.size(), static_cast<size_t>(sizes[f] * sizes[g])) << f << " with " << g;
    }
  }
}

uint64_t stored(tutti_type_t type, double value) {
  uint64_t bits = 0;
  store_float(&bits, type, value);
  return bits;
}

// Goal: known patterns of the formats: 1, the largest value, overflow, ties to even, subnormals, NaN.
TEST(ValuesTest, HaveTheBitsOfTheirFormats) {
  EXPECT_EQ(stored(TUTTI_FLOAT16, 1.0), 0x3c00u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, 65504.0), 0x7bffu);
  EXPECT_EQ(stored(TUTTI_FLOAT16, 65519.0), 0x7bffu);
  EXPECT_EQ(stored(TUTTI_FLOAT16, 65520.0), 0x7c00u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, 2049.0), 0x6800u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, 2051.0), 0x6802u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, -0.0), 0x8000u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, std::ldexp(1.0, -24)), 0x0001u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, std::ldexp(1.0, -25)), 0x0000u);
  EXPECT_EQ(stored(TUTTI_FLOAT16, std::nan("")), 0x7e00u);
  EXPECT_EQ(stored(TUTTI_BFLOAT16, 1.0), 0x3f80u);
  EXPECT_EQ(stored(TUTTI_BFLOAT16, 257.0), 0x4380u);
  EXPECT_EQ(stored(TUTTI_BFLOAT16, 259.0), 0x4382u);
  EXPECT_EQ(stored(TUTTI_BFLOAT16, std::nan("")), 0x7fc0u);
  EXPECT_EQ(stored(TUTTI_FLOAT8_E4M3, 448.0), 0x7eu);
  EXPECT_EQ(stored(TUTTI_FLOAT8_E4M3, 500.0), 0x7fu);
  EXPECT_EQ(stored(TUTTI_FLOAT8_E5M2, 57344.0), 0x7bu);
  EXPECT_EQ(stored(TUTTI_FLOAT8_E5M2, 70000.0), 0x7cu);
}

TEST(ValuesTest, SurviveAStoreAfterALoad) {
  for (const tutti_type_t type : {TUTTI_FLOAT16, TUTTI_BFLOAT16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = load_float(&bits, type);
      if (std::isnan(value)) continue;
      ASSERT_EQ(stored(type, value), bits);
    }
  }
}

// Goal: the suite can fail. Method: one rank sends other data than the rest expect of it, for every
// collective that moves data, in every kind of memory.
TEST(TrialTest, FindsAWrongResult) {
  for (int kind = 0; kind < kKindCount; ++kind) {
    if (static_cast<Kind>(kind) == Kind::kBarrier) continue;
    const std::string failures = run_cluster({.layout = threads(3)}, [kind](Rank& rank) {
      Trial trial;
      trial.kind = static_cast<Kind>(kind);
      trial.count = 100;
      trial.seed = rank.rank() == 0 ? 1 : 2;
      run_trial(rank, trial);
    });
    EXPECT_NE(failures.find("are wrong"), std::string::npos)
        << kind_name(static_cast<Kind>(kind)) << failures;
  }
}

TEST(ClusterTest, ReportsARankThatHangs) {
  const std::string failures =
      run_cluster({.layout = processes(2), .create = false, .seconds = 3}, [](Rank& rank) {
        rank.at("the place");
        while (rank.rank() == 1) {
          if (rank.value(0) != 0) return;
        }
      });
  EXPECT_NE(failures.find("rank 1: its process hung and was killed at: the place"), std::string::npos)
      << failures;
  EXPECT_EQ(failures.find("rank 0"), std::string::npos) << failures;
}

TEST(ClusterTest, ReportsARankThatDies) {
  const std::string failures = run_cluster({.layout = processes(2), .create = false}, [](Rank& rank) {
    if (rank.rank() == 1) std::abort();
  });
  EXPECT_NE(failures.find("rank 1: its process ended by signal"), std::string::npos) << failures;
}

}  // namespace
}  // namespace tutti::test
