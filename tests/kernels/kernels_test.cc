// Goal: the kernels do what the plans say: right results whatever the order of the blocks, the slots they
// have and the bound of their waits; every byte outside the buffers as it was. Method: all algorithms, bound
// for the device, run by fibers on a simulated one; expectations come from the definition of the collective.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "plan/multicast.h"
#include "tests/kernels/case.h"
#include "tests/kernels/host_kernels.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// A sum in the canonical tree, where the algorithm can do that.
void make_reproducible(Case& c, DataType type) {
  Case changed = c;
  changed.request.type = type;
  changed.request.op = ReduceOp::kSum;
  changed.request.reproducible = true;
  changed.request.block_bytes = c.request.block_bytes / 4 * 4;
  changed.world.shape.slots = 64;
  if (reduces(c.request.collective) && is_served(changed)) c.request = changed.request;
}

/// A type and an operator that the hardware reduces, of those that cases draw from.
void make_collectable(Case& c, uint64_t choice) {
  std::vector<TypeAndOp> all;
  std::ranges::copy_if(kTypesAndOps, std::back_inserter(all),
                       [](const TypeAndOp& one) { return multicast_reduces(one.type, one.op); });
  const TypeAndOp& drawn = all[choice % all.size()];
  c.request.type = drawn.type;
  c.request.op = drawn.op;
  c.request.reproducible = false;
  c.request.block_bytes = c.request.block_bytes / type_bytes(drawn.type) * type_bytes(drawn.type);
}

/// Draws what the case leaves open.
Case draw(const Algorithm& algorithm, uint32_t ranks, uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + ranks * 101 + bytes);
  const auto pick = [&random](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  Case c;
  c.algorithm = &algorithm;
  c.world.kernel = &tutti_run;
  const TypeAndOp computes = kTypesAndOps[random() % std::size(kTypesAndOps)];
  c.request = {.collective = algorithm.collective,
               .rank_count = ranks,
               .root = static_cast<uint32_t>(random() % ranks),
               .block_bytes = bytes / type_bytes(computes.type) * type_bytes(computes.type),
               .type = computes.type,
               .op = computes.op,
               .in_place = random() % 2 == 0};
  if (random() % 2 == 0)
    make_reproducible(c, pick(DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32));
  c.world.multicast = algorithm.name == "multicast";
  if (c.world.multicast && reduces(algorithm.collective)) make_collectable(c, random());
  c.refers = random() % 2 == 0;
  c.stripes = pick(1u, 1u, 3u);
  c.world.shape = {.slots = pick(1u, 2u, 4u, 8u, 32u), .slot_bytes = pick(128u, 256u, 4096u)};
  if (bytes > 3000) c.world.shape.slot_bytes = 1024;  // not thousands of slices
  c.slots_per_slice = std::min(pick(1u, 2u, 4u), c.world.shape.slots);
  c.world.threads = kFew ? pick(2u, 4u, 20u) : pick(2u, 5u, 17u, 17u, 33u);  // to 3 scouts
  c.world.poll_limit = pick(uint64_t{1}, uint64_t{3}, uint64_t{50});
  c.world.device.block_slots = pick(1u, 2u, 64u);
  c.world.device.seed = seed;
  c.world.device.preemption_period = pick(2u, 8u);
  if (random() % 4 == 0) {  // as where all blocks are resident
    c.world.poll_limit = UINT64_MAX;
    c.world.device.block_slots = 1000;
    c.world.together = random() % 2 == 0;
  }
  if (c.refers && random() % 2 == 0) {
    c.world.by_location = true;
    c.world.registered_ranks = pick(UINT32_MAX, UINT32_MAX, static_cast<uint32_t>(random()));
    c.world.registered_bytes = pick(UINT64_MAX, UINT64_MAX, random() % (2 * bytes + 1));
  }
  if (random() % 3 == 0) {  // launches that stay have room for all ranks' blocks, but not always one a lane
    c.world.poll_limit = pick(uint64_t{1}, uint64_t{3}, uint64_t{50});
    c.world.stay_blocks = pick(1u, 2u, 1000u);
    c.world.device.block_slots = c.world.stay_blocks * ranks;
    c.world.together = random() % 2 == 0;
  }
  c.keeps = pick(uint32_t{kKeepsAll}, 0u, static_cast<uint32_t>(random() % (kKeepsAll + 1)));
  return c;
}

