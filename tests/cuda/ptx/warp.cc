// What the lanes of a warp do together: shuffles, votes, matches, reductions.
#include <algorithm>

#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

enum class Shuffle : uint8_t { kUp, kDown, kButterfly, kIndex };

/// a: value, b: lane or distance, c: clamp and segment; d: result, `target`: predicate or kNone.
void shuffle(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto* a = warp.at<uint32_t>(instruction.a);
  const auto* b = warp.at<uint32_t>(instruction.b);
  const auto* c = warp.at<uint32_t>(instruction.c);
  std::array<uint32_t, kLanes> values;
  std::copy_n(a, kLanes, values.begin());
  auto* d = warp.at<uint32_t>(instruction.d);
  uint32_t in_range = 0;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint32_t by = b[lane] & 31;
    const uint32_t clamp = c[lane] & 31;
    const uint32_t segment = c[lane] >> 8 & 31;
    const uint32_t last = (lane & segment) | (clamp & ~segment);
    const uint32_t first = lane & segment;
    uint32_t from = lane;
    bool holds = false;
    switch (static_cast<Shuffle>(instruction.kind)) {
      case Shuffle::kUp:
        from = lane - by;
        holds = static_cast<int32_t>(from) >= static_cast<int32_t>(last);
        break;
      case Shuffle::kDown:
        from = lane + by;
        holds = from <= last;
        break;
      case Shuffle::kButterfly:
        from = lane ^ by;
        holds = from <= last;
        break;
      case Shuffle::kIndex:
        from = first | (by & ~segment);
        holds = from <= last;
        break;
    }
    if (!holds) from = lane;
    d[lane] = values[from & 31];
    in_range |= holds ? 1u << lane : 0;
  }
  if (instruction.target != kNone) warp.set_predicate(instruction.target, lanes, in_range);
}

void decode_shuffle(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.unknown();
  const std::string how = decoder.take_one({"up", "down", "bfly", "idx"});
  decoder.take_type();
  Instruction made = decoder.make(shuffle, Flow::kWarpSync);
  made.kind = static_cast<uint8_t>(how == "up"     ? Shuffle::kUp
                                   : how == "down" ? Shuffle::kDown
                                   : how == "bfly" ? Shuffle::kButterfly
                                                   : Shuffle::kIndex);
  const std::string& targets = decoder.operands.at(0);
  const size_t bar = targets.find('|');
  made.d = decoder.target(trimmed(targets.substr(0, bar)), 32);
  made.target = bar == std::string::npos ? kNone : decoder.target(trimmed(targets.substr(bar + 1)), 1);
  made.a = decoder.source(decoder.operands.at(1), 32);
  made.b = decoder.source(decoder.operands.at(2), 32);
  made.c = decoder.source(decoder.operands.at(3), 32);
  made.e = decoder.source(decoder.operands.at(4), 32);
  decoder.emit(made);
}

/// `kind`: 0 ballot, 1 all, 2 any, 3 uniform; `negated` by `is_shared`.
void vote(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  uint32_t holds = warp.predicate(instruction.a);
  if (instruction.is_shared) holds = ~holds;
  holds &= lanes;
  if (instruction.kind == 0) {
    auto* d = warp.at<uint32_t>(instruction.d);
    each(lanes, [=](uint32_t lane) { d[lane] = holds; });
    return;
  }
  const bool all = holds == lanes;
  const bool outcome = instruction.kind == 1 ? all : instruction.kind == 2 ? holds != 0 : all || holds == 0;
  warp.set_predicate(instruction.d, lanes, outcome ? kAll : 0);
}

void decode_vote(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.unknown();
  const std::string how = decoder.take_one({"ballot", "all", "any", "uni"});
  decoder.take_type();
  Instruction made = decoder.make(vote, Flow::kWarpSync);
  made.kind = how == "ballot" ? 0 : how == "all" ? 1 : how == "any" ? 2 : 3;
  made.d = decoder.target(decoder.operands.at(0), how == "ballot" ? 32 : 1);
  made.a = decoder.predicate(decoder.operands.at(1), made.is_shared);
  made.e = decoder.source(decoder.operands.at(2), 32);
  decoder.emit(made);
}

