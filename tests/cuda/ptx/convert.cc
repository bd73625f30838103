// cvt, mov, cvta: values from one type to another.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "reduce/formats.h"
#include "tests/cuda/ptx/lanes.h"
#include "tests/cuda/ptx/rounding.h"

namespace fake_cuda::ptx {
namespace {

namespace formats = tutti::reduce;

uint64_t load(Warp& warp, Place place, uint32_t lane) {
  switch (place.bits) {
    case 16: return warp.at<uint16_t>(place.offset)[lane];
    case 32: return warp.at<uint32_t>(place.offset)[lane];
    default: return warp.at<uint64_t>(place.offset)[lane];
  }
}

void store(Warp& warp, Place place, uint32_t lane, uint64_t value) {
  switch (place.bits) {
    case 16: warp.at<uint16_t>(place.offset)[lane] = static_cast<uint16_t>(value); break;
    case 32: warp.at<uint32_t>(place.offset)[lane] = static_cast<uint32_t>(value); break;
    default: warp.at<uint64_t>(place.offset)[lane] = value; break;
  }
}

// ---- between integers and floats ----------------------------------------------------------------

enum class Type : uint8_t { kU8, kS8, kU16, kS16, kU32, kS32, kU64, kS64, kF16, kBf16, kF32, kF64 };
const std::map<std::string, Type> kTypes = {
    {"u8", Type::kU8},   {"s8", Type::kS8},     {"b8", Type::kU8},   {"u16", Type::kU16},
    {"s16", Type::kS16}, {"b16", Type::kU16},   {"u32", Type::kU32}, {"s32", Type::kS32},
    {"b32", Type::kU32}, {"u64", Type::kU64},   {"s64", Type::kS64}, {"b64", Type::kU64},
    {"f16", Type::kF16}, {"bf16", Type::kBf16}, {"f32", Type::kF32}, {"f64", Type::kF64}};

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

// `kind` of an instruction: a Rounding and these.
constexpr uint8_t kIntegral = 4;
constexpr uint8_t kSaturate = 8;
constexpr uint8_t kFinite = 16;
constexpr uint8_t kRelu = 32;
constexpr uint8_t kFlush = 64;

double round_integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest: return std::nearbyint(value);
    case Rounding::kZero: return std::trunc(value);
    case Rounding::kDown: return std::floor(value);
    case Rounding::kUp: return std::ceil(value);
  }
  return value;
}

