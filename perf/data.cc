#include "perf/data.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "perf/element_traits.h"

namespace tutti::perf {
namespace {

/// splitmix64's finaliser: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t element_hash(uint64_t seed, size_t index) {
  return mix(seed + index * 0x9e3779b97f4a7c15u);
}

/// hash scaled to [0, bound) without a division.
uint64_t below(uint32_t hash, uint64_t bound) {
  return (hash * bound) >> 32;
}

constexpr int kProductWindow = 4;
constexpr double kScales[4] = {0.25, 0.5, 1.0, 2.0};

template <class Traits>
class Generator {
 public:
  using Storage = typename Traits::Storage;
  using Bits = typename Traits::Bits;

  explicit Generator(const Reduction& reduction)
      : op_(reduction.op), rank_count_(reduction.rank_count), seed_(mix(reduction.seed)) {
    multipliers_.reserve(static_cast<size_t>(rank_count_));
    for (int rank = 0; rank < rank_count_; ++rank)
      multipliers_.push_back(mix(static_cast<uint64_t>(rank) + 0x5bd1e995u) | 1u);
    const int64_t limit = exact_sum_limit();
    window_ = static_cast<int>(std::min<int64_t>(rank_count_, limit));
    most_ = limit / window_;
  }

  Bits operand(size_t index, int rank) const { return operand_of(element_hash(seed_, index), rank); }

  Bits reduced(size_t index) const {
    const uint64_t hash = element_hash(seed_, index);
    if constexpr (Traits::kKind == Kind::kFloat)
      return reduced_float(hash);
    else
      return reduced_integer(hash);
  }

 private:
  /// The largest sum of magnitudes that keeps every partial sum exact (floats) or inside the type (avg).
  int64_t exact_sum_limit() const {
    if constexpr (Traits::kKind == Kind::kFloat) {
      const int64_t limit = int64_t{1} << std::min(Traits::kMantissa + 1, 30);
      return op_ == TestOp::kMulSum ? limit / 2 : limit;
    } else {
      const uint64_t largest = static_cast<uint64_t>(std::numeric_limits<Storage>::max());
      return static_cast<int64_t>(std::min<uint64_t>(largest, uint64_t{1} << 30));
    }
  }

  uint64_t rank_hash(uint64_t hash, int rank) const {
    const uint64_t product = hash * multipliers_[static_cast<size_t>(rank)];
    return product ^ (product >> 32);
  }

  /// Position of `rank` in a cyclic order. The element's hash chooses the first rank.
  int place(uint64_t hash, int rank) const {
    const int start =
        static_cast<int>(below(static_cast<uint32_t>(hash >> 32), static_cast<uint64_t>(rank_count_)));
    return rank >= start ? rank - start : rank - start + rank_count_;
  }

  /// In [-most_, most_], or [0, most_] for unsigned types; 0 outside the window.
  int64_t small_integer(uint64_t hash, int rank) const {
    if (window_ < rank_count_ && place(hash, rank) >= window_) return 0;
    const uint32_t bits = static_cast<uint32_t>(rank_hash(hash, rank));
    if constexpr (Traits::kKind == Kind::kFloat || std::is_signed_v<Storage>)
      return static_cast<int64_t>(below(bits, static_cast<uint64_t>(2 * most_ + 1))) - most_;
    else
      return static_cast<int64_t>(below(bits, static_cast<uint64_t>(most_ + 1)));
  }

  double factor(uint64_t hash, int rank) const {
    const uint64_t bits = rank_hash(hash, rank);
    const double sign = (bits & 1) ? -1.0 : 1.0;
    const int position = place(hash, rank);
    if (position == 0) return sign * 0.25 * static_cast<double>(4 + ((bits >> 1) & 3));
    if (position >= kProductWindow) return sign;
    return sign * kScales[1 + below(static_cast<uint32_t>(bits >> 8), 3)];
  }

