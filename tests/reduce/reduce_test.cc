// Every reduction kernel against the reference, bit by bit, on every SIMD target that this processor has.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "reduce/formats.h"
#include "reduce/reduce.h"
#include "tests/reduce/cases.h"
#include "tests/reduce/trial.h"

namespace tutti::reduce {
namespace {

/// Calls `choose` once per SIMD target that is compiled in and that this processor has, restoring the choice
/// afterwards. The target is chosen when a kernel is found, so the kernels of all targets can be kept.
template <class Choose>
void for_each_target(const Choose& choose) {
  std::set<std::string> seen;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (seen.insert(target_name()).second) choose();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

using TargetKernels = std::vector<TargetKernel>;

TargetKernels kernels_of_all_targets(const KernelCase& kernel) {
  TargetKernels kernels;
  for_each_target([&] {
    kernels.push_back({target_name(), find_kernel(kernel.type, kernel.op, kernel.association)});
  });
  return kernels;
}

TargetKernels copy_kernels_of_all_targets() {
  TargetKernels kernels;
  for_each_target([&] { kernels.push_back({target_name(), find_copy_kernel()}); });
  return kernels;
}

class ReduceTest : public testing::TestWithParam<int> {
 protected:
  DataType type() const { return static_cast<DataType>(GetParam()); }
};

// Goal: every kernel gives the reference's bits, whatever the shape and the place of the job.
// Method: all operators and associations of one type x sources x sinks x counts around vector widths x
// placements x targets, on operands full of special values.
// Expectation: equal bits (NaN payloads of kLeft sums and products excepted), nothing written outside.
TEST_P(ReduceTest, EveryJobMatchesTheReferenceOnEveryTarget) {
  const std::vector<size_t> counts = element_counts(type());
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.type != type()) continue;
    const TargetKernels targets = kernels_of_all_targets(kernel);
    Trial trial(kernel, counts.back());
    for (const int source_count : kSourceCounts) {
      for (const size_t count : counts) {
        Job job = trial.make_job(source_count, count);
        const std::vector<uint8_t> want = trial.reference(job);
        for (const TargetKernel& target : targets) {
          for (const int sink_count : kSinkCounts) {
            job.sink_count = static_cast<uint32_t>(sink_count);
            for (const Placement& placement : placements(type())) {
              trial.check(target, job, placement, want);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

class SmallFloatReduceTest : public ReduceTest {};

// Goal: rounding and special values are right for all operands, not only for sampled ones.
// Method: 8- and 16-bit floats; every value with itself, with a neighbour, and (8 bits) with every value.
TEST_P(SmallFloatReduceTest, EveryOperandMatchesTheReference) {
  constexpr size_t kPatterns = 65536;
  const size_t values = size_t{1} << (8 * type_bytes(type()));
  for (const KernelCase& kernel : kernel_cases()) {
    if (kernel.type != type()) continue;
    const TargetKernels targets = kernels_of_all_targets(kernel);
    Trial trial(kernel, kPatterns);
    for (size_t i = 0; i < kPatterns; ++i) {
      trial.set(0, i, i % values);
      trial.set(1, i, values == 256 ? i / values : (i * 40503) % values);
    }
    for (const int source_count : {1, 2}) {
      const Job job = trial.make_job(source_count, kPatterns);
      const std::vector<uint8_t> want = trial.reference(job);
      for (const TargetKernel& target : targets) {
        trial.check(target, job, {}, want);
        if (HasFatalFailure()) return;
      }
    }
  }
}

std::string parameter_name(const testing::TestParamInfo<int>& info) {
  return std::string(type_name(static_cast<DataType>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Types, ReduceTest, testing::Range(0, kDataTypeCount), parameter_name);
INSTANTIATE_TEST_SUITE_P(Types, SmallFloatReduceTest,
                         testing::Values(static_cast<int>(DataType::kFloat16),
                                         static_cast<int>(DataType::kBfloat16),
                                         static_cast<int>(DataType::kFloat8E4M3),
                                         static_cast<int>(DataType::kFloat8E5M2)),
                         parameter_name);

/// Reduces single elements given as bits, on every target, which must agree.
uint64_t reduce_bits(const KernelCase& kernel, const std::vector<uint64_t>& operands, Job job = {}) {
  std::set<uint64_t> results;
  for (const TargetKernel& target : kernels_of_all_targets(kernel)) {
    uint64_t result = 0;
    job.source_count = static_cast<uint32_t>(operands.size());
    for (size_t k = 0; k < operands.size(); ++k) job.sources[k] = &operands[k];
    job.sink_count = 1;
    job.sinks[0] = &result;
    job.count = 1;
    target.run(job);
    results.insert(result);
  }
  EXPECT_EQ(results.size(), 1u);
  return *results.begin();
}

// Goal: the contract in numbers, so that the reference and the kernels cannot err together.
TEST(ReduceContractTest, LeftAccumulatesInFloat32AndTreeRoundsEveryNode) {
  const uint64_t one = 0x3f80;
  const uint64_t half_place = 0x3b80;  // 2^-8: half of bfloat16's last place at 1
  const std::vector<uint64_t> operands = {one, half_place, half_place};
  EXPECT_EQ(reduce_bits({DataType::kBfloat16, ReduceOp::kSum, Association::kLeft}, operands), 0x3f81u);
  EXPECT_EQ(reduce_bits({DataType::kBfloat16, ReduceOp::kSum, Association::kTree}, operands), 0x3f80u);
}

TEST(ReduceContractTest, TreeOfFourAddsPairsFirst) {
  const uint64_t big = 0x4b800000;  // 2^24: adding 1 is lost, adding 2 is not
  const uint64_t one = 0x3f800000;
  const std::vector<uint64_t> operands = {big, one, one, one};
  EXPECT_EQ(reduce_bits({DataType::kFloat32, ReduceOp::kSum, Association::kLeft}, operands), 0x4b800000u);
  EXPECT_EQ(reduce_bits({DataType::kFloat32, ReduceOp::kSum, Association::kTree}, operands), 0x4b800001u);
}

TEST(ReduceContractTest, MultiplyAndAddAreNotContracted) {
  // (1 + 2^-12)^2 - 1: the product rounds away 2^-24, which a fused operation would keep.
  const uint64_t factor = 0x3f800800;
  Job job;
  job.scaled_sources = 1;
  job.scale_bits = factor;
  for (const Association association : {Association::kLeft, Association::kTree}) {
    EXPECT_EQ(reduce_bits({DataType::kFloat32, ReduceOp::kPremulSum, association}, {factor, 0xbf800000}, job),
              0x3a000000u);
  }
}

TEST(ReduceContractTest, MinAndMaxOrderZerosAndPropagateNan) {
  const uint64_t plus_zero = 0;
  const uint64_t minus_zero = 0x80000000;
  const uint64_t signalling_nan = 0xff800001;
  const uint64_t infinity = 0x7f800000;
  const KernelCase min = {DataType::kFloat32, ReduceOp::kMin, Association::kLeft};
  const KernelCase max = {DataType::kFloat32, ReduceOp::kMax, Association::kLeft};
  EXPECT_EQ(reduce_bits(min, {plus_zero, minus_zero}), minus_zero);
  EXPECT_EQ(reduce_bits(min, {minus_zero, plus_zero}), minus_zero);
  EXPECT_EQ(reduce_bits(max, {plus_zero, minus_zero}), plus_zero);
  EXPECT_EQ(reduce_bits(max, {minus_zero, plus_zero}), plus_zero);
  EXPECT_EQ(reduce_bits(max, {signalling_nan, infinity}), kNanFloat32);
  EXPECT_EQ(reduce_bits(min, {infinity, signalling_nan, plus_zero}), kNanFloat32);
}

TEST(ReduceContractTest, Float8E4M3OverflowsToNan) {
  const KernelCase sum = {DataType::kFloat8E4M3, ReduceOp::kSum, Association::kLeft};
  const uint64_t largest = 0x7e;                        // 448
  EXPECT_EQ(reduce_bits(sum, {largest, 0x58}), 0x7eu);  // + 16 = 464, the tie, goes to even 448
  EXPECT_EQ(reduce_bits(sum, {largest, 0x59}), 0x7fu);  // + 18
  EXPECT_EQ(reduce_bits(sum, {largest | 0x80, 0xd9}), 0x7fu);
}

TEST(ReduceContractTest, IntegersWrapAndAverageTruncatesTowardZero) {
  EXPECT_EQ(reduce_bits({DataType::kInt8, ReduceOp::kSum, Association::kLeft}, {100, 100}), 200u);
  EXPECT_EQ(reduce_bits({DataType::kUint16, ReduceOp::kProd, Association::kLeft}, {65535, 65535}), 1u);
  Job job;
  job.finish = true;
  job.divisor = 4;
  const KernelCase average = {DataType::kInt32, ReduceOp::kAvg, Association::kLeft};
  EXPECT_EQ(reduce_bits(average, {0xfffffff9, 0}, job), 0xffffffffu);  // -7 / 4
  EXPECT_EQ(reduce_bits(average, {7, 0}, job), 1u);
}

TEST(ReduceContractTest, BoolTreatsEveryOtherByteThanZeroAsTrue) {
  EXPECT_EQ(reduce_bits({DataType::kBool, ReduceOp::kSum, Association::kLeft}, {2, 0}), 1u);
  EXPECT_EQ(reduce_bits({DataType::kBool, ReduceOp::kProd, Association::kLeft}, {2, 4}), 1u);
  EXPECT_EQ(reduce_bits({DataType::kBool, ReduceOp::kMin, Association::kTree}, {2, 0}), 0u);
}

// Goal: the tests above do not pass by testing one target only.
TEST(FindKernelTest, TargetsOfTheTestIncludeTheBestAndTheBaseline) {
  const std::string best = target_name();
  std::set<std::string> targets;
  for_each_target([&] { targets.insert(target_name()); });
  EXPECT_TRUE(targets.contains(best)) << best;
  EXPECT_TRUE(best != "AVX3" || targets.contains("AVX2"));
  EXPECT_TRUE((best != "AVX3" && best != "AVX2") || targets.contains("SSE4"));
  EXPECT_TRUE(targets.contains("SCALAR") || targets.contains("EMU128"));
}

TEST(FindKernelTest, IsNullExactlyForUndefinedPairs) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      for_each_target([&] {
        EXPECT_EQ(find_kernel(type, op, Association::kLeft) != nullptr, is_defined(op, type));
        EXPECT_EQ(find_kernel(type, op, Association::kTree) != nullptr, is_defined(op, type));
      });
    }
  }
}

// Goal: the copy kernel moves exactly its bytes to every sink.
// Method: counts 0 to 300 and some thousands, misaligned, one to three sinks, streamed, by string moves,
// interleaved, or none of these, in place.
TEST(CopyKernelTest, CopiesToEverySinkOnEveryTarget) {
  std::vector<size_t> counts(301);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = i;
  counts.insert(counts.end(), {511, 1024, 2047, 2048, 2049, 2815, 4097, 10000, 16383, 16384, 16385, 20001});
  const KernelCase bytes = {DataType::kUint8, ReduceOp::kSum, Association::kLeft};
  Trial trial(bytes, counts.back());
  const TargetKernels targets = copy_kernels_of_all_targets();
  for (const size_t count : counts) {
    Job job = trial.make_job(1, count);
    const std::vector<uint8_t> want = trial.reference(job);
    for (const TargetKernel& target : targets) {
      for (const int sink_count : kSinkCounts) {
        job.sink_count = static_cast<uint32_t>(sink_count);
        for (const uint32_t ways : {0u, 0b1u, 0b110u, 0b001'000u, 0b110'000u, 0b010'101u}) {
          job.string_sinks = ways & 0b111u;
          job.unclaimed_sinks = job.string_sinks >> 1;
          job.interleaved_sinks = ways >> 3;
          for (const Placement& placement : placements(bytes.type)) {
            trial.check(target, job, placement, want);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::reduce
