// Integer arithmetic, logic and bits.
#include <algorithm>
#include <limits>

#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
constexpr uint32_t kBits = sizeof(T) * 8;

// Results wrap: computed without a sign.
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T>) return static_cast<T>((static_cast<Int128>(a) * b) >> kBits<T>);
    return static_cast<T>((static_cast<UnsignedInt128>(a) * b) >> kBits<T>);
  }
};
template <class R>
struct MulWide {
  template <class T>
  R operator()(T a, T b) const {
    return static_cast<R>(static_cast<uint64_t>(static_cast<R>(a)) *
                          static_cast<uint64_t>(static_cast<R>(b)));
  }
};
template <class Mul>
struct MulAdd {
  template <class T, class C>
  C operator()(T a, T b, C c) const {
    return Add()(static_cast<C>(Mul()(a, b)), c);
  }
};
/// Devices give some number for a division by zero; programs must not depend on it.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub()(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <class T>
  T operator()(T a) const {
    return a == 0 ? 1 : 0;
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return Sub()(T{0}, a);
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < T{0} ? Sub()(T{0}, a) : a;
  }
};
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t by) const {
    return by < kBits<T> ? static_cast<T>(static_cast<Unsigned<T>>(a) << by) : T{0};
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t by) const {
    if (by < kBits<T>) return static_cast<T>(a >> by);
    return static_cast<T>(a < T{0} ? -1 : 0);
  }
};
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
  }
};
struct SubSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
  }
};
struct AbsoluteDifferenceAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add()(c, a < b ? Sub()(b, a) : Sub()(a, b));
  }
};
struct PopCount {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  template <class T>
  T operator()(T a) const {
    T result = 0;
    for (uint32_t bit = 0; bit < kBits<T>; ++bit) result |= ((a >> bit) & 1) << (kBits<T> - 1 - bit);
    return result;
  }
};
template <bool kShiftAmount>
struct FindBit {
  template <class T>
  uint32_t operator()(T a) const {
    auto bits = static_cast<Unsigned<T>>(a);
    if (a < T{0}) bits = static_cast<Unsigned<T>>(~bits);
    if (bits == 0) return kAll;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return kShiftAmount ? zeros : kBits<T> - 1 - zeros;
  }
};
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t pick = selector >> (4 * i) & 0xf;
      uint32_t byte = bytes >> (8 * (pick & 7)) & 0xff;
      if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};
template <bool kLeft, bool kClamp>
struct Funnel {
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t by) const {
    by = kClamp ? std::min(by, 32u) : by & 31;
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<uint32_t>(kLeft ? (both << by) >> 32 : both >> by);
  }
};

template <class T>
T low_bits(uint32_t count) {
  return count >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}

template <class T>
void extract(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  using U = Unsigned<T>;
  const auto* a = warp.at<U>(instruction.a);
  const auto* at = warp.at<uint32_t>(instruction.b);
  const auto* count = warp.at<uint32_t>(instruction.c);
  auto* d = warp.at<U>(instruction.d);
  each(lanes, [=](uint32_t lane) {
    const uint32_t first = at[lane] & 0xff;
    const uint32_t bits = std::min(count[lane] & 0xff, kBits<T>);
    U value = first < kBits<T> ? static_cast<U>(a[lane] >> first) : U{0};
    value &= low_bits<U>(bits);
    if (std::is_signed_v<T> && bits > 0) {
      const uint32_t sign_at = std::min(first + bits - 1, kBits<T> - 1);
      if ((a[lane] >> sign_at & 1) != 0)
        value |= static_cast<U>(~low_bits<U>(std::min(bits, sign_at - std::min(first, sign_at) + 1)));
    }
    d[lane] = value;
  });
}