template <class T>
T to_integer(double value) {
  if (std::isnan(value)) return sizeof(T) == 8 ? static_cast<T>(uint64_t{1} << 63) : T{0};
  // The limits as doubles; the upper one of 64 bits is one beyond.
  const auto low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = std::ldexp(1.0, static_cast<int>(sizeof(T) * 8) - (std::is_signed_v<T> ? 1 : 0));
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

float towards(double value, Rounding rounding) {
  const auto nearest = static_cast<float>(value);
  const auto wide = static_cast<double>(nearest);
  if (rounding == Rounding::kNearest || wide == value || std::isnan(value)) return nearest;
  const float infinity = std::numeric_limits<float>::infinity();
  const bool down = rounding == Rounding::kDown || (rounding == Rounding::kZero && value > 0);
  if (down) return wide > value ? std::nextafterf(nearest, -infinity) : nearest;
  return wide < value ? std::nextafterf(nearest, infinity) : nearest;
}

template <class Small>
uint64_t to_small(double value, uint8_t kind) {
  if ((kind & kRelu) != 0 && !(value > 0)) value = std::isnan(value) ? value : 0;
  auto bits = narrow_double<Small>(value);
  const double back = formats::widen<Small>(bits);
  // To zero: one step back where it was rounded away.
  if (static_cast<Rounding>(kind & 3) == Rounding::kZero && std::fabs(back) > std::fabs(value)) --bits;
  if ((kind & kFinite) != 0 && std::isinf(back)) --bits;
  return bits;
}

/// Integers of 64 bits do not fit into a double: they are converted apart.
template <class T>
uint64_t integer_to(T value, Type to, uint8_t kind) {
  const auto rounding = static_cast<Rounding>(kind & 3);
  switch (to) {
    case Type::kF32: {
      float result = static_cast<float>(value);
      if (rounding != Rounding::kNearest && sizeof(T) >= 4) {
        const auto exact = static_cast<long double>(value);
        const bool down = rounding == Rounding::kDown || (rounding == Rounding::kZero && value > 0);
        const float infinity = std::numeric_limits<float>::infinity();
        if (down && static_cast<long double>(result) > exact) result = std::nextafterf(result, -infinity);
        if (!down && static_cast<long double>(result) < exact) result = std::nextafterf(result, infinity);
      }
      return std::bit_cast<uint32_t>(result);
    }
    case Type::kF64: {
      double result = static_cast<double>(value);
      if (rounding != Rounding::kNearest && sizeof(T) == 8) {
        const auto exact = static_cast<long double>(value);
        const bool down = rounding == Rounding::kDown || (rounding == Rounding::kZero && value > 0);
        const double infinity = std::numeric_limits<double>::infinity();
        if (down && static_cast<long double>(result) > exact) result = std::nextafter(result, -infinity);
        if (!down && static_cast<long double>(result) < exact) result = std::nextafter(result, infinity);
      }
      return std::bit_cast<uint64_t>(result);
    }
    case Type::kF16: return to_small<formats::Float16>(static_cast<double>(value), kind);
    case Type::kBf16: return to_small<formats::Bfloat16>(static_cast<double>(value), kind);
    default: break;
  }
  if ((kind & kSaturate) == 0) {
    switch (to) {
      case Type::kU8: return static_cast<uint8_t>(value);
      case Type::kS8: return static_cast<uint64_t>(static_cast<int8_t>(value));
      case Type::kU16: return static_cast<uint16_t>(value);
      case Type::kS16: return static_cast<uint64_t>(static_cast<int16_t>(value));
      case Type::kU32: return static_cast<uint32_t>(value);
      case Type::kS32: return static_cast<uint64_t>(static_cast<int32_t>(value));
      default: return static_cast<uint64_t>(value);
    }
  }
  const auto wide = static_cast<Int128>(value);
  const auto clamp = [&](auto zero) {
    using To = decltype(zero);
    const Int128 low = std::numeric_limits<To>::min();
    const Int128 high = std::numeric_limits<To>::max();
    return static_cast<uint64_t>(static_cast<To>(wide < low ? low : wide > high ? high : wide));
  };
  switch (to) {
    case Type::kU8: return clamp(uint8_t());
    case Type::kS8: return clamp(int8_t());
    case Type::kU16: return clamp(uint16_t());
    case Type::kS16: return clamp(int16_t());
    case Type::kU32: return clamp(uint32_t());
    case Type::kS32: return clamp(int32_t());
    case Type::kU64: return clamp(uint64_t());
    default: return clamp(int64_t());
  }
}

uint64_t float_to(double value, Type to, uint8_t kind) {
  const auto rounding = static_cast<Rounding>(kind & 3);
  if ((kind & kIntegral) != 0) value = round_integral(value, rounding);
  if ((kind & kSaturate) != 0 && (to == Type::kF32 || to == Type::kF64 || to == Type::kF16))
    value = std::isnan(value) ? 0 : std::clamp(value, 0.0, 1.0);
  switch (to) {
    case Type::kU8: return to_integer<uint8_t>(value);
    case Type::kS8: return static_cast<uint64_t>(to_integer<int8_t>(value));
    case Type::kU16: return to_integer<uint16_t>(value);
    case Type::kS16: return static_cast<uint64_t>(to_integer<int16_t>(value));
    case Type::kU32: return to_integer<uint32_t>(value);
    case Type::kS32: return static_cast<uint64_t>(to_integer<int32_t>(value));
    case Type::kU64: return to_integer<uint64_t>(value);
    case Type::kS64: return static_cast<uint64_t>(to_integer<int64_t>(value));
    case Type::kF16: return to_small<formats::Float16>(value, kind);
    case Type::kBf16: return to_small<formats::Bfloat16>(value, kind);
    case Type::kF32: {
      float result = towards(value, rounding);
      if ((kind & kFlush) != 0 && std::fpclassify(result) == FP_SUBNORMAL)
        result = std::copysign(0.0f, result);
      return std::bit_cast<uint32_t>(result);
    }
    default: return std::bit_cast<uint64_t>(value);
  }
}

uint64_t convert_one(uint64_t raw, Type from, Type to, uint8_t kind) {
  switch (from) {
    case Type::kU8: return integer_to(static_cast<uint8_t>(raw), to, kind);
    case Type::kS8: return integer_to(static_cast<int8_t>(raw), to, kind);
    case Type::kU16: return integer_to(static_cast<uint16_t>(raw), to, kind);
    case Type::kS16: return integer_to(static_cast<int16_t>(raw), to, kind);
    case Type::kU32: return integer_to(static_cast<uint32_t>(raw), to, kind);
    case Type::kS32: return integer_to(static_cast<int32_t>(raw), to, kind);
    case Type::kU64: return integer_to(raw, to, kind);
    case Type::kS64: return integer_to(static_cast<int64_t>(raw), to, kind);
    case Type::kF16: return float_to(formats::widen<formats::Float16>(static_cast<uint16_t>(raw)), to, kind);
    case Type::kBf16:
      return float_to(formats::widen<formats::Bfloat16>(static_cast<uint16_t>(raw)), to, kind);
    case Type::kF32: return float_to(std::bit_cast<float>(static_cast<uint32_t>(raw)), to, kind);
    case Type::kF64: return float_to(std::bit_cast<double>(raw), to, kind);
  }
  return 0;
}

/// `offset`: the types; places: target, source.
void convert(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto from = static_cast<Type>(instruction.offset & 0xff);
  const auto to = static_cast<Type>(instruction.offset >> 8);
  const auto& places = instruction.extra->places;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    store(warp, places[0], lane, convert_one(load(warp, places[1], lane), from, to, instruction.kind));
  }
}

