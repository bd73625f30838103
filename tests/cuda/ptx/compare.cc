// setp, set, selp, slct.
#include <cmath>

#include "reduce/formats.h"
#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

template <class T>
bool unordered(T a, T b) {
  return a != a || b != b;
}
template <class Op, bool kUnordered>
struct Ordered {
  template <class T>
  bool operator()(T a, T b) const {
    return unordered(a, b) ? kUnordered : Op()(a, b);
  }
};
struct IsNumber {
  template <class T>
  bool operator()(T a, T b) const {
    return !unordered(a, b);
  }
};
struct IsNan {
  template <class T>
  bool operator()(T a, T b) const {
    return unordered(a, b);
  }
};

/// How the outcome joins with predicate `c`: bits of `kind`.
constexpr uint8_t kJoins = 3;  ///< 0: not at all, 1: and, 2: or, 3: xor
constexpr uint8_t kNegatedJoin = 4;
constexpr uint8_t kSecond = 8;  ///< `e` gets the opposite

template <class Load, class Op>
void compare(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  using Word = typename Load::Word;
  const Word* const a = warp.at<Word>(instruction.a);
  const Word* const b = warp.at<Word>(instruction.b);
  uint32_t values = 0;
  if (lanes == kAll) {
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      values |= static_cast<uint32_t>(Op()(Load::of(a[lane]), Load::of(b[lane]))) << lane;
  } else {
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      values |= static_cast<uint32_t>(Op()(Load::of(a[lane]), Load::of(b[lane]))) << lane;
    }
  }
  uint32_t opposite = ~values;
  if ((instruction.kind & kJoins) != 0) {
    uint32_t other = warp.predicate(instruction.c);
    if ((instruction.kind & kNegatedJoin) != 0) other = ~other;
    const auto join = [&](uint32_t value) {
      switch (instruction.kind & kJoins) {
        case 1: return value & other;
        case 2: return value | other;
        default: return value ^ other;
      }
    };
    values = join(values);
    opposite = join(opposite);
  }
  if ((instruction.kind & kSecond) != 0) warp.set_predicate(instruction.e, lanes, opposite);
  warp.set_predicate(instruction.d, lanes, values);
}

template <class T>
struct AsIs {
  using Word = T;
  static T of(T value) { return value; }
};
template <class Small>
struct AsFloat {
  using Word = uint16_t;
  static float of(uint16_t value) { return tutti::reduce::widen<Small>(value); }
};

template <class Load>
Handler integer_compare(const std::string& how) {
  if (how == "eq") return compare<Load, Equal>;
  if (how == "ne") return compare<Load, NotEqual>;
  if (how == "lt" || how == "lo") return compare<Load, Less>;
  if (how == "le" || how == "ls") return compare<Load, LessEqual>;
  if (how == "gt" || how == "hi") return compare<Load, Greater>;
  if (how == "ge" || how == "hs") return compare<Load, GreaterEqual>;
  return nullptr;
}

template <class Load>
Handler float_compare(const std::string& how) {
  if (how == "eq") return compare<Load, Ordered<Equal, false>>;
  if (how == "ne") return compare<Load, Ordered<NotEqual, false>>;
  if (how == "lt") return compare<Load, Ordered<Less, false>>;
  if (how == "le") return compare<Load, Ordered<LessEqual, false>>;
  if (how == "gt") return compare<Load, Ordered<Greater, false>>;
  if (how == "ge") return compare<Load, Ordered<GreaterEqual, false>>;
  if (how == "equ") return compare<Load, Ordered<Equal, true>>;
  if (how == "neu") return compare<Load, Ordered<NotEqual, true>>;
  if (how == "ltu") return compare<Load, Ordered<Less, true>>;
  if (how == "leu") return compare<Load, Ordered<LessEqual, true>>;
  if (how == "gtu") return compare<Load, Ordered<Greater, true>>;
  if (how == "geu") return compare<Load, Ordered<GreaterEqual, true>>;
  if (how == "num") return compare<Load, IsNumber>;
  if (how == "nan") return compare<Load, IsNan>;
  return nullptr;
}

Handler find_compare(const std::string& how, const std::string& type) {
  if (type == "f32") return float_compare<AsIs<float>>(how);
  if (type == "f64") return float_compare<AsIs<double>>(how);
  if (type == "f16") return float_compare<AsFloat<tutti::reduce::Float16>>(how);
  if (type == "bf16") return float_compare<AsFloat<tutti::reduce::Bfloat16>>(how);
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = integer_compare<AsIs<decltype(zero)>>(how); });
  return handler;
}