template <class T>
void insert(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<T>(instruction.a);
  const auto* b = warp.at<T>(instruction.b);
  const auto* at = warp.at<uint32_t>(instruction.c);
  const auto* count = warp.at<uint32_t>(instruction.e);
  auto* d = warp.at<T>(instruction.d);
  each(lanes, [=](uint32_t lane) {
    const uint32_t first = at[lane] & 0xff;
    if (first >= kBits<T>) {
      d[lane] = b[lane];
      return;
    }
    const T mask = static_cast<T>(low_bits<T>(count[lane] & 0xff) << first);
    d[lane] = (b[lane] & ~mask) | (static_cast<T>(a[lane] << first) & mask);
  });
}

void look_up(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<uint32_t>(instruction.a);
  const auto* b = warp.at<uint32_t>(instruction.b);
  const auto* c = warp.at<uint32_t>(instruction.c);
  auto* d = warp.at<uint32_t>(instruction.d);
  const auto table = static_cast<uint32_t>(instruction.offset);
  each(lanes, [=](uint32_t lane) {
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      if ((table >> i & 1) == 0) continue;
      result |= ((i & 4) != 0 ? a[lane] : ~a[lane]) & ((i & 2) != 0 ? b[lane] : ~b[lane]) &
                ((i & 1) != 0 ? c[lane] : ~c[lane]);
    }
    d[lane] = result;
  });
}

/// add.cc, addc, sub.cc, subc, mad.cc ...: `kind` bit 0: uses the carry, bit 1: sets it, bit 2: subtracts.
/// A subtraction adds the complement and 1, so its carry says that nothing was borrowed. The compiler's
/// division of 128 bits reads the carry of subc.cc by addc.
template <class T>
void carrying(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<T>(instruction.a);
  const auto* b = warp.at<T>(instruction.b);
  auto* d = warp.at<T>(instruction.d);
  uint32_t& carries = warp.predicate(instruction.e);
  const bool subtracts = (instruction.kind & 4) != 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const bool carry = (instruction.kind & 1) != 0 ? (carries >> lane & 1) != 0 : subtracts;
    const T added = subtracts ? static_cast<T>(~b[lane]) : b[lane];
    const UnsignedInt128 wide = static_cast<UnsignedInt128>(a[lane]) + added + (carry ? 1 : 0);
    d[lane] = static_cast<T>(wide);
    if ((instruction.kind & 2) == 0) continue;
    const bool out = (wide >> kBits<T> & 1) != 0;
    carries = out ? carries | 1u << lane : carries & ~(1u << lane);
  }
}

template <class Op>
Handler integer_binary(const std::string& type) {
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = binary<decltype(zero), decltype(zero), Op>; });
  return handler;
}
template <class Op>
Handler integer_unary(const std::string& type) {
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = unary<decltype(zero), decltype(zero), Op>; });
  return handler;
}

/// add, sub.
void decode_add(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (is_float(type)) return decode_float(decoder, type);
  if (is_small_float(type)) return decode_small_float(decoder, type);
  const uint32_t bits = register_bits(type);
  const bool subtracts = decoder.name()[0] == 's';
  const bool uses = decoder.name().back() == 'c' && decoder.name().size() == 4;
  if (decoder.take("sat")) {
    if (type != "s32") decoder.unknown();
    decoder.emit(
        plain(decoder, bits, 2,
              subtracts ? binary<int32_t, int32_t, SubSaturated> : binary<int32_t, int32_t, AddSaturated>));
    return;
  }
  const bool sets = decoder.take("cc");
  if (uses || sets) {
    Instruction made = plain(decoder, bits, 2, bits == 64 ? carrying<uint64_t> : carrying<uint32_t>);
    made.e = decoder.carry();
    made.kind = static_cast<uint8_t>((uses ? 1 : 0) | (sets ? 2 : 0) | (subtracts ? 4 : 0));
    decoder.emit(made);
    return;
  }
  if (type == "u16x2" || type == "s16x2") decoder.unknown();
  decoder.emit(plain(decoder, bits, 2, subtracts ? integer_binary<Sub>(type) : integer_binary<Add>(type)));
}