struct Copy {
  template <class T>
  T operator()(T value) const {
    return value;
  }
};

/// The conversions between whole registers of integers that only widen or cut.
template <class T>
Handler fast_convert(uint32_t bits) {
  if (bits == 16) return unary<uint16_t, T, Copy>;
  return bits == 32 ? unary<uint32_t, T, Copy> : unary<uint64_t, T, Copy>;
}
template <class R>
Handler fast_from(const std::string& type) {
  Handler handler = nullptr;
  if (type[0] != 'f' && type[0] != 'b')
    with_integer(type, [&](auto zero) { handler = unary<R, decltype(zero), Copy>; });
  return handler;
}

uint8_t take_kind(Decoder& decoder) {
  uint8_t kind = 0;
  const std::string rounding = decoder.take_one({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna"});
  if (rounding.size() == 3) kind |= kIntegral;
  const char direction = rounding.empty() ? 'n' : rounding[1];
  if (direction == 'z') kind |= 1;
  if (direction == 'm') kind |= 2;
  if (direction == 'p') kind |= 3;
  if (rounding == "rna") decoder.unknown();
  if (decoder.take("sat")) kind |= kSaturate;
  if (decoder.take("satfinite")) kind |= kFinite;
  if (decoder.take("relu")) kind |= kRelu;
  if (decoder.take("ftz")) kind |= kFlush;
  return kind;
}

// ---- pairs --------------------------------------------------------------------------------------

/// cvt.rn.f16x2.f32 d, a, b: a is the upper half.
template <class Small, class Word, uint32_t kBits>
void convert_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<float>(instruction.a);
  const auto* b = warp.at<float>(instruction.b);
  auto* d = warp.at<Word>(instruction.d);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const auto one = [&](float value) -> uint64_t {
      if constexpr (kBits == 8) {
        if ((instruction.kind & kRelu) != 0 && value < 0) value = 0;
        // Saturating is the only form of the instruction.
        const float most = std::is_same_v<Small, formats::Float8E4M3> ? 448.0f : 57344.0f;
        if (!std::isnan(value)) value = std::clamp(value, -most, most);
        return formats::narrow<Small>(value);
      } else {
        return to_small<Small>(value, instruction.kind);
      }
    };
    d[lane] = static_cast<Word>(one(a[lane]) << kBits | one(b[lane]));
  }
}

