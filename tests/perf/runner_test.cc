// The runner as a whole, on collectives that are wrong on purpose: a check that never fails checks nothing.
#include "perf/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

tutti_result_t all_reduce(const Case& test, const Call& call) {
  return tutti_all_reduce(call.send, call.recv, test.shape.count, test.type, call.op, call.comm, call.stream);
}

/// As all_reduce, but rank 1 finds one wrong element.
tutti_result_t corrupt(const Case& test, const Call& call) {
  const tutti_result_t result = all_reduce(test, call);
  if (test.rank == 1) static_cast<unsigned char*>(call.recv)[5] ^= 1;
  return result;
}

/// As all_reduce, but rank 1 reduces something else than it was given.
tutti_result_t corrupt_input(const Case& test, const Call& call) {
  if (test.rank == 1) static_cast<unsigned char*>(const_cast<void*>(call.send))[7] ^= 0x40;
  return all_reduce(test, call);
}

/// Says that it has reduced and has done nothing.
tutti_result_t idle(const Case&, const Call&) {
  return TUTTI_SUCCESS;
}

/// Rank 1 refuses.
tutti_result_t refuse(const Case& test, const Call& call) {
  return test.rank == 1 ? TUTTI_INVALID_ARGUMENT : all_reduce(test, call);
}

CollectiveTest make_test(tutti_result_t (*run)(const Case&, const Call&)) {
  return {.name = "test_perf",
          .reduces = true,
          .shape = whole_shape,
          .factors = unit_factors,
          .run = run,
          .fill = fill_reduction_operand,
          .result_count = all_received,
          .expect = expect_reduction};
}

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome run_ranks_of(const CollectiveTest& test, Options options) {
  options.hot = true;
  options.iterations = 2;
  options.min_bytes = options.max_bytes = 256;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Reporter reporter(options, test.name, {}, {});
  const int status = run_process(options, test, ProcessContext{}, Seating{}, reporter);
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

Outcome run_two_threads(const CollectiveTest& test, Options options = {}) {
  options.threads = 2;
  return run_ranks_of(test, options);
}

TEST(RunnerTest, RightResultsEndWithStatusZero) {
  const Outcome outcome = run_two_threads(make_test(all_reduce));
  EXPECT_EQ(outcome.status, kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("Out of bounds values : 0 OK"));
}

// Goal: one wrong element of one rank fails the run, is counted, and is on the right row.
TEST(RunnerTest, OneWrongElementEndsWithStatusOne) {
  const Outcome outcome = run_two_threads(make_test(corrupt));
  EXPECT_EQ(outcome.status, kExitWrong) << outcome.err;
  // Out of place and in place, one rank each.
  EXPECT_THAT(outcome.out, testing::HasSubstr("Out of bounds values : 2 FAILED"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("float     sum      -1 .*  1  .*  1  "));
}

// Goal: a rank that shares its thread with others is checked like any other.
TEST(RunnerTest, AWrongElementOfARankAmongSeveralOfItsThreadIsFound) {
  Options options;
  options.gpus = 2;
  options.ranks_per_gpu = 2;
  const Outcome outcome = run_ranks_of(make_test(corrupt_input), options);
  EXPECT_EQ(outcome.status, kExitWrong) << outcome.err;
  // Four ranks, out of place and in place.
  EXPECT_THAT(outcome.out, testing::HasSubstr("Out of bounds values : 8 FAILED"));
}

// Goal: results of an earlier, right operation never pass for this one's.
TEST(RunnerTest, AnOperationThatDoesNothingIsFound) {
  EXPECT_EQ(run_two_threads(make_test(idle)).status, kExitWrong);
}

TEST(RunnerTest, WithoutChecksNothingIsFound) {
  Options options;
  options.checks = 0;
  const Outcome outcome = run_two_threads(make_test(corrupt), options);
  EXPECT_EQ(outcome.status, kExitOk);
  EXPECT_THAT(outcome.out, testing::HasSubstr("N/A"));
}

// Goal: an error of one rank ends all ranks, and each says what it met.
TEST(RunnerTest, AFailedCallEndsTheRunWithItsText) {
  const Outcome outcome = run_two_threads(make_test(refuse));
  EXPECT_EQ(outcome.status, kExitFailure);
  EXPECT_THAT(outcome.err, testing::HasSubstr("rank 1: invalid argument"));
  EXPECT_THAT(outcome.err, testing::HasSubstr("rank 0: "));
}

TEST(RunnerTest, SubjectsAreTypesTimesOperatorsTimesRoots) {
  Options options;
  options.types = {TUTTI_FLOAT32, TUTTI_INT32};
  options.ops = {TestOp::kSum, TestOp::kBitAnd};
  options.root.reset();
  CollectiveTest test = make_test(all_reduce);
  EXPECT_EQ(list_subjects(options, test, 3).size(), 3u);
  test.has_root = true;
  EXPECT_EQ(list_subjects(options, test, 3).size(), 9u);
  test.reduces = false;
  EXPECT_EQ(list_subjects(options, test, 3).size(), 6u);
}

}  // namespace
}  // namespace tutti::perf
