// What the microbenchmarks of ways between two ends share: 8 bytes or more there and back, and runs of which
// the best counts. An end moves what can be moved of `bytes` and returns true once all of them have been:
// `bool write(size_t bytes)`, `bool read(size_t bytes)`.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace tutti {

/// Both ends of both ways in one thread: the work, whatever else the machine does.
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

/// One thread asks, one answers; needs two free cores.
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

/// The best of many short runs, interleaved: on a busy machine both threads have a core only now and then.
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