/// setp, and the part of set that is the same; the target is a predicate.
Instruction decode_compare(Decoder& decoder, const std::string& type) {
  if (decoder.modifiers.empty()) decoder.unknown();
  const std::string how = decoder.modifiers.front();
  decoder.modifiers.erase(decoder.modifiers.begin());
  decoder.take("ftz");
  const std::string joins = decoder.take_one({"and", "or", "xor"});
  const Handler handler = find_compare(how, type);
  if (handler == nullptr) decoder.unknown("comparison ." + how);
  Instruction made = decoder.make(handler);
  const uint32_t bits = register_bits(type);
  made.a = decoder.source(decoder.operands.at(1), bits);
  made.b = decoder.source(decoder.operands.at(2), bits);
  if (joins.empty()) return made;
  made.kind = joins == "and" ? 1 : joins == "or" ? 2 : 3;
  bool negated = false;
  made.c = decoder.predicate(decoder.operands.at(3), negated);
  if (negated) made.kind |= kNegatedJoin;
  return made;
}

void decode_setp(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (type == "f16x2" || type == "bf16x2") decoder.unknown();
  Instruction made = decode_compare(decoder, type);
  const std::string& targets = decoder.operands.at(0);
  const size_t bar = targets.find('|');
  made.d = decoder.target(trimmed(targets.substr(0, bar)), 1);
  if (bar != std::string::npos) {
    made.e = decoder.target(trimmed(targets.substr(bar + 1)), 1);
    made.kind |= kSecond;
  }
  decoder.emit(made);
}

/// A predicate as a number: all ones, or 1.0.
template <class T>
void spread(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t values = warp.predicate(instruction.a);
  auto* d = warp.at<T>(instruction.d);
  each(lanes, [=, one = static_cast<T>(instruction.offset)](uint32_t lane) {
    d[lane] = (values >> lane & 1) != 0 ? one : T{0};
  });
}

void decode_set(Decoder& decoder) {
  const std::string source = decoder.take_type();
  const std::string type = decoder.take_type();
  if (source == "f16x2" || source == "bf16x2") decoder.unknown();
  Instruction made = decode_compare(decoder, source);
  made.d = decoder.fresh(1);
  decoder.emit(made);
  const uint32_t bits = register_bits(type);
  Instruction number = decoder.make(bits == 16 ? spread<uint16_t> : spread<uint32_t>);
  number.a = made.d;
  number.d = decoder.target(decoder.operands.at(0), bits);
  number.offset = type == "f32" ? 0x3f800000 : type == "f16" ? 0x3c00 : type == "bf16" ? 0x3f80 : -1;
  decoder.emit(number);
}

template <class T>
void select(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t holds = warp.predicate(instruction.c);
  const T* const a = warp.at<T>(instruction.a);
  const T* const b = warp.at<T>(instruction.b);
  T* const d = warp.at<T>(instruction.d);
  each(lanes, [=](uint32_t lane) { d[lane] = (holds >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

void decode_selp(Decoder& decoder) {
  const uint32_t bits = register_bits(decoder.take_type());
  Instruction made = plain(decoder, bits, 2,
                           bits == 64   ? select<uint64_t>
                           : bits == 32 ? select<uint32_t>
                                        : select<uint16_t>);
  bool negated = false;
  made.c = decoder.predicate(decoder.operands.at(3), negated);
  if (negated) std::swap(made.a, made.b);
  decoder.emit(made);
}

template <class T, class C>
void select_by_sign(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* const a = warp.at<T>(instruction.a);
  const T* const b = warp.at<T>(instruction.b);
  const C* const c = warp.at<C>(instruction.c);
  T* const d = warp.at<T>(instruction.d);
  each(lanes, [=](uint32_t lane) { d[lane] = c[lane] >= C{0} ? a[lane] : b[lane]; });
}

void decode_slct(Decoder& decoder) {
  const std::string selector = decoder.take_type();
  const uint32_t bits = register_bits(decoder.take_type());
  decoder.take("ftz");
  Handler handler = bits == 64 ? select_by_sign<uint64_t, int32_t> : select_by_sign<uint32_t, int32_t>;
  if (selector == "f32")
    handler = bits == 64 ? select_by_sign<uint64_t, float> : select_by_sign<uint32_t, float>;
  if (bits == 16) decoder.unknown();
  Instruction made = plain(decoder, bits, 2, handler);
  made.c = decoder.source(decoder.operands.at(3), 32);
  decoder.emit(made);
}

}  // namespace

void add_compare(DecodeTable& table) {
  table["setp"] = decode_setp;
  table["set"] = decode_set;
  table["selp"] = decode_selp;
  table["slct"] = decode_slct;
}

}  // namespace fake_cuda::ptx
