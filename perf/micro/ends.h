// Shared by the microbenchmarks of a path between two ends: 8 bytes or more to the peer and back, best of
// many runs. An end moves as many of `bytes` as it can, and returns true once all have moved: `bool
// write(size_t bytes)`, `bool read(size_t bytes)`.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace tutti {

/// Both ends of both directions in one thread. Measures the work, whatever else the machine does.
template <class Ends>
void pingpong_one_thread(benchmark::State& state, Ends& there, Ends& back, size_t bytes) {
  for (auto _ : state) {
    for (Ends* ends : {&there, &back}) {
      while (!ends->write(bytes)) {
      }
      while (!ends->read(bytes)) {
      }
    }
  }
}

/// One thread asks, the other answers. Needs two free cores.
template <class Ends>
void pingpong_two_threads(benchmark::State& state, Ends& there, Ends& back, size_t bytes) {
  std::atomic<bool> done = false;
  std::thread echo([&] {
    while (!done.load(std::memory_order_relaxed)) {
      if (!there.read(bytes)) continue;
      while (!back.write(bytes)) {
      }
    }
  });
  for (auto _ : state) {
    while (!there.write(bytes)) {
    }
    while (!back.read(bytes)) {
    }
  }
  done = true;
  echo.join();
}

/// The best of many short runs, interleaved: on a busy machine both threads rarely have a core at once.
inline double best(const std::vector<double>& runs) {
  return *std::min_element(runs.begin(), runs.end());
}

template <class Run>
void add(const std::string& name, int iterations, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseRealTime()
      ->Iterations(iterations)
      ->Repetitions(40)
      ->ComputeStatistics("best", best)
      ->ReportAggregatesOnly();
}

}  // namespace tutti