std::string wide_of(const std::string& type) {
  return type[0] + (type == "u16" || type == "s16" ? std::string("32") : std::string("64"));
}

Handler wide_multiply(const std::string& type, bool adds) {
  if (type == "u16")
    return adds ? ternary<uint32_t, uint16_t, uint32_t, MulAdd<MulWide<uint32_t>>>
                : binary<uint32_t, uint16_t, MulWide<uint32_t>>;
  if (type == "s16")
    return adds ? ternary<int32_t, int16_t, int32_t, MulAdd<MulWide<int32_t>>>
                : binary<int32_t, int16_t, MulWide<int32_t>>;
  if (type == "u32")
    return adds ? ternary<uint64_t, uint32_t, uint64_t, MulAdd<MulWide<uint64_t>>>
                : binary<uint64_t, uint32_t, MulWide<uint64_t>>;
  if (type == "s32")
    return adds ? ternary<int64_t, int32_t, int64_t, MulAdd<MulWide<int64_t>>>
                : binary<int64_t, int32_t, MulWide<int64_t>>;
  return nullptr;
}

/// mul, mad, and their forms of 24 bits, whose operands fit by contract.
void decode_multiply(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (is_float(type)) return decode_float(decoder, type);
  if (is_small_float(type)) return decode_small_float(decoder, type);
  const bool adds = decoder.name()[1] == 'a';
  const bool uses = decoder.name() == "madc";
  const bool sets = decoder.take("cc");
  const uint32_t bits = register_bits(type);
  if (decoder.take("wide")) {
    const Handler handler = wide_multiply(type, adds);
    if (handler == nullptr || sets || uses) decoder.unknown();
    Instruction made = decoder.make(handler);
    made.d = decoder.target(decoder.operands.at(0), register_bits(wide_of(type)));
    made.a = decoder.source(decoder.operands.at(1), bits);
    made.b = decoder.source(decoder.operands.at(2), bits);
    if (adds) made.c = decoder.source(decoder.operands.at(3), register_bits(wide_of(type)));
    decoder.emit(made);
    return;
  }
  const bool high = decoder.take("hi");
  decoder.take("lo");
  if (sets || uses) {
    // In two: the product, then the sum with the carry.
    Instruction product = decoder.make(high ? integer_binary<MulHigh>(type) : integer_binary<MulLow>(type));
    product.d = decoder.fresh(bits);
    product.a = decoder.source(decoder.operands.at(1), bits);
    product.b = decoder.source(decoder.operands.at(2), bits);
    decoder.emit(product);
    Instruction sum = decoder.make(bits == 64 ? carrying<uint64_t> : carrying<uint32_t>);
    sum.d = decoder.target(decoder.operands.at(0), bits);
    sum.a = product.d;
    sum.b = decoder.source(decoder.operands.at(3), bits);
    sum.e = decoder.carry();
    sum.kind = static_cast<uint8_t>((uses ? 1 : 0) | (sets ? 2 : 0));
    decoder.emit(sum);
    return;
  }
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    if (adds) {
      handler = high ? ternary<T, T, T, MulAdd<MulHigh>> : ternary<T, T, T, MulAdd<MulLow>>;
    } else {
      handler = high ? binary<T, T, MulHigh> : binary<T, T, MulLow>;
    }
  });
  decoder.emit(plain(decoder, bits, adds ? 3 : 2, handler));
}

template <class Op>
void decode_binary(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (is_float(type)) return decode_float(decoder, type);
  if (is_small_float(type)) return decode_small_float(decoder, type);
  const Handler handler = integer_binary<Op>(type);
  if (handler == nullptr) decoder.unknown("its type");
  decoder.emit(plain(decoder, register_bits(type), 2, handler));
}

/// Predicates are masks of 32 lanes.
template <class Op>
void predicate_binary(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  warp.set_predicate(instruction.d, lanes,
                     Op()(warp.predicate(instruction.a), warp.predicate(instruction.b)));
}
void predicate_not(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  warp.set_predicate(instruction.d, lanes, ~warp.predicate(instruction.a));
}