/// `kind` 1: all; `target`: the predicate of match.all, or kNone.
template <class T>
void match(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* a = warp.at<T>(instruction.a);
  auto* d = warp.at<uint32_t>(instruction.d);
  std::array<uint32_t, kLanes> results{};
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    for (uint32_t others = lanes; others != 0; others &= others - 1) {
      const auto other = static_cast<uint32_t>(std::countr_zero(others));
      if (a[other] == a[lane]) results[lane] |= 1u << other;
    }
  }
  const bool all = results[static_cast<size_t>(std::countr_zero(lanes)) % kLanes] == lanes;
  each(lanes, [&](uint32_t lane) { d[lane] = instruction.kind == 1 ? (all ? lanes : 0) : results[lane]; });
  if (instruction.target != kNone) warp.set_predicate(instruction.target, lanes, all ? kAll : 0);
}

void decode_match(Decoder& decoder) {
  const bool all = decoder.take("all");
  if (!all && !decoder.take("any")) decoder.unknown();
  if (!decoder.take("sync")) decoder.unknown();
  const uint32_t bits = register_bits(decoder.take_type());
  Instruction made = decoder.make(bits == 64 ? match<uint64_t> : match<uint32_t>, Flow::kWarpSync);
  made.kind = all ? 1 : 0;
  const std::string& targets = decoder.operands.at(0);
  const size_t bar = targets.find('|');
  made.d = decoder.target(trimmed(targets.substr(0, bar)), 32);
  made.target = bar == std::string::npos ? kNone : decoder.target(trimmed(targets.substr(bar + 1)), 1);
  made.a = decoder.source(decoder.operands.at(1), bits);
  made.e = decoder.source(decoder.operands.at(2), 32);
  decoder.emit(made);
}

template <class T>
void reduce(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* a = warp.at<T>(instruction.a);
  T result = a[std::countr_zero(lanes)];
  for (uint32_t rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
    const T value = a[std::countr_zero(rest)];
    switch (instruction.kind) {
      case 0: result = static_cast<T>(static_cast<uint32_t>(result) + static_cast<uint32_t>(value)); break;
      case 1: result = std::min(result, value); break;
      case 2: result = std::max(result, value); break;
      case 3: result &= value; break;
      case 4: result |= value; break;
      default: result ^= value; break;
    }
  }
  T* d = warp.at<T>(instruction.d);
  each(lanes, [=](uint32_t lane) { d[lane] = result; });
}

void decode_redux(Decoder& decoder) {
  static const std::vector<std::string> kOperations = {"add", "min", "max", "and", "or", "xor"};
  if (!decoder.take("sync")) decoder.unknown();
  const std::string type = decoder.take_type();
  if (is_float(type)) decoder.unknown();
  Instruction made = decoder.make(is_signed(type) ? reduce<int32_t> : reduce<uint32_t>, Flow::kWarpSync);
  for (size_t i = 0; i < kOperations.size(); ++i) {
    if (decoder.take(kOperations[i])) made.kind = static_cast<uint8_t>(i);
  }
  made.d = decoder.target(decoder.operands.at(0), 32);
  made.a = decoder.source(decoder.operands.at(1), 32);
  made.e = decoder.source(decoder.operands.at(2), 32);
  decoder.emit(made);
}

void elect(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto leader = static_cast<uint32_t>(std::countr_zero(lanes));
  auto* d = warp.at<uint32_t>(instruction.d);
  each(lanes, [=](uint32_t lane) { d[lane] = leader; });
  warp.set_predicate(instruction.target, lanes, 1u << leader);
}

void decode_elect(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.unknown();
  Instruction made = decoder.make(elect, Flow::kWarpSync);
  const std::string& targets = decoder.operands.at(0);
  const size_t bar = targets.find('|');
  made.d = decoder.target(trimmed(targets.substr(0, bar)), 32);
  made.target = decoder.target(trimmed(targets.substr(bar + 1)), 1);
  made.e = decoder.source(decoder.operands.at(1), 32);
  decoder.emit(made);
}

}  // namespace

void add_warp(DecodeTable& table) {
  table["shfl"] = decode_shuffle;
  table["vote"] = decode_vote;
  table["match"] = decode_match;
  table["redux"] = decode_redux;
  table["elect"] = decode_elect;
}

}  // namespace fake_cuda::ptx