  Bits operand_of(uint64_t hash, int rank) const {
    if constexpr (Traits::kKind == Kind::kFloat) {
      if (op_ == TestOp::kProd) return encode_float<Traits>(factor(hash, rank));
      if (is_exact()) return any_finite(rank_hash(hash, rank));
      return encode_float<Traits>(static_cast<double>(small_integer(hash, rank)) * kScales[hash & 3]);
    } else if constexpr (Traits::kKind == Kind::kBool) {
      return static_cast<Bits>((hash & 1) ^ (place(hash, rank) == 0 ? (hash >> 1) & 1 : 0));
    } else {
      const uint64_t bits = rank_hash(hash, rank);
      switch (op_) {
        case TestOp::kProd: return static_cast<Bits>(bits | 1);
        case TestOp::kAvg: return static_cast<Bits>(small_integer(hash, rank));
        case TestOp::kBitAnd: return static_cast<Bits>(bits | (bits >> 17) | hash);
        case TestOp::kBitOr: return static_cast<Bits>(bits & (bits >> 17) & hash);
        default: return static_cast<Bits>(bits);
      }
    }
  }

  static Bits any_finite(uint64_t hash) {
    Bits bits = static_cast<Bits>(hash);
    const Bits exponent = static_cast<Bits>(((uint64_t{1} << Traits::kExponent) - 1) << Traits::kMantissa);
    if constexpr (Traits::kExponent == 4 && Traits::kMantissa == 3) {
      if ((bits & 0x7f) == 0x7f) bits = static_cast<Bits>(bits ^ 1);  // e4m3 has no infinity, one NaN
    } else if ((bits & exponent) == exponent) {
      bits = static_cast<Bits>(bits ^ (Bits{1} << Traits::kMantissa));
    }
    return bits == Traits::kSign ? Bits{0} : bits;
  }

  Bits reduced_float(uint64_t hash) const {
    if (op_ == TestOp::kProd) {
      double product = 1.0;
      for (int rank = 0; rank < rank_count_; ++rank) product *= factor(hash, rank);
      return encode_float<Traits>(product);
    }
    if (is_exact()) {
      double result = decode_float<Traits>(operand_of(hash, 0));
      for (int rank = 1; rank < rank_count_; ++rank)
        result = apply(result, decode_float<Traits>(operand_of(hash, rank)));
      return encode_float<Traits>(result);
    }
    int64_t sum = 0;
    for (int rank = 0; rank < rank_count_; ++rank)
      sum += small_integer(hash, rank) * (op_ == TestOp::kMulSum ? 1 + rank % 2 : 1);
    const double value = static_cast<double>(sum) * kScales[hash & 3];
    return encode_float<Traits>(op_ == TestOp::kAvg ? value / rank_count_ : value);
  }

  Bits reduced_integer(uint64_t hash) const {
    if (op_ == TestOp::kAvg) {
      int64_t sum = 0;
      for (int rank = 0; rank < rank_count_; ++rank) sum += small_integer(hash, rank);
      return static_cast<Bits>(sum / rank_count_);
    }
    Bits result = static_cast<Bits>(operand_of(hash, 0) * scalar(0));
    for (int rank = 1; rank < rank_count_; ++rank)
      result = combine(result, static_cast<Bits>(operand_of(hash, rank) * scalar(rank)));
    return result;
  }

  Bits scalar(int rank) const { return static_cast<Bits>(op_ == TestOp::kMulSum ? 1 + rank % 7 : 1); }

  Bits combine(Bits a, Bits b) const {
    return static_cast<Bits>(apply(static_cast<Storage>(a), static_cast<Storage>(b)));
  }

  /// The function in the operator's row.
  template <class Value>
  Value apply(Value a, Value b) const {
    constexpr operators::Types kTypes = Traits::kKind == Kind::kFloat  ? operators::kFloats
                                        : Traits::kKind == Kind::kBool ? operators::kBool
                                                                       : operators::kIntegers;
    return operators::visit(static_cast<size_t>(op_), [a, b](auto row) -> Value {
      using Row = decltype(row);
      if constexpr (!Row::is_defined(kTypes)) {
        return a;
      } else if constexpr (kTypes == operators::kBool) {
        return Row::BoolFunction::combine(a, b);
      } else {
        return Row::Function::combine(a, b);
      }
    });
  }
  bool is_exact() const {
    return operators::visit(static_cast<size_t>(op_),
                            [](auto row) { return decltype(row)::Function::kExact; });
  }

