// Handlers of one form, made of a function of a lane's values.
#pragma once

#include <bit>
#include <type_traits>

#include "tests/cuda/ptx/decode.h"
#include "tests/cuda/ptx/machine.h"

namespace fake_cuda::ptx {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UnsignedInt128;

/// Calls `one(lane)` for each of the lanes; a whole warp in a loop that compilers vectorize.
template <class F>
inline __attribute__((always_inline)) void each(uint32_t lanes, F one) {
  if (lanes == kAll) {
#pragma GCC ivdep
    for (uint32_t lane = 0; lane < kLanes; ++lane) one(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) one(static_cast<uint32_t>(std::countr_zero(lanes)));
  }
}

template <class R, class T, class Op>
void unary(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  R* const d = warp.at<R>(instruction.d);
  const T* const a = warp.at<T>(instruction.a);
  each(lanes, [=](uint32_t lane) { d[lane] = static_cast<R>(Op()(a[lane])); });
}

template <class R, class T, class Op>
void binary(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  R* const d = warp.at<R>(instruction.d);
  const T* const a = warp.at<T>(instruction.a);
  const T* const b = warp.at<T>(instruction.b);
  each(lanes, [=](uint32_t lane) { d[lane] = static_cast<R>(Op()(a[lane], b[lane])); });
}

/// The second operand is 32 bits wide.
template <class T, class Op>
void shifting(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  T* const d = warp.at<T>(instruction.d);
  const T* const a = warp.at<T>(instruction.a);
  const auto* const b = warp.at<uint32_t>(instruction.b);
  each(lanes, [=](uint32_t lane) { d[lane] = static_cast<T>(Op()(a[lane], b[lane])); });
}

template <class R, class T, class C, class Op>
void ternary(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  R* const d = warp.at<R>(instruction.d);
  const T* const a = warp.at<T>(instruction.a);
  const T* const b = warp.at<T>(instruction.b);
  const C* const c = warp.at<C>(instruction.c);
  each(lanes, [=](uint32_t lane) { d[lane] = static_cast<R>(Op()(a[lane], b[lane], c[lane])); });
}

/// Calls `with(T())` for the C++ type of an integer type; floats are integers of their bits. False: another
/// type.
template <class F>
bool with_integer(const std::string& type, F with) {
  if (type == "u16" || type == "b16" || type == "f16" || type == "bf16") return with(uint16_t()), true;
  if (type == "u32" || type == "b32" || type == "f32") return with(uint32_t()), true;
  if (type == "u64" || type == "b64" || type == "f64") return with(uint64_t()), true;
  if (type == "s16") return with(int16_t()), true;
  if (type == "s32") return with(int32_t()), true;
  if (type == "s64") return with(int64_t()), true;
  return false;
}

template <class F>
bool with_float(const std::string& type, F with) {
  if (type == "f32") return with(float()), true;
  if (type == "f64") return with(double()), true;
  return false;
}

/// An instruction with a target and sources of the same type.
inline Instruction plain(Decoder& decoder, uint32_t bits, size_t sources, Handler handler) {
  Instruction made = decoder.make(handler);
  made.d = decoder.target(decoder.operands.at(0), bits);
  if (sources > 0) made.a = decoder.source(decoder.operands.at(1), bits);
  if (sources > 1) made.b = decoder.source(decoder.operands.at(2), bits);
  if (sources > 2) made.c = decoder.source(decoder.operands.at(3), bits);
  return made;
}

}  // namespace fake_cuda::ptx