class AlgorithmKernelTest : public testing::TestWithParam<const Algorithm*> {};

TEST_P(AlgorithmKernelTest, GivesWhatTheCollectiveIsDefinedToGive) {
  const Algorithm& algorithm = *GetParam();
  int served = 0;
  uint64_t seed = 1;
  for (const uint32_t ranks : {2u, 3u, 4u, 5u, 8u}) {
    if (kFew && ranks > 4) continue;
    for (const uint64_t bytes : {0u, 8u, 200u, 3000u, 20'000u}) {
      if (bytes > (kFew ? 200u : 3000u) && ranks > 3) continue;
      for (int again = 0; again < (kFew ? 1 : 2); ++again) {
        Case c = draw(algorithm, ranks, bytes, ++seed);
        while (!is_served(c) && c.world.shape.slots < 64) c.world.shape.slots *= 2;
        if (!is_served(c)) continue;
        if (const std::string wrong = run(c); !wrong.empty()) FAIL() << wrong;
        ++served;
      }
    }
  }
  if (served == 0) GTEST_SKIP() << "serves none of the cases";
}

// Goal: whatever becomes of a rank in whichever turn, every rank ends, with the right result or an error.
// Method: random cases, in which a rank's host asks for an end or a rank makes another call.
TEST_P(AlgorithmKernelTest, EndsOnAllRanksWhateverBecomesOfOne) {
  const Algorithm& algorithm = *GetParam();
  int served = 0;
  for (uint64_t seed = 1; seed <= (kFew ? 4 : runs_of_scope(40, 400)); ++seed) {
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<uint32_t>(2 + random() % 3);
    Case c = draw(algorithm, ranks, random() % (kFew ? 200 : 3000), seed);
    while (!is_served(c) && c.world.shape.slots < 64) c.world.shape.slots *= 2;
    if (!is_served(c)) continue;
    const Trouble trouble{.rank = static_cast<uint32_t>(random() % ranks),
                          .makes_another_call = random() % 3 == 0,
                          .turn = random() % (uint64_t{4} << random() % 10),
                          .delay = random() % (uint64_t{2} << random() % 8)};
    ASSERT_EQ(run_into_trouble(c, trouble), "");
    ++served;
  }
  if (served == 0) GTEST_SKIP() << "serves none of the cases";
}

std::vector<const Algorithm*> every_algorithm() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) all.push_back(&algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, AlgorithmKernelTest, testing::ValuesIn(every_algorithm()),
                         [](const auto& test) {
                           return std::string(collective_name(test.param->collective)) + "_" +
                                  std::string(test.param->name);
                         });

// Goal: a call begins on links as any other call has left them, while peers are still in that one. Method:
// random calls of all algorithms in one World.
TEST(CallsInTurnTest, GiveWhatTheyAreDefinedToGive) {
  for (uint64_t seed = 1; seed <= (kFew ? 4 : runs_of_scope(60, 600)); ++seed) {
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<uint32_t>(2 + random() % 3);
    std::vector<Case> cases;
    while (cases.size() < (kFew ? 4 : 10)) {
      Case c =
          draw(algorithms()[random() % algorithms().size()], ranks, random() % (kFew ? 200 : 3000), random());
      if (cases.empty()) {
        c.world.shape.slots = 32;
        c.world.multicast = random() % 2 == 0;
        c.world.together = false;
      } else {
        c.world = cases[0].world;
      }
      c.refers = c.refers || c.world.by_location;
      if (is_served(c)) cases.push_back(c);
    }
    ASSERT_EQ(run_in_sequence(cases), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace tutti::test
