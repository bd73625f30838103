// Compressed reductions: how exact the sum is, what is carried over, how many bytes it takes.
#include "trainer/compression.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/trainer/team_run.h"
#include "trainer/random.h"

namespace tutti::trainer {
namespace {

TEST(HalfTest, EveryBfloat16AndFloat16ComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    EXPECT_TRUE(std::isnan(from_bf16(half)) || to_bf16(from_bf16(half)) == half) << bits;
    EXPECT_TRUE(std::isnan(from_f16(half)) || to_f16(from_f16(half)) == half) << bits;
  }
  EXPECT_TRUE(std::isnan(from_f16(to_f16(NAN))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(NAN))));
}

// Goal: rounding is to nearest, ties to even. Method: numbers between any two neighbours, and their middle.
TEST(HalfTest, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle = (from_f16(low) + from_f16(high)) / 2;
    EXPECT_EQ(to_f16(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(to_f16(std::nextafter(middle, 0.0F)), low);
    EXPECT_EQ(to_f16(-std::nextafter(middle, 1e9F)), high | 0x8000);
  }
  for (uint32_t bits = 0; bits < 0x7f7f; bits += 7) {
    const auto low = static_cast<uint16_t>(bits);
    const float middle = std::bit_cast<float>((bits << 16) + 0x8000);
    EXPECT_EQ(to_bf16(middle), low % 2 == 0 ? low : low + 1);
    EXPECT_EQ(to_bf16(std::nextafter(middle, 0.0F)), low);
  }
  EXPECT_EQ(to_f16(65519.0F), 0x7bff);
  EXPECT_EQ(to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(to_f16(1e30F), 0x7c00);
}

/// One rank's buckets over two tensors, a matrix and a vector, and their reduction.
class Reduced {
 public:
  Reduced(const CompressionOptions& options, Team& team) : flat_(kRows * kColumns + kColumns) {
    const std::vector<Tensor> tensors = {{0, kRows, kColumns}, {kRows * kColumns, 1, kColumns}};
    std::vector<Bucket> buckets = make_buckets(flat_, tensors, {});
    reduction_ = make_reduction(options, buckets, team.gradients());
    bucketer_ = std::make_unique<Bucketer>(std::move(buckets), *reduction_);
  }
  void reduce() {
    bucketer_->mark_ready(1);
    bucketer_->mark_ready(0);
    bucketer_->finish();
  }
  /// The buckets are views of it: it is filled, never assigned.
  std::span<float> values() { return flat_; }
  void fill(const std::vector<float>& gradient) {
    std::copy(gradient.begin(), gradient.end(), flat_.begin());
  }
  double wire_bytes() const { return reduction_->wire_bytes(bucketer_->buckets()[0]); }

  static constexpr size_t kRows = 40;
  static constexpr size_t kColumns = 30;

 private:
  std::vector<float> flat_;
  std::unique_ptr<Reduction> reduction_;
  std::unique_ptr<Bucketer> bucketer_;
};

std::vector<float> gradient_of(int rank, uint64_t step) {
  std::vector<float> values(Reduced::kRows * Reduced::kColumns + Reduced::kColumns);
  Random random(step, static_cast<uint64_t>(rank));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

std::vector<float> sum_of_ranks(int rank_count, uint64_t step) {
  std::vector<float> sum = gradient_of(0, step);
  for (int rank = 1; rank < rank_count; ++rank) {
    const std::vector<float> more = gradient_of(rank, step);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

double norm(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

double relative_distance(std::span<const float> left, std::span<const float> right) {
  std::vector<float> difference(left.begin(), left.end());
  for (size_t i = 0; i < difference.size(); ++i) difference[i] -= right[i];
  return norm(difference) / norm(right);
}

/// Reduces one random step; all ranks must get the same bits, at most `distance` from the sum.
void expect_near_sum(const CompressionOptions& options, double distance, double byte_share) {
  const auto body = [&](test::Rank& rank, Team& team) {
    Reduced reduced(options, team);
    reduced.fill(gradient_of(rank.rank(), 1));
    reduced.reduce();
    const double found = relative_distance(reduced.values(), sum_of_ranks(rank.count(), 1));
    rank.expect_true(found <= distance, "distance " + std::to_string(found));
    const auto all = team.gather(std::as_bytes(reduced.values()));
    rank.expect_true(all.front() == all.back(), "ranks differ");
    const double plain = Reduced({}, team).wire_bytes();
    rank.expect_true(std::abs(reduced.wire_bytes() / plain - byte_share) < 0.02,
                     "share of bytes " + std::to_string(reduced.wire_bytes() / plain));
  };
  EXPECT_EQ(test::run_team({1, 1, 1}, body), "") << options.name;
}

TEST(CompressionTest, SumsAreAsExactAsTheirTypeAndTakeItsShareOfBytes) {
  expect_near_sum({.name = "none"}, 1e-6, 1);
  expect_near_sum({.name = "f16"}, 1e-3, 0.5);
  expect_near_sum({.name = "bf16"}, 8e-3, 0.5);
  // Everything is sent: exact, but dear.
  expect_near_sum({.name = "topk", .share = 1}, 1e-6, 3);
  expect_near_sum({.name = "topk", .share = 0.1}, 1, 0.3);
}

// Goal: a matrix of rank 2 on every rank is exact after PowerSGD of a rank that holds all their sum.
TEST(CompressionTest, PowerSgdIsExactWhereTheSumHasItsRank) {
  const auto body = [](test::Rank& rank, Team& team) {
    Reduced reduced({.name = "powersgd", .rank = 4}, team);
    std::vector<float> wanted(reduced.values().size());
    for (int other = 0; other < rank.count(); ++other)
      for (size_t i = 0; i < wanted.size(); ++i) {
        const size_t row = i / Reduced::kColumns;
        const auto column = static_cast<float>(i % Reduced::kColumns);
        const float value = static_cast<float>(row) * (column + static_cast<float>(other)) + column;
        wanted[i] += value;
        if (other == rank.rank()) reduced.values()[i] = value;
      }
    reduced.reduce();
    const double distance = relative_distance(reduced.values(), wanted);
    rank.expect_true(distance < 1e-5, "distance " + std::to_string(distance));
    // 4 * (40 + 30) + 30 of 40 * 30 + 30 numbers.
    const double share = reduced.wire_bytes() / Reduced({}, team).wire_bytes();
    rank.expect_true(std::abs(share - 310.0 / 1230) < 1e-3, "share of bytes " + std::to_string(share));
  };
  EXPECT_EQ(test::run_team({1, 1}, body), "");
}

// Goal: error feedback: what is left out arrives later. Method: the same gradient again and again; the mean
// of what arrives comes to its sum, although each step leaves most of it out.
TEST(CompressionTest, WhatIsLeftOutArrivesLater) {
  for (const CompressionOptions& options : {CompressionOptions{.name = "topk", .share = 0.05},
                                            CompressionOptions{.name = "powersgd", .rank = 2}}) {
    const auto body = [&](test::Rank& rank, Team& team) {
      constexpr int kSteps = 300;
      Reduced reduced(options, team);
      const std::vector<float> wanted = sum_of_ranks(rank.count(), 1);
      std::vector<float> mean(wanted.size());
      double first = 0;
      for (int step = 0; step < kSteps; ++step) {
        reduced.fill(gradient_of(rank.rank(), 1));
        reduced.reduce();
        if (step == 0) first = relative_distance(reduced.values(), wanted);
        for (size_t i = 0; i < mean.size(); ++i) mean[i] += reduced.values()[i] / kSteps;
      }
      rank.expect_true(first > 0.5, "the first step is near already: " + std::to_string(first));
      const double distance = relative_distance(mean, wanted);
      rank.expect_true(distance < 0.12, "distance " + std::to_string(distance));
    };
    EXPECT_EQ(test::run_team({2}, body), "") << options.name;
  }
}

TEST(CompressionTest, UnknownNamesAndNumbersOutOfRangeAreRefused) {
  const auto body = [](test::Rank& rank, Team& team) {
    for (const CompressionOptions& options :
         {CompressionOptions{.name = "zip"}, CompressionOptions{.name = "topk", .share = 0},
          CompressionOptions{.name = "topk", .share = 1.5},
          CompressionOptions{.name = "powersgd", .rank = 0}})
      rank.expect_true(!test::error_of([&] { make_reduction(options, {}, team.gradients()); }).empty(),
                       options.name);
  };
  EXPECT_EQ(test::run_team({1}, body), "");
}

}  // namespace
}  // namespace tutti::trainer