  TestOp op_;
  int rank_count_;
  uint64_t seed_;
  std::vector<uint64_t> multipliers_;
  int window_ = 1;
  int64_t most_ = 1;
};

template <class Bits, class Make>
void fill(size_t first, size_t count, void* out, Make&& make) {
  unsigned char* bytes = static_cast<unsigned char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const Bits bits = make(first + i);
    std::memcpy(bytes + i * sizeof(Bits), &bits, sizeof(Bits));
  }
}

}  // namespace

void fill_operand(const Reduction& reduction, int rank, size_t first, size_t count, void* out) {
  with_traits(reduction.type, [&](auto traits) {
    using Traits = decltype(traits);
    const Generator<Traits> generator(reduction);
    fill<typename Traits::Bits>(first, count, out,
                                [&](size_t index) { return generator.operand(index, rank); });
  });
}

void fill_reduced(const Reduction& reduction, size_t first, size_t count, void* out) {
  with_traits(reduction.type, [&](auto traits) {
    using Traits = decltype(traits);
    const Generator<Traits> generator(reduction);
    fill<typename Traits::Bits>(first, count, out, [&](size_t index) { return generator.reduced(index); });
  });
}

void fill_stream(tutti_type_t type, uint64_t seed, size_t first, size_t count, void* out) {
  const uint64_t key = mix(seed + 1);
  with_traits(type, [&](auto traits) {
    using Traits = decltype(traits);
    using Bits = typename Traits::Bits;
    constexpr uint64_t kMask = Traits::kKind == Kind::kBool ? 1 : ~uint64_t{0};
    fill<Bits>(first, count, out,
               [&](size_t index) { return static_cast<Bits>(element_hash(key, index) & kMask); });
  });
}

void premul_scalar(tutti_type_t type, int rank, void* out) {
  std::memset(out, 0, 8);
  with_traits(type, [&](auto traits) {
    using Traits = decltype(traits);
    typename Traits::Bits bits{};
    if constexpr (Traits::kKind == Kind::kFloat)
      bits = encode_float<Traits>(1 + rank % 2);
    else
      bits = static_cast<typename Traits::Bits>(1 + rank % 7);
    std::memcpy(out, &bits, sizeof(bits));
  });
}

int tolerance_ulp(const Reduction& reduction) {
  const unsigned ranks = static_cast<unsigned>(reduction.rank_count);
  const bool exact = (ranks & (ranks - 1)) == 0;
  return reduction.op == TestOp::kAvg && is_float_type(reduction.type) && !exact ? 2 : 0;
}

size_t count_wrong(tutti_type_t type, int tolerance, const void* got, const void* want, size_t count) {
  if (std::memcmp(got, want, count * test_type_bytes(type)) == 0) return 0;
  return with_traits(type, [&](auto traits) {
    using Traits = decltype(traits);
    using Bits = typename Traits::Bits;
    const unsigned char* left = static_cast<const unsigned char*>(got);
    const unsigned char* right = static_cast<const unsigned char*>(want);
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      Bits a{};
      Bits b{};
      std::memcpy(&a, left + i * sizeof(Bits), sizeof(Bits));
      std::memcpy(&b, right + i * sizeof(Bits), sizeof(Bits));
      if (a == b) continue;
      bool near = false;
      if constexpr (Traits::kKind == Kind::kFloat) {
        if (tolerance > 0) {
          const int64_t x = float_order<Traits>(a);
          const int64_t y = float_order<Traits>(b);
          // Unsigned, because the distance between values of different sign may exceed an int64_t.
          const uint64_t distance =
              static_cast<uint64_t>(std::max(x, y)) - static_cast<uint64_t>(std::min(x, y));
          near = distance <= static_cast<uint64_t>(tolerance);
        }
      }
      if (!near) ++wrong;
    }
    return wrong;
  });
}

}  // namespace tutti::perf
