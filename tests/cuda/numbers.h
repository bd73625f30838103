// Numbers: sums of numbers on a device, as several tests make them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/cuda_place.h"
#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {

/// Numbers that a short call reduces, and a long one.
inline constexpr size_t kCount = 2'000;
inline constexpr size_t kLongCount = 175'000;

/// Ranks as threads on a device of `blocks` places for blocks.
inline ClusterOptions on_device(int ranks, int blocks) {
  ClusterOptions options;
  options.layout = threads(ranks);
  options.config.device = TUTTI_CUDA_DEVICE(0);
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(60)) * 1000;
  options.seconds = 240;
  options.environment = {{"FAKE_CUDA_SMS", std::to_string(blocks)}, {"FAKE_CUDA_BLOCKS", "1"}};
  // It keeps a megabyte for each thread of a device, and has room for so many.
  if (thread_sanitized()) options.environment.emplace_back("FAKE_CUDA_THREADS", "8");
  return options;
}

/// A buffer of numbers on a device.
class Numbers {
 public:
  explicit Numbers(CudaPlace& place, size_t count = kCount)
      : place_(place), there_(place.allocate(count * sizeof(uint64_t))), here_(count) {}
  void* get() const { return there_; }
  size_t count() const { return here_.size(); }
  size_t bytes() const { return here_.size() * sizeof(uint64_t); }
  /// Element i becomes first + i.
  bool count_from(uint64_t first) {
    for (size_t i = 0; i < here_.size(); ++i) here_[i] = first + i;
    return there_ != nullptr && place_.copy(there_, here_.data(), bytes());
  }
  /// Whether element i is factor * i + constant.
  bool holds(uint64_t factor, uint64_t constant) {
    if (!place_.copy(here_.data(), there_, bytes())) return false;
    for (size_t i = 0; i < here_.size(); ++i) {
      if (here_[i] != factor * i + constant) return false;
    }
    return true;
  }

 private:
  CudaPlace& place_;
  std::byte* there_;
  std::vector<uint64_t> here_;
};

inline tutti_result_t sum(const Numbers& send, const Numbers& recv, tutti_comm_t* comm,
                          tutti_stream_t stream) {
  return tutti_all_reduce(send.get(), recv.get(), send.count(), TUTTI_UINT64, TUTTI_SUM, comm, stream);
}

inline bool synchronize(const CudaPlace& place, CUstream stream) {
  return place.driver().stream_synchronize(stream) == CUDA_SUCCESS;
}

}  // namespace tutti::test
