// Arithmetic of half and bfloat16, alone or in pairs: computed in double and rounded once.
#include <cmath>
#include <functional>

#include "reduce/formats.h"
#include "tests/cuda/ptx/lanes.h"
#include "tests/cuda/ptx/rounding.h"

namespace fake_cuda::ptx {
namespace {

enum class Operation : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kMin,
  kMax,
  kMinNan,
  kMaxNan,
  kNeg,
  kAbs,
  kTanh,
  kExp2,
  kFmaRelu
};

const std::map<std::string, std::pair<Operation, int>> kOperations = {
    {"add", {Operation::kAdd, 2}}, {"sub", {Operation::kSub, 2}}, {"mul", {Operation::kMul, 2}},
    {"fma", {Operation::kFma, 3}}, {"min", {Operation::kMin, 2}}, {"max", {Operation::kMax, 2}},
    {"neg", {Operation::kNeg, 1}}, {"abs", {Operation::kAbs, 1}}, {"tanh", {Operation::kTanh, 1}},
    {"ex2", {Operation::kExp2, 1}}};

double compute(Operation operation, double a, double b, double c) {
  switch (operation) {
    case Operation::kAdd: return a + b;
    case Operation::kSub: return a - b;
    case Operation::kMul: return a * b;
    case Operation::kFma: return std::fma(a, b, c);
    case Operation::kFmaRelu: {
      const double sum = std::fma(a, b, c);
      return sum < 0 ? 0 : sum;
    }
    case Operation::kMinNan:
    case Operation::kMaxNan:
      if (std::isnan(a) || std::isnan(b)) return NAN;
      [[fallthrough]];
    case Operation::kMin:
    case Operation::kMax: {
      if (std::isnan(a)) return b;
      if (std::isnan(b)) return a;
      const bool less = a < b || (a == b && std::signbit(a));
      const bool lesser = operation == Operation::kMin || operation == Operation::kMinNan;
      return less == lesser ? a : b;
    }
    case Operation::kNeg: return -a;
    case Operation::kAbs: return std::fabs(a);
    case Operation::kTanh: return std::tanh(a);
    case Operation::kExp2: return std::exp2(a);
  }
  return 0;
}

/// `kind`: the operation; `bytes`: 2, or 4 for pairs.
template <class Small, class Word>
void small_float(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<Word>(instruction.a);
  const auto* b = warp.at<Word>(instruction.b);
  const auto* c = warp.at<Word>(instruction.c);
  auto* d = warp.at<Word>(instruction.d);
  const auto operation = static_cast<Operation>(instruction.kind);
  const auto sources = instruction.target;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    Word result = 0;
    for (uint32_t part = 0; part < sizeof(Word) / 2; ++part) {
      const auto element = [&](Word word) {
        return static_cast<double>(tutti::reduce::widen<Small>(static_cast<uint16_t>(word >> (16 * part))));
      };
      const double value = compute(operation, element(a[lane]), sources > 1 ? element(b[lane]) : 0,
                                   sources > 2 ? element(c[lane]) : 0);
      result |= static_cast<Word>(static_cast<Word>(narrow_double<Small>(value)) << (16 * part));
    }
    d[lane] = result;
  }
}

}  // namespace

bool is_small_float(const std::string& type) {
  return type == "f16" || type == "bf16" || type == "f16x2" || type == "bf16x2";
}

void decode_small_float(Decoder& decoder, const std::string& type) {
  const auto found = kOperations.find(decoder.name());
  if (found == kOperations.end()) decoder.unknown("its type");
  auto [operation, sources] = found->second;
  decoder.take("rn");
  decoder.take("ftz");
  decoder.take("approx");
  if (decoder.take("relu")) operation = Operation::kFmaRelu;
  if (decoder.take("NaN")) operation = operation == Operation::kMin ? Operation::kMinNan : Operation::kMaxNan;
  const bool half = type[0] == 'f';
  const uint32_t bits = type.back() == '2' ? 32 : 16;
  Handler handler =
      half ? small_float<tutti::reduce::Float16, uint16_t> : small_float<tutti::reduce::Bfloat16, uint16_t>;
  if (bits == 32)
    handler =
        half ? small_float<tutti::reduce::Float16, uint32_t> : small_float<tutti::reduce::Bfloat16, uint32_t>;
  Instruction made = plain(decoder, bits, static_cast<size_t>(sources), handler);
  made.kind = static_cast<uint8_t>(operation);
  made.target = static_cast<uint32_t>(sources);
  decoder.emit(made);
}

}  // namespace fake_cuda::ptx