template <class Op>
void decode_logic(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (type == "pred") {
    decoder.emit(plain(decoder, 1, 2, predicate_binary<Op>));
  } else {
    const Handler handler = integer_binary<Op>(type);
    if (handler == nullptr) decoder.unknown("its type");
    decoder.emit(plain(decoder, register_bits(type), 2, handler));
  }
}

void decode_not(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (type == "pred") {
    decoder.emit(plain(decoder, 1, 1, predicate_not));
  } else {
    decoder.emit(
        plain(decoder, register_bits(type), 1,
              decoder.name() == "cnot" ? integer_unary<LogicalNot>(type) : integer_unary<Not>(type)));
  }
}

template <class Op>
void decode_unary(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (is_float(type)) return decode_float(decoder, type);
  if (is_small_float(type)) return decode_small_float(decoder, type);
  decoder.emit(plain(decoder, register_bits(type), 1, integer_unary<Op>(type)));
}

template <class Op>
void decode_shift(Decoder& decoder) {
  const std::string type = decoder.take_type();
  const uint32_t bits = register_bits(type);
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = shifting<decltype(zero), Op>; });
  Instruction made = decoder.make(handler);
  made.d = decoder.target(decoder.operands.at(0), bits);
  made.a = decoder.source(decoder.operands.at(1), bits);
  made.b = decoder.source(decoder.operands.at(2), 32);
  decoder.emit(made);
}

/// An instruction with a 32-bit result.
template <class Op>
void decode_count(Decoder& decoder) {
  const std::string type = decoder.take_type();
  const uint32_t bits = register_bits(type);
  Instruction made = decoder.make(bits == 64 ? unary<uint32_t, uint64_t, Op> : unary<uint32_t, uint32_t, Op>);
  made.d = decoder.target(decoder.operands.at(0), 32);
  made.a = decoder.source(decoder.operands.at(1), bits);
  decoder.emit(made);
}

void decode_find(Decoder& decoder) {
  const std::string type = decoder.take_type();
  const bool amount = decoder.take("shiftamt");
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    handler = amount ? unary<uint32_t, T, FindBit<true>> : unary<uint32_t, T, FindBit<false>>;
  });
  Instruction made = decoder.make(handler);
  made.d = decoder.target(decoder.operands.at(0), 32);
  made.a = decoder.source(decoder.operands.at(1), register_bits(type));
  decoder.emit(made);
}

void decode_reverse(Decoder& decoder) {
  const uint32_t bits = register_bits(decoder.take_type());
  decoder.emit(plain(decoder, bits, 1,
                     bits == 64 ? unary<uint64_t, uint64_t, Reverse> : unary<uint32_t, uint32_t, Reverse>));
}

void decode_extract(Decoder& decoder) {
  const std::string type = decoder.take_type();
  const uint32_t bits = register_bits(type);
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = extract<decltype(zero)>; });
  Instruction made = decoder.make(handler);
  made.d = decoder.target(decoder.operands.at(0), bits);
  made.a = decoder.source(decoder.operands.at(1), bits);
  made.b = decoder.source(decoder.operands.at(2), 32);
  made.c = decoder.source(decoder.operands.at(3), 32);
  decoder.emit(made);
}

void decode_insert(Decoder& decoder) {
  const uint32_t bits = register_bits(decoder.take_type());
  Instruction made = plain(decoder, bits, 2, bits == 64 ? insert<uint64_t> : insert<uint32_t>);
  made.c = decoder.source(decoder.operands.at(3), 32);
  made.e = decoder.source(decoder.operands.at(4), 32);
  decoder.emit(made);
}

void decode_permute(Decoder& decoder) {
  decoder.take_type();
  decoder.emit(plain(decoder, 32, 3, ternary<uint32_t, uint32_t, uint32_t, Permute>));
}

