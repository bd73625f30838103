// Goal: the tests of the kernels notice the mistakes that matter. Method: the interpreter with one mistake
// each (mutate.py), run on a set of cases that the right one passes, in a process of its own: a mutant may
// crash. What only an edge is missing for gives right results on this machine's memory and is noticed under
// the thread sanitizer alone.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "tests/kernels/case.h"

namespace tutti::test {

struct Mutant {
  const char* name;
  Kernel kernel;
  bool by_edges;  ///< only the thread sanitizer can notice it
};

}  // namespace tutti::test

#include "mutants.inc"  // made by mutate.py: kMutants

namespace tutti::test {
namespace {

/// Cases that between them use all of the interpreter: few slots and many, bounded waits, references, lanes.
std::vector<Case> cases(Kernel kernel) {
  std::vector<Case> all;
  const struct {
    Collective collective;
    const char* algorithm;
    uint32_t slots;
    uint64_t poll_limit;
    bool refers;
    uint32_t stripes;
  } rows[] = {
      {Collective::kBroadcast, "direct", 1, 2, false, 1},
      {Collective::kBroadcast, "direct", 2, 3, true, 1},
      {Collective::kAllReduce, "ring", 4, 2, false, 2},
      {Collective::kAllReduce, "direct_two_shot", 8, 40, true, 2},
      {Collective::kAllReduce, "direct_two_shot", 8, 3, true, 1},
  };
  for (const auto& row : rows) {
    for (uint64_t seed = 1; seed <= (kFew ? 1 : 8); ++seed) {
      Case c;
      c.algorithm = find_algorithm(row.collective, row.algorithm);
      c.request = {
          .collective = row.collective, .rank_count = 3, .block_bytes = 3000, .type = DataType::kUint32};
      c.world.shape = {.slots = row.slots, .slot_bytes = 128};
      c.world.threads = 4;
      c.world.poll_limit = row.poll_limit;
      c.world.device = {.block_slots = seed % 2 == 0 ? 1u : 100u, .seed = seed};
      c.world.kernel = kernel;
      c.world.most_turns = 100'000;
      c.refers = row.refers;
      c.stripes = row.stripes;
      if (is_served(c)) all.push_back(c);
    }
  }
  return all;
}

/// 1 as soon as a case fails. The thread sanitizer gives another status if it has seen a race.
[[noreturn]] void run_and_exit(Kernel kernel) {
  for (const Case& c : cases(kernel)) {
    if (!run(c).empty()) std::exit(1);
  }
  std::exit(0);
}

bool is_noticed(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST(MutantsTest, TheRightInterpreterPassesWhatTheMutantsRun) {
  ASSERT_GE(cases(&tutti_run_none).size(), kFew ? 5u : 40u);
  for (const Case& c : cases(&tutti_run_none)) EXPECT_EQ(run(c), "");
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsNoticed) {
  const Mutant& mutant = GetParam();
  if (mutant.by_edges && !simt::kThreadSanitizer) GTEST_SKIP() << "noticed by the thread sanitizer alone";
  EXPECT_EXIT(run_and_exit(mutant.kernel), is_noticed, "") << mutant.name;
}

INSTANTIATE_TEST_SUITE_P(Every, MutantTest, testing::ValuesIn(kMutants),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::test
