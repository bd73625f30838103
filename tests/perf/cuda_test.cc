// Runs on a device, with a collective that is wrong on purpose; and where ranks are seated. The machine is
// the fake driver's, with one device; nothing is asked for that a real one could not give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "perf/runner.h"

namespace tutti::perf {
namespace {

/// The driver of this process.
const cuda::Driver& driver() {
  static const auto kFound = cuda::Driver::find();
  return **kFound;
}

tutti_result_t all_reduce(const Case& test, const Call& call) {
  return tutti_all_reduce(call.send, call.recv, test.shape.count, test.type, call.op, call.comm, call.stream);
}

/// As all_reduce, but the last rank reduces something else than it was given: a number that no input has.
tutti_result_t corrupt_input(const Case& test, const Call& call) {
  const auto byte = reinterpret_cast<CUdeviceptr>(call.send) + 7;
  if (test.rank == test.rank_count - 1 &&
      driver().memset_d8_async(byte, 0x7f, 1, static_cast<CUstream>(call.stream.handle)) != CUDA_SUCCESS)
    return TUTTI_SYSTEM_ERROR;
  return all_reduce(test, call);
}

/// Says that it has reduced and has done nothing.
tutti_result_t idle(const Case&, const Call&) {
  return TUTTI_SUCCESS;
}

/// On a device, like all_reduce; the last rank refuses.
tutti_result_t refuse(const Case& test, const Call& call) {
  return test.rank == test.rank_count - 1 ? TUTTI_INVALID_ARGUMENT : all_reduce(test, call);
}

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

class CudaRunTest : public testing::Test {
 protected:
  void SetUp() override {
    auto context = cuda::Context::retain(driver(), 0);
    ASSERT_TRUE(context.is_ok()) << context.status().text();
    context_ = std::move(*context);
    options_.memory = Memory::kCuda;
    options_.hot = true;
    options_.iterations = 2;
    options_.min_bytes = options_.max_bytes = 256;
  }

  Outcome run(tutti_result_t (*operation)(const Case&, const Call&)) {
    // For what the operation does besides: the first thread of a run is this one.
    const cuda::CurrentContext current(*context_);
    const CollectiveTest test{.name = "test_perf",
                              .reduces = true,
                              .shape = whole_shape,
                              .factors = unit_factors,
                              .run = operation,
                              .fill = fill_reduction_operand,
                              .result_count = all_received,
                              .expect = expect_reduction};
    const Result<Seating> seating = Seating::choose(options_, ProcessContext{});
    if (!seating) return {kExitUsage, "", std::string(seating.status().text())};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Reporter reporter(options_, test.name, {}, {});
    const int status = run_process(options_, test, ProcessContext{}, *seating, reporter);
    return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }

  std::unique_ptr<cuda::Context> context_;
  Options options_;
};

TEST_F(CudaRunTest, RightResultsEndWithStatusZero) {
  options_.ranks_per_gpu = 3;
  const Outcome outcome = run(all_reduce);
  EXPECT_EQ(outcome.status, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("Out of bounds values : 0 OK"));
}

// Goal: wrong elements in a device's memory fail the run, whichever rank has them, in graphs too.
TEST_F(CudaRunTest, AWrongElementEndsWithStatusOne) {
  options_.ranks_per_gpu = 2;
  for (const int launches : {0, 2}) {
    options_.graph_launches = launches;
    const Outcome outcome = run(corrupt_input);
    EXPECT_EQ(outcome.status, kExitWrong) << outcome.err;
    // Two ranks, out of place and in place.
    EXPECT_THAT(outcome.out, testing::HasSubstr("Out of bounds values : 4 FAILED")) << launches;
    EXPECT_THAT(outcome.out, testing::ContainsRegex("float     sum      -1 .*  2  .*  2  "));
  }
}

// Goal: results of an earlier, right operation never pass for this one's.
TEST_F(CudaRunTest, AnOperationThatDoesNothingIsFound) {
  EXPECT_EQ(run(idle).status, kExitWrong);
}

// Goal: where one rank of a thread fails, those whose operations are under way on the same device end too.
TEST_F(CudaRunTest, AFailedCallEndsTheRunWithItsText) {
  options_.threads = 1;
  options_.ranks_per_gpu = 3;
  const Outcome outcome = run(refuse);
  EXPECT_EQ(outcome.status, kExitFailure);
  EXPECT_THAT(outcome.err, testing::HasSubstr("ranks 0-2: invalid argument"));
}

TEST_F(CudaRunTest, MoreDevicesThanThereAreAreRefused) {
  options_.gpus = driver().device_count() + 1;
  const Outcome outcome = run(all_reduce);
  EXPECT_EQ(outcome.status, kExitUsage);
  EXPECT_THAT(outcome.err, testing::HasSubstr("Invalid number of GPUs"));
}

// Goal: threads take devices in order, ranks of a device are neighbours, as in nccl-tests.
TEST(SeatingTest, ThreadsTakeDevicesInOrder) {
  Options options;
  options.gpus = 2;
  options.ranks_per_gpu = 3;
  const Seating seating;
  EXPECT_EQ(seating.device_of(options, 0, 2), 0);
  EXPECT_EQ(seating.device_of(options, 0, 3), 1);
  EXPECT_EQ(seating.device_of(options, 1, 0), 2);
  EXPECT_EQ(seating.device_of(options, 1, 5), 3);
}

}  // namespace
}  // namespace tutti::perf