template <class Small>
void widen_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<uint16_t>(instruction.a);
  auto* d = warp.at<uint32_t>(instruction.d);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const auto one = [](uint16_t byte) -> uint32_t {
      return formats::narrow<formats::Float16>(formats::widen<Small>(static_cast<uint8_t>(byte)));
    };
    d[lane] = one(a[lane] >> 8) << 16 | one(a[lane] & 0xff);
  }
}

template <class Small>
void narrow_pair(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<uint32_t>(instruction.a);
  auto* d = warp.at<uint16_t>(instruction.d);
  const float most = std::is_same_v<Small, formats::Float8E4M3> ? 448.0f : 57344.0f;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const auto one = [&](uint32_t half) -> uint32_t {
      float value = formats::widen<formats::Float16>(static_cast<uint16_t>(half));
      if (!std::isnan(value)) value = std::clamp(value, -most, most);
      return formats::narrow<Small>(value);
    };
    d[lane] = static_cast<uint16_t>(one(a[lane] >> 16) << 8 | one(a[lane] & 0xffff));
  }
}

void decode_pair(Decoder& decoder, const std::string& to, const std::string& from) {
  const uint8_t kind = take_kind(decoder);
  Handler handler = nullptr;
  uint32_t from_bits = 32;
  if (from == "f32") {
    if (to == "f16x2") handler = convert_pair<formats::Float16, uint32_t, 16>;
    if (to == "bf16x2") handler = convert_pair<formats::Bfloat16, uint32_t, 16>;
    if (to == "e4m3x2") handler = convert_pair<formats::Float8E4M3, uint16_t, 8>;
    if (to == "e5m2x2") handler = convert_pair<formats::Float8E5M2, uint16_t, 8>;
  } else if (to == "f16x2" && (from == "e4m3x2" || from == "e5m2x2")) {
    handler = from == "e4m3x2" ? widen_pair<formats::Float8E4M3> : widen_pair<formats::Float8E5M2>;
    from_bits = 16;
  } else if (from == "f16x2") {
    handler = to == "e4m3x2" ? narrow_pair<formats::Float8E4M3> : narrow_pair<formats::Float8E5M2>;
  }
  if (handler == nullptr) decoder.unknown();
  Instruction made = decoder.make(handler);
  made.kind = kind;
  made.d = decoder.target(decoder.operands.at(0), register_bits(to));
  made.a = decoder.source(decoder.operands.at(1), from_bits);
  if (from == "f32") made.b = decoder.source(decoder.operands.at(2), 32);
  decoder.emit(made);
}

void decode_cvt(Decoder& decoder) {
  const std::string from = decoder.take_type();
  const std::string to = decoder.take_type();
  if (to.find("x2") != std::string::npos || from.find("x2") != std::string::npos)
    return decode_pair(decoder, to, from);
  const uint8_t kind = take_kind(decoder);
  if (kTypes.count(from) == 0 || kTypes.count(to) == 0) decoder.unknown();
  const Place target = decoder.target_place(decoder.operands.at(0), register_bits(to));
  const Place source = decoder.source_place(decoder.operands.at(1), register_bits(from));
  const bool whole = source.bits == type_bytes(from) * 8 && target.bits == type_bytes(to) * 8;
  if (whole && kind == 0 && to[0] != 'f' && to != "bf16") {
    const Handler fast = to.substr(1) == "16"   ? fast_from<uint16_t>(from)
                         : to.substr(1) == "32" ? fast_from<uint32_t>(from)
                                                : fast_from<uint64_t>(from);
    if (fast != nullptr) {
      Instruction made = decoder.make(fast);
      made.d = target.offset;
      made.a = source.offset;
      decoder.emit(made);
      return;
    }
  }
  Instruction made = decoder.make(convert);
  Extra* extra = decoder.extra();
  extra->places = {target, source};
  made.extra = extra;
  made.kind = kind;
  made.offset =
      static_cast<int64_t>(static_cast<int>(kTypes.at(from)) | static_cast<int>(kTypes.at(to)) << 8);
  decoder.emit(made);
}