void decode_funnel(Decoder& decoder) {
  decoder.take_type();
  const bool left = decoder.take("l");
  if (!left) decoder.take("r");
  const bool clamp = decoder.take("clamp");
  if (!clamp) decoder.take("wrap");
  using U = uint32_t;
  const Handler handler =
      left ? (clamp ? ternary<U, U, U, Funnel<true, true>> : ternary<U, U, U, Funnel<true, false>>)
           : (clamp ? ternary<U, U, U, Funnel<false, true>> : ternary<U, U, U, Funnel<false, false>>);
  decoder.emit(plain(decoder, 32, 3, handler));
}

void decode_look_up(Decoder& decoder) {
  decoder.take_type();
  Instruction made = plain(decoder, 32, 3, look_up);
  made.offset = static_cast<int64_t>(std::stoull(decoder.operands.at(4), nullptr, 0));
  decoder.emit(made);
}

void decode_sad(Decoder& decoder) {
  const std::string type = decoder.take_type();
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) {
    using T = decltype(zero);
    handler = ternary<T, T, T, AbsoluteDifferenceAdd>;
  });
  decoder.emit(plain(decoder, register_bits(type), 3, handler));
}

/// dp4a: `kind` bit 0: a has signs, bit 1: b has.
void dot_four(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<uint32_t>(instruction.a);
  const auto* b = warp.at<uint32_t>(instruction.b);
  const auto* c = warp.at<uint32_t>(instruction.c);
  auto* d = warp.at<uint32_t>(instruction.d);
  each(lanes, [=, kind = instruction.kind](uint32_t lane) {
    uint32_t sum = c[lane];
    for (uint32_t i = 0; i < 4; ++i) {
      const auto x = static_cast<uint8_t>(a[lane] >> (8 * i));
      const auto y = static_cast<uint8_t>(b[lane] >> (8 * i));
      const int32_t left = (kind & 1) != 0 ? static_cast<int8_t>(x) : x;
      const int32_t right = (kind & 2) != 0 ? static_cast<int8_t>(y) : y;
      sum += static_cast<uint32_t>(left * right);
    }
    d[lane] = sum;
  });
}

void decode_dot(Decoder& decoder) {
  Instruction made = plain(decoder, 32, 3, dot_four);
  const std::string b = decoder.take_type();
  const std::string a = decoder.take_type();
  made.kind = static_cast<uint8_t>((is_signed(a) ? 1 : 0) | (is_signed(b) ? 2 : 0));
  decoder.emit(made);
}

}  // namespace

void add_arithmetic(DecodeTable& table) {
  for (const char* name : {"add", "sub", "addc", "subc"}) table[name] = decode_add;
  for (const char* name : {"mul", "mad", "madc", "mul24", "mad24"}) table[name] = decode_multiply;
  table["div"] = decode_binary<Div>;
  table["rem"] = decode_binary<Rem>;
  table["min"] = decode_binary<Min>;
  table["max"] = decode_binary<Max>;
  table["and"] = decode_logic<And>;
  table["or"] = decode_logic<Or>;
  table["xor"] = decode_logic<Xor>;
  table["not"] = table["cnot"] = decode_not;
  table["neg"] = decode_unary<Neg>;
  table["abs"] = decode_unary<Abs>;
  table["shl"] = decode_shift<ShiftLeft>;
  table["shr"] = decode_shift<ShiftRight>;
  table["popc"] = decode_count<PopCount>;
  table["clz"] = decode_count<LeadingZeros>;
  table["bfind"] = decode_find;
  table["brev"] = decode_reverse;
  table["bfe"] = decode_extract;
  table["bfi"] = decode_insert;
  table["prmt"] = decode_permute;
  table["shf"] = decode_funnel;
  table["lop3"] = decode_look_up;
  table["sad"] = decode_sad;
  table["dp4a"] = decode_dot;
}

}  // namespace fake_cuda::ptx
