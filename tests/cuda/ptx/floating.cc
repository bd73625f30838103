// Arithmetic of float and double. Approximations (.approx, .full) are computed as exactly as the host can.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

// `kind` of an instruction here.
constexpr uint8_t kRounding = 3;  ///< 0: nearest, 1: to zero, 2: down, 3: up
constexpr uint8_t kFlush = 4;     ///< subnormal numbers become 0
constexpr uint8_t kSaturate = 8;  ///< to [0, 1]

struct FloatAdd {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct FloatSub {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct FloatMul {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct FloatDiv {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct FloatMin {
  template <class T>
  T operator()(T a, T b) const {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct FloatMax {
  template <class T>
  T operator()(T a, T b) const {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  }
};
template <class Op>
struct WithNan {
  template <class T>
  T operator()(T a, T b) const {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    return Op()(a, b);
  }
};
struct CopySign {
  template <class T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);  // the sign of a
  }
};
struct FusedMultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct FloatNeg {
  template <class T>
  T operator()(T a) const {
    return -a;
  }
};
struct FloatAbs {
  template <class T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <class T>
  T operator()(T a) const {
    return T{1} / std::sqrt(a);
  }
};
#define PTX_FLOAT_FUNCTION(Name, function) \
  struct Name {                            \
    template <class T>                     \
    T operator()(T a) const {              \
      return function(a);                  \
    }                                      \
  };
PTX_FLOAT_FUNCTION(Sine, std::sin)
PTX_FLOAT_FUNCTION(Cosine, std::cos)
PTX_FLOAT_FUNCTION(Logarithm, std::log2)
PTX_FLOAT_FUNCTION(Exponential, std::exp2)
PTX_FLOAT_FUNCTION(HyperbolicTangent, std::tanh)
#undef PTX_FLOAT_FUNCTION

template <class T>
T flushed(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

/// The rounding of the hardware for as long as it lives.
class Rounding {
 public:
  explicit Rounding(uint8_t kind) : before_(std::fegetround()) {
    static constexpr std::array kModes = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[kind & kRounding]);
  }
  ~Rounding() { std::fesetround(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  int before_;
};

/// With rounding, flushing, saturation; volatile, so that the compiler computes nothing under another
/// rounding.
template <class T, class Op, int kSources>
void special_float(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* const a = warp.at<T>(instruction.a);
  const T* const b = warp.at<T>(instruction.b);
  const T* const c = warp.at<T>(instruction.c);
  T* const d = warp.at<T>(instruction.d);
  const uint8_t kind = instruction.kind;
  const bool flush = (kind & kFlush) != 0;
  const Rounding rounding(kind);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    volatile T x = flush ? flushed(a[lane]) : a[lane];
    volatile T y = kSources > 1 ? (flush ? flushed(b[lane]) : b[lane]) : T{0};
    volatile T z = kSources > 2 ? (flush ? flushed(c[lane]) : c[lane]) : T{0};
    volatile T result = 0;
    if constexpr (kSources == 1) result = Op()(T{x});
    if constexpr (kSources == 2) result = Op()(T{x}, T{y});
    if constexpr (kSources == 3) result = Op()(T{x}, T{y}, T{z});
    T value = flush ? flushed(T{result}) : T{result};
    if ((kind & kSaturate) != 0) value = std::isnan(value) ? T{0} : std::clamp(value, T{0}, T{1});
    d[lane] = value;
  }
}

struct Handlers {
  int sources;
  Handler plain_f32;
  Handler plain_f64;
  Handler special_f32;
  Handler special_f64;
};

template <class Op>
constexpr Handlers one() {
  return {1, unary<float, float, Op>, unary<double, double, Op>, special_float<float, Op, 1>,
          special_float<double, Op, 1>};
}
template <class Op>
constexpr Handlers two() {
  return {2, binary<float, float, Op>, binary<double, double, Op>, special_float<float, Op, 2>,
          special_float<double, Op, 2>};
}
template <class Op>
constexpr Handlers three() {
  return {3, ternary<float, float, float, Op>, ternary<double, double, double, Op>,
          special_float<float, Op, 3>, special_float<double, Op, 3>};
}

const std::map<std::string, Handlers> kOperations = {
    {"add", two<FloatAdd>()},
    {"sub", two<FloatSub>()},
    {"mul", two<FloatMul>()},
    {"div", two<FloatDiv>()},
    {"min", two<FloatMin>()},
    {"max", two<FloatMax>()},
    {"copysign", two<CopySign>()},
    {"fma", three<FusedMultiplyAdd>()},
    {"mad", three<FusedMultiplyAdd>()},
    {"neg", one<FloatNeg>()},
    {"abs", one<FloatAbs>()},
    {"rcp", one<Reciprocal>()},
    {"sqrt", one<SquareRoot>()},
    {"rsqrt", one<ReciprocalRoot>()},
    {"sin", one<Sine>()},
    {"cos", one<Cosine>()},
    {"lg2", one<Logarithm>()},
    {"ex2", one<Exponential>()},
    {"tanh", one<HyperbolicTangent>()},
};
const Handlers kMinWithNan = two<WithNan<FloatMin>>();
const Handlers kMaxWithNan = two<WithNan<FloatMax>>();

void decode_named_float(Decoder& decoder) {
  const std::string type = decoder.take_type();
  if (is_small_float(type)) return decode_small_float(decoder, type);
  if (!is_float(type)) decoder.unknown("its type");
  decode_float(decoder, type);
}

template <class T>
void test_property(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* const a = warp.at<T>(instruction.a);
  uint32_t values = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const T value = a[lane];
    bool holds = false;
    switch (instruction.kind) {
      case 0: holds = std::isfinite(value); break;
      case 1: holds = std::isinf(value); break;
      case 2: holds = !std::isnan(value); break;
      case 3: holds = std::isnan(value); break;
      case 4: holds = std::fpclassify(value) == FP_NORMAL || value == 0; break;
      default: holds = std::fpclassify(value) == FP_SUBNORMAL; break;
    }
    values |= holds ? 1u << lane : 0;
  }
  warp.set_predicate(instruction.d, lanes, values);
}

void decode_test(Decoder& decoder) {
  static const std::vector<std::string> kProperties = {"finite",     "infinite", "number",
                                                       "notanumber", "normal",   "subnormal"};
  const std::string type = decoder.take_type();
  Instruction made = decoder.make(type == "f64" ? test_property<double> : test_property<float>);
  for (size_t i = 0; i < kProperties.size(); ++i) {
    if (decoder.take(kProperties[i])) made.kind = static_cast<uint8_t>(i);
  }
  made.d = decoder.target(decoder.operands.at(0), 1);
  made.a = decoder.source(decoder.operands.at(1), register_bits(type));
  decoder.emit(made);
}

}  // namespace

void decode_float(Decoder& decoder, const std::string& type) {
  const auto found = kOperations.find(decoder.name());
  if (found == kOperations.end()) decoder.unknown("its type");
  const Handlers* handlers = &found->second;
  uint8_t kind = 0;
  const std::string rounding = decoder.take_one({"rn", "rz", "rm", "rp"});
  if (rounding == "rz") kind |= 1;
  if (rounding == "rm") kind |= 2;
  if (rounding == "rp") kind |= 3;
  if (decoder.take("ftz")) kind |= kFlush;
  if (decoder.take("sat")) kind |= kSaturate;
  decoder.take_one({"approx", "full"});
  if (decoder.take("NaN")) handlers = decoder.name() == "min" ? &kMinWithNan : &kMaxWithNan;
  const bool wide = type == "f64";
  Handler handler = wide ? handlers->plain_f64 : handlers->plain_f32;
  if (kind != 0) handler = wide ? handlers->special_f64 : handlers->special_f32;
  Instruction made = plain(decoder, wide ? 64 : 32, static_cast<size_t>(handlers->sources), handler);
  made.kind = kind;
  if (decoder.has_operand(static_cast<size_t>(handlers->sources) + 1)) decoder.unknown("more operands");
  decoder.emit(made);
}

void add_floating(DecodeTable& table) {
  for (const char* name : {"fma", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "copysign"})
    table[name] = decode_named_float;
  table["testp"] = decode_test;
}

}  // namespace fake_cuda::ptx