// ---- mov ----------------------------------------------------------------------------------------

/// places: the whole, then its parts from the lowest; `kind` 1: the whole is the target.
void pack(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& places = instruction.extra->places;
  const size_t parts = places.size() - 1;
  const auto bits = static_cast<uint32_t>(places[0].bits / parts);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    if (instruction.kind == 1) {
      uint64_t whole = 0;
      for (size_t i = 0; i < parts; ++i) {
        const uint64_t part = load(warp, places[i + 1], lane);
        whole |= (bits < 64 ? part & ((uint64_t{1} << bits) - 1) : part) << (bits * i);
      }
      store(warp, places[0], lane, whole);
    } else {
      const uint64_t whole = load(warp, places[0], lane);
      for (size_t i = 0; i < parts; ++i)
        store(warp, places[i + 1], lane,
              whole >> (bits * i) & (bits < 64 ? (uint64_t{1} << bits) - 1 : ~uint64_t{0}));
    }
  }
}

void move_predicate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  warp.set_predicate(instruction.d, lanes, warp.predicate(instruction.a));
}

template <class T>
Handler mover() {
  return unary<T, T, Copy>;
}

/// clock, globaltimer: time, as nanoseconds.
void read_clock(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t value = static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  for (; lanes != 0; lanes &= lanes - 1)
    store(warp, {instruction.d, instruction.bytes * 8u}, static_cast<uint32_t>(std::countr_zero(lanes)),
          value >> instruction.kind);
}

void read_active(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  auto* d = warp.at<uint32_t>(instruction.d);
  each(lanes, [=](uint32_t lane) { d[lane] = lanes; });
}

void decode_mov(Decoder& decoder) {
  const std::string type = decoder.take_type();
  const std::string& to = decoder.operands.at(0);
  const std::string& from = decoder.operands.at(1);
  if (type == "b128") decoder.unknown();
  const uint32_t bits = register_bits(type);
  if (to[0] == '{' || from[0] == '{') {
    const bool packs = from[0] == '{';
    const auto parts = split_operands((packs ? from : to).substr(1, (packs ? from : to).size() - 2));
    Instruction made = decoder.make(pack);
    Extra* extra = decoder.extra();
    made.extra = extra;
    made.kind = packs ? 1 : 0;
    const auto part_bits = static_cast<uint32_t>(bits / parts.size());
    if (part_bits < 16) {
      // Bytes are held by registers of 16 bits.
      if (bits != 32 && bits != 16) decoder.unknown();
    }
    extra->places.push_back(packs ? decoder.target_place(to, bits) : decoder.source_place(from, bits));
    for (const std::string& part : parts) {
      extra->places.push_back(packs ? decoder.source_place(part, std::max(16u, part_bits))
                                    : decoder.target_place(part, std::max(16u, part_bits)));
    }
    decoder.emit(made);
    return;
  }
  if (from.find("%clock") == 0 || from.find("%globaltimer") == 0) {
    Instruction made = decoder.make(read_clock);
    made.d = decoder.target(to, bits);
    made.bytes = static_cast<uint8_t>(bits / 8);
    made.kind = from.find("_hi") != std::string::npos ? 32 : 0;
    decoder.emit(made);
    return;
  }
  Handler handler = move_predicate;
  if (type != "pred")
    handler = bits == 64 ? mover<uint64_t>() : bits == 32 ? mover<uint32_t>() : mover<uint16_t>();
  Instruction made = decoder.make(handler);
  made.a = decoder.source(from, bits);
  made.d = decoder.target(to, bits);
  decoder.emit(made);
}

