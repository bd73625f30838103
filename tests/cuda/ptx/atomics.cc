// atom and red: one read-modify-write a lane, in the order of the lanes.
#include <algorithm>
#include <cmath>

#include "reduce/formats.h"
#include "tests/cuda/ptx/lanes.h"
#include "tests/cuda/ptx/rounding.h"

namespace fake_cuda::ptx {
namespace {

namespace formats = tutti::reduce;

// Each is a function of (present, operand, second operand) -> new.
#define PTX_ATOMIC(Name, expression)          \
  struct Name {                               \
    template <class T>                        \
    T operator()(T present, T b, T c) const { \
      (void)present, (void)c;                 \
      return static_cast<T>(expression);      \
    }                                         \
  };
PTX_ATOMIC(AtomicAdd, static_cast<uint64_t>(present) + static_cast<uint64_t>(b))
PTX_ATOMIC(AtomicMin, b < present ? b : present)
PTX_ATOMIC(AtomicMax, b > present ? b : present)
PTX_ATOMIC(AtomicAnd, present& b)
PTX_ATOMIC(AtomicOr, present | b)
PTX_ATOMIC(AtomicXor, present ^ b)
PTX_ATOMIC(AtomicExchange, b)
PTX_ATOMIC(AtomicCompare, present == b ? c : present)
PTX_ATOMIC(AtomicIncrement, present >= b ? T{0} : present + 1)
PTX_ATOMIC(AtomicDecrement, present == 0 || present > b ? b : present - 1)
#undef PTX_ATOMIC

template <class F>
struct FloatAdd {
  template <class T>
  T operator()(T present, T b, T /*c*/) const {
    return std::bit_cast<T>(std::bit_cast<F>(present) + std::bit_cast<F>(b));
  }
};

enum class SmallOperation : uint8_t { kAdd, kMin, kMax };
template <class Small, SmallOperation kOperation>
struct SmallFloat {
  template <class T>
  T operator()(T present, T b, T /*c*/) const {
    T result = 0;
    for (uint32_t part = 0; part < sizeof(T) / 2; ++part) {
      const float x = formats::widen<Small>(static_cast<uint16_t>(present >> (16 * part)));
      const float y = formats::widen<Small>(static_cast<uint16_t>(b >> (16 * part)));
      double value = static_cast<double>(x) + y;
      if (kOperation == SmallOperation::kMin) value = std::fmin(x, y);
      if (kOperation == SmallOperation::kMax) value = std::fmax(x, y);
      result |= static_cast<T>(static_cast<T>(narrow_double<Small>(value)) << (16 * part));
    }
    return result;
  }
};

template <class T, class Op>
void atomic(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  std::array<unsigned char*, kLanes> at;
  warp.addresses(instruction, lanes, sizeof(T), at);
  const T* const b = warp.at<T>(instruction.b);
  const T* const c = warp.at<T>(instruction.c);
  T* const d = instruction.d == kNone ? nullptr : warp.at<T>(instruction.d);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    T* const word = reinterpret_cast<T*>(at[lane]);
    T present = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &present, Op()(present, b[lane], c[lane]), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    if (d != nullptr) d[lane] = present;
  }
}

template <class T>
Handler integer_atomic(const std::string& operation) {
  if (operation == "add") return atomic<T, AtomicAdd>;
  if (operation == "min") return atomic<T, AtomicMin>;
  if (operation == "max") return atomic<T, AtomicMax>;
  if (operation == "and") return atomic<T, AtomicAnd>;
  if (operation == "or") return atomic<T, AtomicOr>;
  if (operation == "xor") return atomic<T, AtomicXor>;
  if (operation == "exch") return atomic<T, AtomicExchange>;
  if (operation == "cas") return atomic<T, AtomicCompare>;
  if (operation == "inc") return atomic<T, AtomicIncrement>;
  if (operation == "dec") return atomic<T, AtomicDecrement>;
  return nullptr;
}

template <class Small, class T>
Handler small_atomic(const std::string& operation) {
  if (operation == "add") return atomic<T, SmallFloat<Small, SmallOperation::kAdd>>;
  if (operation == "min") return atomic<T, SmallFloat<Small, SmallOperation::kMin>>;
  if (operation == "max") return atomic<T, SmallFloat<Small, SmallOperation::kMax>>;
  return nullptr;
}

Handler find_atomic(const std::string& operation, const std::string& type) {
  if (type == "f32" && operation == "add") return atomic<uint32_t, FloatAdd<float>>;
  if (type == "f64" && operation == "add") return atomic<uint64_t, FloatAdd<double>>;
  if (type == "f16") return small_atomic<formats::Float16, uint16_t>(operation);
  if (type == "bf16") return small_atomic<formats::Bfloat16, uint16_t>(operation);
  if (type == "f16x2") return small_atomic<formats::Float16, uint32_t>(operation);
  if (type == "bf16x2") return small_atomic<formats::Bfloat16, uint32_t>(operation);
  if (type == "f32" || type == "f64") return nullptr;
  Handler handler = nullptr;
  with_integer(type, [&](auto zero) { handler = integer_atomic<decltype(zero)>(operation); });
  return handler;
}

void decode_atomic(Decoder& decoder) {
  const bool returns = decoder.name() == "atom";
  decoder.take_one({"relaxed", "acquire", "release", "acq_rel"});
  decoder.take_one({"sys", "gpu", "cta", "cluster"});
  std::string space = decoder.take_one({"global", "shared", "shared::cta", "shared::cluster"});
  if (space.find("shared") == 0) space = "shared";
  decoder.take("noftz");
  decoder.take("L2::cache_hint");
  const std::string type = decoder.take_type();
  const std::string operation =
      decoder.take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  const Handler handler = find_atomic(operation, type);
  if (handler == nullptr) decoder.unknown();
  Instruction made = decoder.make(handler);
  const uint32_t bits = register_bits(type);
  const size_t first = returns ? 1 : 0;
  made.d = returns ? decoder.target(decoder.operands.at(0), bits) : kNone;
  decoder.address(made, decoder.operands.at(first), space);
  made.b = decoder.source(decoder.operands.at(first + 1), bits);
  made.c = operation == "cas" ? decoder.source(decoder.operands.at(first + 2), bits) : made.b;
  decoder.emit(made);
}

}  // namespace

void add_atomics(DecodeTable& table) {
  table["atom"] = table["red"] = decode_atomic;
}

}  // namespace fake_cuda::ptx
