// The bucketer by itself: which tensors share a bucket, when reductions start, and what they leave.
#include "trainer/bucketer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/trainer/bucket_checks.h"
#include "tests/trainer/team_run.h"

namespace tutti::trainer {
namespace {

using testing::ElementsAre;

/// Tensors one behind the other.
std::vector<Tensor> tensors_of(const std::vector<size_t>& counts) {
  std::vector<Tensor> tensors;
  size_t offset = 0;
  for (const size_t count : counts) {
    tensors.push_back({offset, 1, count});
    offset += count;
  }
  return tensors;
}

std::vector<size_t> tensor_counts(const std::vector<Bucket>& buckets) {
  std::vector<size_t> counts;
  for (const Bucket& bucket : buckets) counts.push_back(bucket.tensors.size());
  return counts;
}

TEST(MakeBucketsTest, GathersFromTheLastTensorOnUntilALimitIsReached) {
  std::vector<float> flat(100);
  // Bytes: 40, 40, 80, 120, 120 from the first on.
  const auto tensors = tensors_of({10, 10, 20, 30, 30});
  const auto buckets = make_buckets(flat, tensors, {.first_bytes = 100, .bytes = 150});
  EXPECT_THAT(tensor_counts(buckets), ElementsAre(1, 2, 2));
  EXPECT_EQ(buckets[0].values.data(), flat.data() + 70);
  EXPECT_EQ(buckets[0].values.size(), 30u);
  EXPECT_EQ(buckets[2].values.data(), flat.data());
  EXPECT_EQ(buckets[1].tensors[0].offset, 0u);
  EXPECT_EQ(buckets[1].tensors[1].offset, 20u);
}

TEST(MakeBucketsTest, ZeroBytesMeanEachTensorByItself) {
  std::vector<float> flat(60);
  const auto buckets = make_buckets(flat, tensors_of({10, 20, 30}), {.bytes = 0});
  EXPECT_THAT(tensor_counts(buckets), ElementsAre(1, 1, 1));
}

TEST(MakeBucketsTest, DefaultsAreOneMebibyteThenTwentyFive) {
  const std::vector<size_t> counts(60, size_t{1} << 18);  // 60 tensors of 1 MiB
  std::vector<float> flat(counts.size() << 18);
  EXPECT_THAT(tensor_counts(make_buckets(flat, tensors_of(counts), {})), ElementsAre(1, 25, 25, 9));
}

TEST(MakeBucketsTest, NoTensorsMakeNoBuckets) {
  EXPECT_TRUE(make_buckets({}, {}, {}).empty());
}

/// Notes which buckets were started, and claims to be done after `rounds` operations on a real stream.
class Recorder : public Reduction {
 public:
  explicit Recorder(size_t rounds) : rounds_(rounds) {}
  void start(const Bucket& bucket, tutti_stream_t) override { started.push_back(bucket.index); }
  bool proceed(const Bucket& bucket, tutti_stream_t) override {
    proceeded.push_back(bucket.index);
    return proceeded.size() > (rounds_ - 1) * started.size();
  }
  double wire_bytes(const Bucket&) const override { return 0; }

  std::vector<size_t> started;
  std::vector<size_t> proceeded;

 private:
  size_t rounds_;
};

// Goal: buckets start when their last tensor is ready, never out of order. Method: tensors become ready in an
// order that completes the second bucket first.
TEST(BucketerTest, StartsBucketsInOrderAsSoonAsTheyAreComplete) {
  std::vector<float> flat(40);
  const BucketOptions options{.first_bytes = 80, .bytes = 80};
  Recorder recorder(1);
  Bucketer bucketer(make_buckets(flat, tensors_of({10, 10, 10, 10}), options), recorder);
  bucketer.mark_ready(0);
  bucketer.mark_ready(1);
  EXPECT_THAT(recorder.started, ElementsAre());
  bucketer.mark_ready(3);
  EXPECT_THAT(recorder.started, ElementsAre());
  bucketer.mark_ready(2);
  EXPECT_THAT(recorder.started, ElementsAre(0, 1));
  bucketer.finish();
  EXPECT_THAT(recorder.proceeded, ElementsAre(0, 1));
  // The next step begins anew.
  bucketer.mark_ready(2);
  bucketer.mark_ready(3);
  EXPECT_THAT(recorder.started, ElementsAre(0, 1, 0));
  bucketer.mark_ready(1);
  bucketer.mark_ready(0);
  bucketer.finish();
}

TEST(BucketerTest, AReductionOfSeveralOperationsIsCarriedToItsEnd) {
  std::vector<float> flat(20);
  const BucketOptions options{.bytes = 0};
  Recorder recorder(3);
  Bucketer bucketer(make_buckets(flat, tensors_of({10, 10}), options), recorder);
  bucketer.mark_ready(1);
  bucketer.mark_ready(0);
  bucketer.finish();
  EXPECT_THAT(recorder.proceeded, ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(BucketerTest, MistakesInMarkingAreNamed) {
  std::vector<float> flat(20);
  const BucketOptions options{.first_bytes = 1000, .bytes = 1000};
  Recorder recorder(1);
  Bucketer bucketer(make_buckets(flat, tensors_of({10, 10}), options), recorder);
  bucketer.mark_ready(1);
  EXPECT_THROW(bucketer.mark_ready(1), std::logic_error);
  EXPECT_THROW(bucketer.mark_ready(7), std::out_of_range);
  try {
    bucketer.finish();
    ADD_FAILURE() << "finish() did not notice that tensor 0 is missing";
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tensor 0"));
  }
}

// Goal: what is left is the sum over ranks, in place, step after step, with gaps between tensors.
TEST(BucketerTest, BucketsHoldTheSumOverRanks) {
  for (const auto& layout : {test::threads(3), test::processes(2)}) {
    for (const size_t bytes : {size_t{0}, size_t{64}, size_t{1} << 20}) {
      const auto body = [&](test::Rank& rank, Team& team) { test::check_sums(rank, team, bytes); };
      EXPECT_EQ(test::run_team(layout, body), "") << test::layout_name(layout) << ", " << bytes << " bytes";
    }
  }
}

// Goal: a lost rank is an error of finish(), on every other rank, not a hang.
TEST(BucketerTest, ALostRankIsAnErrorOfFinish) {
  const auto body = [](test::Rank& rank, Team& team) {
    if (rank.rank() == 1) {
      team.abort();
      return;
    }
    test::check_lost(rank, team);
    team.abort();
  };
  EXPECT_EQ(test::run_team(test::processes(3), body), "");
}

}  // namespace
}  // namespace tutti::trainer
