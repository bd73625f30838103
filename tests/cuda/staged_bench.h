// StagedBench: a rank whose calls pass through host memory, and its buffers. Even ranks are on device 0, odd
// ones in host memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/cuda_place.h"
#include "tests/support/cluster.h"

namespace tutti::test {

/// The ranks make their communicators themselves.
inline ClusterOptions staged_options(std::vector<int> layout, int seconds) {
  ClusterOptions options;
  options.layout = std::move(layout);
  options.create = false;
  options.config.timeout_ms = static_cast<uint64_t>(patience_s(60)) * 1000;
  options.seconds = seconds;
  return options;
}

struct StagedBench {
  /// Buffers of `count` numbers.
  StagedBench(Rank& of, size_t count, Order order) : rank(of), count_of_each(count) {
    tutti_config_t config = rank.config();
    if (rank.rank() % 2 == 0) {
      config.device = TUTTI_CUDA_DEVICE(0);
      place = CudaPlace::open(rank, 0, order);
    }
    if (!rank.renew(config)) return;
    here.resize(2 * count);
    send = place != nullptr ? reinterpret_cast<float*>(place->allocate(count * sizeof(float))) : here.data();
    recv = place != nullptr ? reinterpret_cast<float*>(place->allocate(count * sizeof(float)))
                            : here.data() + count;
  }
  explicit operator bool() const { return recv != nullptr; }

  tutti_result_t sum(tutti_stream_t stream) const { return sum(stream, count_of_each); }
  tutti_result_t sum(tutti_stream_t stream, size_t numbers) const {
    return tutti_all_reduce(send, recv, numbers, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, stream);
  }
  /// On a device.
  tutti_stream_t stream() const { return tutti_stream_cuda(place->stream()); }
  bool stream_goes_on() const { return place->driver().stream_synchronize(place->stream()) == CUDA_SUCCESS; }
  tutti_result_t async_error() const {
    tutti_result_t error = TUTTI_SUCCESS;
    rank.expect_ok(tutti_comm_async_error(rank.comm, &error), "async_error");
    return error;
  }
  void destroy(tutti_result_t wanted) {
    rank.expect(tutti_comm_destroy(rank.comm), wanted, "destroy");
    rank.comm = nullptr;
  }

  Rank& rank;
  size_t count_of_each;
  std::unique_ptr<CudaPlace> place;
  std::vector<float> here;
  float* send = nullptr;
  float* recv = nullptr;
};

/// Runs `body` on every rank whose bench could be made. Bench: made of a rank.
template <class Bench>
std::string run_benches(const ClusterOptions& options, const std::function<void(Bench&)>& body) {
  return run_cluster(options, [&](Rank& rank) {
    Bench bench(rank);
    if (bench) body(bench);
  });
}

}  // namespace tutti::test
