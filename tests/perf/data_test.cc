// Generated data: exact in any order, for every type, operator and rank count; wrong elements are counted.
#include "perf/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "perf/element_traits.h"

namespace tutti::perf {
namespace {

constexpr size_t kCount = 257;

/// The value of float bits, decoded independently of the encoder.
double decode(uint64_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1.0 : 1.0;
  const int field = static_cast<int>((bits >> mantissa_bits) & ((uint64_t{1} << exponent_bits) - 1));
  const double mantissa = static_cast<double>(bits & ((uint64_t{1} << mantissa_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double scale = std::ldexp(1.0, -mantissa_bits);
  if (field == 0) return sign * std::ldexp(mantissa * scale, 1 - bias);
  return sign * std::ldexp(1.0 + mantissa * scale, field - bias);
}

template <class Traits>
double decode_as(typename Traits::Bits bits) {
  return decode(bits, Traits::kExponent, Traits::kMantissa);
}

/// One operand of a reduction done the plain way; floats round to the element type at every step.
template <class Traits>
class Reference {
 public:
  using Bits = typename Traits::Bits;
  using Storage = typename Traits::Storage;

  explicit Reference(const Reduction& reduction) : reduction_(reduction) {}

  Bits reduce(const std::vector<Bits>& operands, const std::vector<int>& order) const {
    Bits result = scaled(operands, order[0]);
    for (size_t i = 1; i < order.size(); ++i) result = combine(result, scaled(operands, order[i]));
    return reduction_.op == TestOp::kAvg ? average(result) : result;
  }

 private:
  Bits scaled(const std::vector<Bits>& operands, int rank) const {
    const Bits bits = operands[static_cast<size_t>(rank)];
    if (reduction_.op != TestOp::kMulSum) return bits;
    uint64_t raw = 0;
    premul_scalar(reduction_.type, rank, &raw);
    if constexpr (Traits::kKind == Kind::kFloat)
      return encode_float<Traits>(decode_as<Traits>(bits) * decode_as<Traits>(static_cast<Bits>(raw)));
    else
      return static_cast<Bits>(uint64_t{bits} * raw);
  }

  Bits combine(Bits a, Bits b) const {
    if constexpr (Traits::kKind == Kind::kFloat) {
      const double x = decode_as<Traits>(a);
      const double y = decode_as<Traits>(b);
      switch (reduction_.op) {
        case TestOp::kProd: return encode_float<Traits>(x * y);
        case TestOp::kMax: return x > y ? a : b;
        case TestOp::kMin: return x < y ? a : b;
        default: return encode_float<Traits>(x + y);
      }
    } else {
      const Storage x = static_cast<Storage>(a);
      const Storage y = static_cast<Storage>(b);
      const bool logical = Traits::kKind == Kind::kBool;
      switch (reduction_.op) {
        case TestOp::kProd: return static_cast<Bits>(uint64_t{a} * uint64_t{b});
        case TestOp::kMax: return static_cast<Bits>(x > y ? x : y);
        case TestOp::kMin: return static_cast<Bits>(x < y ? x : y);
        case TestOp::kBitAnd: return static_cast<Bits>(a & b);
        case TestOp::kBitOr: return static_cast<Bits>(a | b);
        case TestOp::kBitXor: return static_cast<Bits>(a ^ b);
        default: return static_cast<Bits>(logical ? uint64_t{a} | b : uint64_t{a} + b);
      }
    }
  }

  Bits average(Bits sum) const {
    if constexpr (Traits::kKind == Kind::kFloat)
      return encode_float<Traits>(decode_as<Traits>(sum) / reduction_.rank_count);
    else
      return static_cast<Bits>(static_cast<int64_t>(static_cast<Storage>(sum)) / reduction_.rank_count);
  }

  Reduction reduction_;
};

/// Reduces generated operands in several random orders and compares with the generated result, bit by bit.
template <class Traits>
void expect_exact(const Reduction& reduction) {
  using Bits = typename Traits::Bits;
  std::vector<std::vector<Bits>> operands(kCount,
                                          std::vector<Bits>(static_cast<size_t>(reduction.rank_count)));
  std::vector<Bits> column(kCount);
  std::vector<int> order;
  for (int rank = 0; rank < reduction.rank_count; ++rank) {
    order.push_back(rank);
    fill_operand(reduction, rank, 0, kCount, column.data());
    for (size_t i = 0; i < kCount; ++i) operands[i][static_cast<size_t>(rank)] = column[i];
  }
  std::vector<Bits> expected(kCount);
  fill_reduced(reduction, 0, kCount, expected.data());
  const Reference<Traits> reference(reduction);
  std::mt19937 random(7);
  for (int round = 0; round < 4; ++round) {
    std::vector<Bits> got(kCount);
    for (size_t i = 0; i < kCount; ++i) got[i] = reference.reduce(operands[i], order);
    EXPECT_EQ(count_wrong(reduction.type, 0, got.data(), expected.data(), kCount), 0u)
        << test_type_name(reduction.type) << " " << test_op_name(reduction.op) << " over "
        << reduction.rank_count << " ranks, order " << round;
    std::shuffle(order.begin(), order.end(), random);
  }
}

// Goal: no order of the ranks, and no rounding of partial results, may change a correct result.
// Method: every type x operator x rank count, four orders, partial results rounded to the element type.
TEST(DataTest, EveryReductionIsExactInAnyOrder) {
  for (const tutti_type_t type : all_test_types())
    for (const TestOp op : all_test_ops())
      for (const int rank_count : {1, 2, 3, 5, 8, 16, 33}) {
        if (!is_op_defined(op, type)) continue;
        with_traits(type, [&](auto traits) {
          expect_exact<decltype(traits)>({.type = type, .op = op, .rank_count = rank_count, .seed = 3});
        });
      }
}

// Goal: a check must notice data that never moved: operands of ranks and elements differ.
TEST(DataTest, OperandsDifferBetweenRanksAndElements) {
  for (const tutti_type_t type : all_test_types()) {
    const Reduction reduction{.type = type, .op = TestOp::kSum, .rank_count = 2, .seed = 1};
    const size_t bytes = test_type_bytes(type);
    std::vector<char> a(kCount * bytes);
    std::vector<char> b(kCount * bytes);
    std::vector<char> sum(kCount * bytes);
    fill_operand(reduction, 0, 0, kCount, a.data());
    fill_operand(reduction, 1, 0, kCount, b.data());
    fill_reduced(reduction, 0, kCount, sum.data());
    EXPECT_GT(count_wrong(type, 0, a.data(), b.data(), kCount), kCount / 5) << test_type_name(type);
    EXPECT_GT(count_wrong(type, 0, a.data(), sum.data(), kCount), kCount / 10) << test_type_name(type);
    EXPECT_GT(count_wrong(type, 0, a.data(), a.data() + bytes, kCount - 1), kCount / 5)
        << test_type_name(type);
  }
}

// Goal: blocks of a buffer may be generated apart (as the check does).
TEST(DataTest, PartsEqualTheWhole) {
  for (const tutti_type_t type : all_test_types()) {
    const Reduction reduction{.type = type, .op = TestOp::kMax, .rank_count = 3, .seed = 9};
    const size_t bytes = test_type_bytes(type);
    std::vector<char> whole(kCount * bytes);
    std::vector<char> parts(kCount * bytes);
    fill_reduced(reduction, 0, kCount, whole.data());
    fill_reduced(reduction, 0, 100, parts.data());
    fill_reduced(reduction, 100, kCount - 100, parts.data() + 100 * bytes);
    EXPECT_EQ(whole, parts);
    fill_stream(type, 5, 0, kCount, whole.data());
    fill_stream(type, 5, 0, 100, parts.data());
    fill_stream(type, 5, 100, kCount - 100, parts.data() + 100 * bytes);
    EXPECT_EQ(whole, parts);
  }
}

// Goal: operands are finite numbers and never -0, whose order and sum would depend on the algorithm.
TEST(DataTest, FloatOperandsAreFiniteAndNeverMinusZero) {
  for (const tutti_type_t type : all_test_types())
    for (const TestOp op : {TestOp::kSum, TestOp::kMin, TestOp::kProd})
      with_traits(type, [&](auto traits) {
        using Traits = decltype(traits);
        if constexpr (Traits::kKind == Kind::kFloat) {
          using Bits = typename Traits::Bits;
          std::vector<Bits> data(20'000);
          fill_operand({.type = type, .op = op, .rank_count = 4, .seed = 2}, 1, 0, data.size(), data.data());
          const bool e4m3 = type == TUTTI_FLOAT8_E4M3;
          const Bits top = static_cast<Bits>(((uint64_t{1} << Traits::kExponent) - 1) << Traits::kMantissa);
          for (const Bits bits : data) {
            EXPECT_NE(bits, Traits::kSign);
            if (e4m3)
              EXPECT_NE(bits & 0x7f, 0x7f);
            else
              EXPECT_NE(static_cast<Bits>(bits & top), top);
          }
        }
      });
}

TEST(DataTest, BooleansAreZeroOrOne) {
  std::vector<unsigned char> data(1000);
  fill_stream(TUTTI_BOOL, 1, 0, data.size(), data.data());
  EXPECT_LE(*std::max_element(data.begin(), data.end()), 1);
  fill_operand({.type = TUTTI_BOOL, .rank_count = 3}, 2, 0, data.size(), data.data());
  EXPECT_LE(*std::max_element(data.begin(), data.end()), 1);
}

// Goal: the small formats round to nearest even, subnormals included.
// Method: every e4m3, e5m2, half and bfloat16 value encodes to itself; half-way points go to the even one.
TEST(DataTest, SmallFloatsAreEncodedExactly) {
  for (const auto& [exponent, mantissa] : {std::pair{4, 3}, {5, 2}, {5, 10}, {8, 7}}) {
    const uint32_t values = 1u << (exponent + mantissa);
    // The largest exponent holds infinities and NaNs (and e4m3's largest numbers, which this leaves out).
    const uint32_t finite = values - (1u << mantissa);
    for (uint32_t bits = 0; bits + 1 < finite; ++bits) {
      const double value = decode(bits, exponent, mantissa);
      const double next = decode(bits + 1, exponent, mantissa);
      if (std::fabs(value) < 0x1p-120)
        continue;  // below what the encoder's float can hold as a normal number
      EXPECT_EQ((encode_small_float<uint32_t>(static_cast<float>(value), exponent, mantissa)), bits);
      EXPECT_EQ((encode_small_float<uint32_t>(static_cast<float>(-value), exponent, mantissa)),
                bits | values);
      EXPECT_EQ((encode_small_float<uint32_t>(static_cast<float>((value + next) / 2), exponent, mantissa)),
                bits + (bits & 1));
    }
  }
}

TEST(DataTest, WrongElementsAreCounted) {
  std::vector<float> want(100, 1.5f);
  std::vector<float> got = want;
  EXPECT_EQ(count_wrong(TUTTI_FLOAT32, 0, got.data(), want.data(), want.size()), 0u);
  got[3] = std::nextafter(1.5f, 2.0f);
  got[50] = 0.0f;
  got[99] = NAN;
  EXPECT_EQ(count_wrong(TUTTI_FLOAT32, 0, got.data(), want.data(), want.size()), 3u);
  EXPECT_EQ(count_wrong(TUTTI_FLOAT32, 2, got.data(), want.data(), want.size()), 2u);
}

TEST(DataTest, OnlyInexactAveragesAreTolerated) {
  EXPECT_EQ(tolerance_ulp({.type = TUTTI_FLOAT32, .op = TestOp::kSum, .rank_count = 3}), 0);
  EXPECT_EQ(tolerance_ulp({.type = TUTTI_FLOAT32, .op = TestOp::kAvg, .rank_count = 4}), 0);
  EXPECT_EQ(tolerance_ulp({.type = TUTTI_INT32, .op = TestOp::kAvg, .rank_count = 3}), 0);
  EXPECT_EQ(tolerance_ulp({.type = TUTTI_FLOAT32, .op = TestOp::kAvg, .rank_count = 3}), 2);
}

}  // namespace
}  // namespace tutti::perf
