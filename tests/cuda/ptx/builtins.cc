#include "tests/cuda/ptx/builtins.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace fake_cuda::ptx {
namespace {

template <class T>
T argument(const Warp& warp, const Instruction& instruction, size_t index, uint32_t lane) {
  T value;
  std::memcpy(&value, warp.frame().of_lane(lane) + instruction.extra->arguments.at(index).first,
              sizeof value);
  return value;
}

template <class T>
void set_result(const Warp& warp, const Instruction& instruction, uint32_t lane, T value) {
  if (instruction.extra->results.empty()) return;
  std::memcpy(warp.frame().of_lane(lane) + instruction.extra->results[0].first, &value, sizeof value);
}

/// The format with its arguments, which lie one after the other, each aligned to its size.
std::string formatted(const char* format, const unsigned char* arguments) {
  std::string text;
  size_t at = 0;
  const auto take = [&](auto zero) {
    auto value = zero;
    at = (at + sizeof(value) - 1) / sizeof(value) * sizeof(value);
    std::memcpy(&value, arguments + at, sizeof value);
    at += sizeof value;
    return value;
  };
  for (const char* c = format; *c != 0; ++c) {
    if (*c != '%') {
      text += *c;
      continue;
    }
    std::string spec = "%";
    bool wide = false;
    for (++c; *c != 0 && std::strchr("diouxXcspeEfFgGaA%", *c) == nullptr; ++c) {
      if (*c == '*') {
        spec += std::to_string(take(int()));
      } else if (*c == 'l' || *c == 'j' || *c == 'z' || *c == 't') {
        wide = true;
      } else if (*c != 'h') {
        spec += *c;
      }
    }
    if (*c == 0) break;
    std::array<char, 512> piece{};
    if (*c == '%') {
      text += '%';
      continue;
    }
    if (std::strchr("eEfFgGaA", *c) != nullptr) {
      std::snprintf(piece.data(), piece.size(), (spec + *c).c_str(), take(double()));
    } else if (*c == 's') {
      text += reinterpret_cast<const char*>(take(uint64_t()));
      continue;
    } else if (*c == 'p') {
      std::snprintf(piece.data(), piece.size(), "%p", reinterpret_cast<void*>(take(uint64_t())));
    } else if (wide) {
      std::snprintf(piece.data(), piece.size(), (spec + "ll" + *c).c_str(), take(uint64_t()));
    } else {
      std::snprintf(piece.data(), piece.size(), (spec + *c).c_str(), take(uint32_t()));
    }
    text += piece.data();
  }
  return text;
}

void print(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    const auto format = argument<uint64_t>(warp, instruction, 0, lane);
    const auto values = argument<uint64_t>(warp, instruction, 1, lane);
    const std::string text =
        formatted(reinterpret_cast<const char*>(format), reinterpret_cast<const unsigned char*>(values));
    std::fputs(text.c_str(), stdout);
    set_result(warp, instruction, lane, static_cast<int>(text.size()));
  }
  std::fflush(stdout);
}

/// __assertfail(message, file, line, function, character size).
void assert_failed(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
  const auto text = [&](size_t index) {
    return std::string(reinterpret_cast<const char*>(argument<uint64_t>(warp, instruction, index, lane)));
  };
  fail(warp, instruction,
       text(1) + ":" + std::to_string(argument<uint32_t>(warp, instruction, 2, lane)) + ": " + text(3) +
           ": Assertion `" + text(0) + "` failed");
}

void allocate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
    void* const memory = std::malloc(argument<uint64_t>(warp, instruction, 0, lane));
    set_result(warp, instruction, lane, reinterpret_cast<uint64_t>(memory));
  }
}

void release(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    std::free(reinterpret_cast<void*>(
        argument<uint64_t>(warp, instruction, 0, static_cast<uint32_t>(std::countr_zero(lanes)))));
  }
}

}  // namespace

Handler find_builtin(const std::string& name) {
  static const std::map<std::string, Handler> kBuiltins = {
      {"vprintf", print}, {"__assertfail", assert_failed}, {"malloc", allocate}, {"free", release}};
  const auto found = kBuiltins.find(name);
  return found == kBuiltins.end() ? nullptr : found->second;
}

}  // namespace fake_cuda::ptx
