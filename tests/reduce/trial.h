// Trial: one reduction kernel on many jobs, compared with the reference bit by bit. For every suite that has
// kernels to test, whatever they run on.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "reduce/formats.h"
#include "reduce/reference.h"
#include "tests/reduce/cases.h"

namespace tutti::reduce {

inline constexpr size_t kGuardBytes = 64;
inline constexpr uint8_t kGuard = 0xa5;

/// A kernel under test, and the name of what it runs on.
struct TargetKernel {
  std::string target;
  std::function<void(const Job&)> run;
};
/// Memory at a 64-byte boundary plus a misalignment, with guard bytes on both sides.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : memory_(bytes + 4 * kGuardBytes) {}

  void place(size_t misalignment_bytes) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data()) + kGuardBytes;
    const uintptr_t aligned = (base + 63) / 64 * 64;
    data_ =
        memory_.data() + (aligned - reinterpret_cast<uintptr_t>(memory_.data())) + misalignment_bytes % 64;
  }
  void fill(const void* from, size_t bytes) {
    std::memset(data_ - kGuardBytes, kGuard, bytes + 2 * kGuardBytes);
    if (from != nullptr) std::memcpy(data_, from, bytes);
  }
  bool guards_hold(size_t bytes) const {
    const std::vector<uint8_t> guard(kGuardBytes, kGuard);
    return std::memcmp(data_ - kGuardBytes, guard.data(), kGuardBytes) == 0 &&
           std::memcmp(data_ + bytes, guard.data(), kGuardBytes) == 0;
  }
  uint8_t* data() const { return data_; }

 private:
  std::vector<uint8_t> memory_;
  uint8_t* data_ = nullptr;
};

inline uint64_t bits_at(const uint8_t* bytes, DataType type, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes + index * type_bytes(type), type_bytes(type));
  return bits;
}

inline bool is_nan(uint64_t bits, DataType type) {
  switch (type) {
    case DataType::kFloat16: return std::isnan(widen<Float16>(static_cast<uint16_t>(bits)));
    case DataType::kBfloat16: return std::isnan(widen<Bfloat16>(static_cast<uint16_t>(bits)));
    case DataType::kFloat8E4M3: return std::isnan(widen<Float8E4M3>(static_cast<uint8_t>(bits)));
    case DataType::kFloat8E5M2: return std::isnan(widen<Float8E5M2>(static_cast<uint8_t>(bits)));
    case DataType::kFloat32: return std::isnan(Element<float>::from_bits(bits));
    case DataType::kFloat64: return std::isnan(Element<double>::from_bits(bits));
    default: return false;
  }
}

/// Index of the first difference, or -1. Only NaN payloads under kLeft may differ.
inline int64_t first_difference(const uint8_t* got, const std::vector<uint8_t>& want,
                                const KernelCase& kernel) {
  if (want.empty() || std::memcmp(got, want.data(), want.size()) == 0) return -1;
  const bool orders = kernel.op == ReduceOp::kMin || kernel.op == ReduceOp::kMax;
  const bool free_nan = kernel.association == Association::kLeft && is_float(kernel.type) && !orders;
  for (size_t i = 0; i < want.size() / type_bytes(kernel.type); ++i) {
    const uint64_t a = bits_at(got, kernel.type, i);
    const uint64_t b = bits_at(want.data(), kernel.type, i);
    if (a != b && !(free_nan && is_nan(a, kernel.type) && is_nan(b, kernel.type)))
      return static_cast<int64_t>(i);
  }
  return -1;
}

inline std::string describe(const std::string& target, const KernelCase& kernel, const Job& job,
                            const Placement& placement) {
  return std::string(type_name(kernel.type)) + "/" + std::string(op_name(kernel.op)) +
         (kernel.association == Association::kTree ? "/tree" : "/left") +
         " K=" + std::to_string(job.source_count) + " M=" + std::to_string(job.sink_count) +
         " count=" + std::to_string(job.count) +
         " source misalignment=" + std::to_string(placement.source_misalignment_bytes) +
         " sink misalignment=" + std::to_string(placement.sink_misalignment_bytes) +
         (placement.in_place ? " in place" : "") + " streaming=" + std::to_string(placement.streaming_sinks) +
         " strings=" + std::to_string(job.string_sinks) +
         " interleaved=" + std::to_string(job.interleaved_sinks) +
         " unclaimed=" + std::to_string(job.unclaimed_sinks) + " finish=" + std::to_string(job.finish) +
         " scaled=" + std::to_string(job.scaled_sources) + " on " + target;
}

