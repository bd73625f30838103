// The element formats against exact arithmetic: every small-float value as a double, and rounding by looking
// for the nearest of all values.
#include "reduce/formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace tutti::reduce {
namespace {

template <class Small>
class SmallFloatTest : public testing::Test {
 protected:
  using Bits = typename Small::Bits;
  static constexpr int kBias = (1 << (Small::kExponentBits - 1)) - 1;
  static constexpr uint32_t kSign = 1u << (Small::kExponentBits + Small::kMantissaBits);

  /// The value by the definition of the format, from the fields of its bits.
  static double exact(uint32_t bits) {
    const uint32_t mantissa = bits & ((1u << Small::kMantissaBits) - 1);
    const int exponent = static_cast<int>(bits >> Small::kMantissaBits & ((1u << Small::kExponentBits) - 1));
    const double sign = bits & kSign ? -1.0 : 1.0;
    const int top = (1 << Small::kExponentBits) - 1;
    if (exponent == top && Small::kHasInfinity) return mantissa == 0 ? sign * INFINITY : NAN;
    if (!Small::kHasInfinity && (bits & (kSign - 1)) == kSign - 1) return NAN;
    const double significand = std::ldexp(mantissa, -Small::kMantissaBits) + (exponent == 0 ? 0 : 1);
    return sign * std::ldexp(significand, std::max(exponent, 1) - kBias);
  }

  /// Magnitudes in order. The first one past the finite values stands for overflow: it takes the place of
  /// the next power step, to which values round before they become infinity or NaN.
  static const std::vector<double>& magnitudes() {
    static const std::vector<double> kAll = [] {
      std::vector<double> values;
      for (uint32_t bits = 0; std::isfinite(exact(bits)) && bits < kSign; ++bits)
        values.push_back(exact(bits));
      const double step = values[values.size() - 1] - values[values.size() - 2];
      values.push_back(values.back() + step);
      return values;
    }();
    return kAll;
  }

  /// Bits of the nearest magnitude, ties to even bits.
  static uint32_t nearest(double magnitude) {
    const auto& values = magnitudes();
    if (magnitude >= values.back()) return static_cast<uint32_t>(values.size() - 1);
    const auto above =
        static_cast<size_t>(std::upper_bound(values.begin(), values.end(), magnitude) - values.begin());
    const double down = magnitude - values[above - 1];
    const double up = values[above] - magnitude;
    if (down != up) return static_cast<uint32_t>(down < up ? above - 1 : above);
    return static_cast<uint32_t>(above % 2 == 0 ? above : above - 1);
  }

  static void expect_narrows(float value) {
    const uint32_t bits = narrow<Small>(value);
    const uint32_t want = nearest(std::fabs(value)) | (std::signbit(value) ? kSign : 0);
    const uint32_t nan = kSign - 1;
    if (!Small::kHasInfinity && (want & nan) == nan) {
      ASSERT_EQ(bits, nan) << value;
    } else {
      ASSERT_EQ(bits, want) << std::hexfloat << value;
    }
  }
};

using Formats = testing::Types<Float16, Bfloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(SmallFloatTest, Formats);

TYPED_TEST(SmallFloatTest, EveryPatternWidensToItsExactValue) {
  for (uint32_t bits = 0; bits < 2 * this->kSign; ++bits) {
    const double want = this->exact(bits);
    const float got = widen<TypeParam>(static_cast<typename TypeParam::Bits>(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, want) << bits;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << bits;
      ASSERT_EQ(narrow<TypeParam>(got), bits);
    }
  }
}

// Goal: round to nearest, ties to even, over the whole range including subnormals and overflow.
// Method: for every pair of neighbours the midpoint and the float32 values beside it, and random values.
TYPED_TEST(SmallFloatTest, NarrowsToTheNearestWithTiesToEven) {
  const auto& values = this->magnitudes();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i] + values[i + 1]) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      this->expect_narrows(sign * middle);
      this->expect_narrows(sign * std::nextafter(middle, INFINITY));
      this->expect_narrows(sign * std::nextafter(middle, 0.0f));
    }
    if (this->HasFatalFailure()) return;
  }
  std::mt19937 engine(7);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(engine()));
    if (std::isnan(value)) continue;
    this->expect_narrows(value);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(SmallFloatTest, NanNarrowsToNanWhateverItsPayload) {
  for (const uint32_t payload : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const auto bits = narrow<TypeParam>(std::bit_cast<float>(payload));
    EXPECT_TRUE(std::isnan(widen<TypeParam>(bits))) << payload;
  }
  EXPECT_TRUE(std::isnan(widen<TypeParam>(narrow<TypeParam>(canonical_nan<float>()))));
}

TEST(DivideTest, IntegersTruncateTowardZeroAtTheExtremes) {
  EXPECT_EQ(divide<int64_t>(INT64_MIN, 1), INT64_MIN);
  EXPECT_EQ(divide<int64_t>(INT64_MIN, uint64_t{1} << 63), -1);
  EXPECT_EQ(divide<int64_t>(-7, 2), -3);
  EXPECT_EQ(divide<int8_t>(-128, 3), -42);
  EXPECT_EQ(divide<uint64_t>(UINT64_MAX, 2), UINT64_MAX / 2);
}

}  // namespace
}  // namespace tutti::reduce
