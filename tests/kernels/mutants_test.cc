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
  Kernel short_kernel;
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
    bool by_location = false;
    bool multicast = false;
    uint32_t stay_blocks = 0;
    uint32_t slots_per_slice = 1;
  } rows[] = {
      {Collective::kBroadcast, "direct", 1, 2, false, 1},
      {Collective::kBroadcast, "direct", 2, 3, true, 1},
      {Collective::kAllReduce, "ring", 4, 2, false, 2},
      {Collective::kAllReduce, "direct_two_shot", 8, 40, true, 2},
      {Collective::kAllReduce, "direct_two_shot", 8, 3, true, 1},
      {Collective::kAllReduce, "direct_two_shot", 8, 3, true, 1, true},
      {Collective::kAllReduce, "multicast", 2, 3, false, 2, false, true},
      {Collective::kReduceScatter, "multicast", 4, 40, false, 1, false, true},
      {Collective::kBroadcast, "multicast", 2, 2, false, 1, false, true},
      {Collective::kAllReduce, "ring", 4, 2, false, 3, false, false, 2},
      {Collective::kAllReduce, "ring", 4, 2, false, 2, false, false, 100},
      {Collective::kBroadcast, "direct", 4, 3, false, 1, false, false, 0, 4},
      {Collective::kAllReduce, "ring", 8, 40, false, 1, false, false, 0, 2},
      {Collective::kAllReduce, "direct_two_shot", 8, 3, true, 1, true, false, 0, 2},
      {Collective::kAllReduce, "multicast", 8, 3, false, 1, false, true, 0, 4},
  };
  for (const auto& row : rows) {
    for (uint64_t seed = 1; seed <= (kFew ? 1 : 8); ++seed) {
      Case c;
      c.algorithm = find_algorithm(row.collective, row.algorithm);
      c.request = {
          .collective = row.collective, .rank_count = 3, .block_bytes = 3000, .type = DataType::kUint32};
      c.world.shape = {.slots = row.slots, .slot_bytes = 128};
      c.world.threads = all.size() % 3 == 0 ? 20 : 4;  // two scouts, or one
      c.world.poll_limit = row.poll_limit;
      c.world.device = {.block_slots = seed % 2 == 0 ? 1u : 100u, .seed = seed};
      c.world.kernel = kernel;
      c.world.most_turns = 100'000;
      c.refers = row.refers;
      c.world.by_location = row.by_location;
      c.world.registered_bytes = row.by_location ? 2000 : UINT64_MAX;  // the rest travels by value
      c.stripes = row.stripes;
      c.slots_per_slice = row.slots_per_slice;
      c.world.multicast = row.multicast;
      c.world.stay_blocks = row.stay_blocks;
      if (row.stay_blocks > 0) c.world.device.block_slots = 100 * c.request.rank_count;
      if (is_served(c)) all.push_back(c);
    }
  }
  return all;
}

/// Sequences of short calls, in which ranks run ahead of each other.
std::vector<std::vector<Case>> sequences(Kernel kernel, Kernel short_kernel) {
  const struct {
    Collective collective;
    const char* algorithm;
    uint32_t root;
    uint64_t bytes;
    DataType type = DataType::kUint32;
  } rows[] = {
      {Collective::kAllReduce, "direct_one_shot", 0, 200},
      {Collective::kBroadcast, "direct", 0, 200},
      {Collective::kAllReduce, "direct_two_shot", 0, 400},
      {Collective::kAllReduce, "direct_two_shot", 1, 280},
      {Collective::kAllReduce, "direct_two_shot", 0, 400, DataType::kUint64},
      {Collective::kBroadcast, "direct", 0, 120},
      {Collective::kReduceScatter, "direct", 0, 40},
      {Collective::kBroadcast, "direct", 1, 200},
      {Collective::kAllReduce, "direct_one_shot", 0, 80},
      {Collective::kAllToAll, "direct", 0, 200},
      {Collective::kAllToAll, "direct", 0, 72},
  };
  std::vector<std::vector<Case>> all;
  for (uint64_t seed = 1; seed <= (kFew ? 6 : 12); ++seed) {
    all.emplace_back();
    for (const auto& row : rows) {
      Case c;
      c.algorithm = find_algorithm(row.collective, row.algorithm);
      c.request = {.collective = row.collective,
                   .rank_count = 3,
                   .root = row.root,
                   .block_bytes = row.bytes,
                   .type = row.type,
                   .in_place = true};
      c.world.threads = 4;
      c.world.poll_limit = seed % 3 == 0 ? 40 : 2;
      c.world.device = {.block_slots = seed % 2 == 0 ? 1u : 100u, .seed = seed, .preemption_period = 2};
      c.world.kernel = kernel;
      c.world.short_kernel = short_kernel;
      c.world.most_turns = 100'000;
      c.stripes = 2;
      c.by_packets = true;
      all.back().push_back(c);
    }
  }
  return all;
}