/// Operands of one case, the reference's result, and buffers to run the kernel in.
class Trial {
 public:
  Trial(const KernelCase& kernel, size_t count_max)
      : kernel_(kernel), engine_(static_cast<uint64_t>(kernel.type) * 64 + static_cast<uint64_t>(kernel.op)) {
    const size_t bytes = count_max * type_bytes(kernel.type);
    for (int i = 0; i < kMaxSources; ++i) {
      operands_.emplace_back(bytes);
      for (size_t e = 0; e < count_max; ++e) set(i, e, element_bits(kernel.type, engine_));
      sources_.emplace_back(bytes);
      sinks_.emplace_back(bytes);
    }
  }

  void set(int source, size_t index, uint64_t bits) {
    std::memcpy(operands_[source].data() + index * type_bytes(kernel_.type), &bits, type_bytes(kernel_.type));
  }

  /// A job of `source_count` operands, its average, scale and divisor varied with the case.
  Job make_job(int source_count, size_t count) {
    Job job;
    job.source_count = static_cast<uint32_t>(source_count);
    job.sink_count = 1;
    job.count = count;
    if (kernel_.op == ReduceOp::kAvg) {
      job.finish = engine_() % 4 != 0;
      const uint64_t divisors[] = {1, 2, 3, 7, 16, 100, 65537, (uint64_t{1} << 33) + 1};
      job.divisor = divisors[engine_() % std::size(divisors)];
    }
    if (kernel_.op == ReduceOp::kPremulSum) {
      job.scaled_sources = static_cast<uint32_t>(engine_() % (1u << source_count));
      job.scale_bits = element_bits(kernel_.type, engine_);
    }
    return job;
  }

  std::vector<uint8_t> reference(Job job) {
    std::vector<uint8_t> result(job.count * type_bytes(kernel_.type));
    for (uint32_t k = 0; k < job.source_count; ++k) job.sources[k] = operands_[k].data();
    job.sinks[0] = result.data();
    reference_kernel(job, kernel_.type, kernel_.op, kernel_.association);
    return result;
  }

  /// Runs the kernel and compares every sink.
  void check(const TargetKernel& kernel, Job job, const Placement& placement,
             const std::vector<uint8_t>& want) {
    const size_t bytes = want.size();
    for (uint32_t k = 0; k < job.source_count; ++k) {
      sources_[k].place(placement.source_misalignment_bytes * (k + 1));
      sources_[k].fill(operands_[k].data(), bytes);
      job.sources[k] = sources_[k].data();
    }
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      const bool shared = placement.in_place && m == 0;
      if (!shared) {
        sinks_[m].place(placement.sink_misalignment_bytes * (m + 1));
        sinks_[m].fill(nullptr, bytes);
      }
      job.sinks[m] = shared ? sources_[0].data() : sinks_[m].data();
    }
    job.streaming_sinks = placement.streaming_sinks;
    kernel.run(job);
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      const Buffer& sink = placement.in_place && m == 0 ? sources_[0] : sinks_[m];
      const int64_t at = first_difference(sink.data(), want, kernel_);
      ASSERT_EQ(at, -1) << describe(kernel.target, kernel_, job, placement) << ", sink " << m << ": got "
                        << std::hex << bits_at(sink.data(), kernel_.type, at) << ", want "
                        << bits_at(want.data(), kernel_.type, at) << operand_text(job, at);
      ASSERT_TRUE(sink.guards_hold(bytes))
          << describe(kernel.target, kernel_, job, placement) << ": wrote outside sink " << m;
    }
  }

 private:
  std::string operand_text(const Job& job, int64_t index) const {
    std::string text = " from";
    char number[32];
    for (uint32_t k = 0; k < job.source_count; ++k) {
      const uint64_t bits = bits_at(operands_[k].data(), kernel_.type, static_cast<size_t>(index));
      std::snprintf(number, sizeof number, " %llx", static_cast<unsigned long long>(bits));
      text += number;
    }
    std::snprintf(number, sizeof number, " scale %llx", static_cast<unsigned long long>(job.scale_bits));
    return text + number;
  }

  KernelCase kernel_;
  std::mt19937_64 engine_;
  std::vector<std::vector<uint8_t>> operands_;
  std::vector<Buffer> sources_;
  std::vector<Buffer> sinks_;
};

}  // namespace tutti::reduce