void decode_activemask(Decoder& decoder) {
  Instruction made = decoder.make(read_active);
  made.d = decoder.target(decoder.operands.at(0), register_bits(decoder.take_type()));
  decoder.emit(made);
}

// ---- addresses ----------------------------------------------------------------------------------

/// `kind` 1: from an address of shared memory to a generic one, 2: the other way, 3: is it one?, 4: is it
/// local?
template <class T>
void shared_address(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto base = reinterpret_cast<uint64_t>(warp.block().shared());
  const uint64_t bytes = warp.block().shared_bytes();
  const T* a = warp.at<T>(instruction.a);
  if (instruction.kind <= 2) {
    T* d = warp.at<T>(instruction.d);
    const bool out = instruction.kind == 1;
    each(lanes, [=](uint32_t lane) {
      d[lane] = static_cast<T>(out ? a[lane] - kSharedStart + base : a[lane] - base + kSharedStart);
    });
    return;
  }
  uint32_t values = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const bool shared = static_cast<uint64_t>(a[lane]) - base < bytes;
    bool holds = shared;
    if (instruction.kind == 4 || instruction.kind == 5) {
      bool local = false;
      for (const Frame* frame = &warp.frame(); frame != nullptr; frame = frame->parent) {
        const auto start = reinterpret_cast<uint64_t>(frame->memory.data());
        local |= static_cast<uint64_t>(a[lane]) - start < frame->memory.size();
      }
      holds = instruction.kind == 4 ? local : !local && !shared;
    }
    values |= holds ? 1u << lane : 0;
  }
  warp.set_predicate(instruction.d, lanes, values);
}

void decode_cvta(Decoder& decoder) {
  const uint32_t bits = register_bits(decoder.take_type());
  const bool to = decoder.take("to");
  std::string space =
      decoder.take_one({"global", "shared", "shared::cta", "local", "const", "param", "param::entry"});
  if (space.empty()) decoder.unknown();
  if (space.find("shared") == 0) {
    Instruction made =
        plain(decoder, bits, 1, bits == 64 ? shared_address<uint64_t> : shared_address<uint32_t>);
    if (bits == 32) decoder.unknown();
    made.kind = to ? 2 : 1;
    decoder.emit(made);
    return;
  }
  decoder.emit(plain(decoder, bits, 1, bits == 64 ? mover<uint64_t>() : mover<uint32_t>()));
}

void decode_isspacep(Decoder& decoder) {
  const std::string space =
      decoder.take_one({"global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"});
  Instruction made = decoder.make(shared_address<uint64_t>);
  made.kind = space.find("shared") == 0 ? 3 : space == "local" ? 4 : 5;
  if (space == "const" || space == "param") decoder.unknown();
  made.d = decoder.target(decoder.operands.at(0), 1);
  made.a = decoder.source(decoder.operands.at(1), 64);
  decoder.emit(made);
}

/// A block is a cluster of its own: another block's shared memory is its own.
void decode_mapa(Decoder& decoder) {
  const uint32_t bits = register_bits(decoder.take_type());
  decoder.take_one({"shared::cluster"});
  decoder.emit(plain(decoder, bits, 1, bits == 64 ? mover<uint64_t>() : mover<uint32_t>()));
}

}  // namespace

void add_convert(DecodeTable& table) {
  table["cvt"] = decode_cvt;
  table["mov"] = decode_mov;
  table["activemask"] = decode_activemask;
  table["cvta"] = decode_cvta;
  table["isspacep"] = decode_isspacep;
  table["mapa"] = decode_mapa;
}

}  // namespace fake_cuda::ptx