/// Broadcasts whose last slices fill fewer slots than the others, in which the root runs ahead: then room for
/// some of a slice's slots is not room for all.
std::vector<std::vector<Case>> uneven_sequences(Kernel kernel) {
  std::vector<std::vector<Case>> all;
  for (uint64_t seed = 1; seed <= (kFew ? 2 : 8); ++seed) {
    Case c;
    c.algorithm = find_algorithm(Collective::kBroadcast, "direct");
    c.request = {
        .collective = Collective::kBroadcast, .rank_count = 2, .type = DataType::kUint32, .in_place = true};
    c.world.shape = {.slots = 16, .slot_bytes = 128};
    c.world.threads = 4;
    c.world.poll_limit = 2;
    c.world.device = {.block_slots = 1, .seed = seed};
    c.world.kernel = kernel;
    c.world.most_turns = 100'000;
    c.slots_per_slice = 4;
    all.emplace_back();
    for (const uint64_t bytes : {640u, 512u, 768u, 1024u, 640u, 896u, 512u, 640u, 1024u}) {
      c.request.block_bytes = bytes;
      all.back().push_back(c);
    }
  }
  return all;
}

/// Some of the cases, in which a rank's host asks for an end or a rank makes another call.
std::string run_into_troubles(Kernel kernel) {
  const std::vector<Case> all = cases(kernel);
  for (size_t i = 0; i < all.size(); i += 2) {
    Case c = all[i];
    if (i % 4 == 0) {  // as where all blocks are resident
      c.world.poll_limit = UINT64_MAX;
      c.world.device.block_slots = 1000;
    }
    const Trouble trouble{.rank = static_cast<uint32_t>(i % 3),
                          .makes_another_call = i % 8 < 4,
                          .turn = i * 7 % 100,
                          .delay = i % 40};
    if (std::string wrong = run_into_trouble(c, trouble); !wrong.empty()) return wrong;
  }
  return {};
}

/// Empty, or what one of the cases or sequences has shown.
std::string run_all(Kernel kernel, Kernel short_kernel) {
  for (const Case& c : cases(kernel)) {
    if (std::string wrong = run(c); !wrong.empty()) return wrong;
  }
  for (const std::vector<Case>& sequence : sequences(kernel, short_kernel)) {
    if (std::string wrong = run_in_sequence(sequence); !wrong.empty()) return wrong;
  }
  for (const std::vector<Case>& sequence : uneven_sequences(kernel)) {
    if (std::string wrong = run_in_sequence(sequence); !wrong.empty()) return wrong;
  }
  if (std::string wrong = run_into_troubles(kernel); !wrong.empty()) return wrong;
  return run_through_numbers(short_kernel);
}

/// 1 as soon as anything fails. The thread sanitizer gives another status if it has seen a race.
[[noreturn]] void run_and_exit(const Mutant& mutant) {
  std::exit(run_all(mutant.kernel, mutant.short_kernel).empty() ? 0 : 1);
}

bool is_noticed(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST(MutantsTest, TheRightInterpreterPassesWhatTheMutantsRun) {
  ASSERT_GE(cases(&tutti_run_none).size(), kFew ? 15u : 120u);
  EXPECT_EQ(run_all(&tutti_run_none, &tutti_short_none), "");
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsNoticed) {
  const Mutant& mutant = GetParam();
  if (mutant.by_edges && !simt::kThreadSanitizer) GTEST_SKIP() << "noticed by the thread sanitizer alone";
  EXPECT_EXIT(run_and_exit(mutant), is_noticed, "") << mutant.name;
}

INSTANTIATE_TEST_SUITE_P(Every, MutantTest, testing::ValuesIn(kMutants),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tutti::test
