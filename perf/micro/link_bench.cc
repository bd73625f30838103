// Microbenchmark of a link (transports/link.h): what a message costs in each carriage, within one process.
//
// write_and_read: both ends in one thread, so nothing but the instructions. there_and_back: two threads, a
// message each way; half of it, less the instructions, is what the cores take to pass its lines on. Compare
// the `best` lines; interleaved by --benchmark_enable_random_interleaving=true.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/raw_links.h"
#include "transports/link.h"

namespace tutti {
namespace {

constexpr RingShape kShape;

/// One direction: a writer's buffer, a ring, a reader's buffer.
class Way {
 public:
  Way(uint64_t bytes, bool refers) : bytes_(bytes), refers_(refers), source_(bytes), target_(bytes) {}

  bool write() {
    if (!send_.can_write() || !send_.references_returned()) return false;
    if (refers_) {
      send_.commit_reference(0, bytes_, source_.data(), Carriage::kReference);
    } else {
      std::memcpy(send_.span(bytes_), source_.data(), bytes_);
      send_.commit(0, bytes_);
    }
    return true;
  }
  bool read() {
    const uint64_t word = recv_.word();
    if ((word & flag::kNumberMask) != ((recv_.next + 1) & flag::kNumberMask)) return false;
    std::memcpy(target_.data(), recv_.span(word), bytes_);
    recv_.release(word);
    return true;
  }

 private:
  uint64_t bytes_;
  bool refers_;
  test::RingMemory ring_{kShape};
  SendLink send_ = SendLink::at(ring_.bytes(), kShape);
  RecvLink recv_ = RecvLink::at(ring_.bytes(), kShape, 0);
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
};

void write_and_read(benchmark::State& state, uint64_t bytes, bool refers) {
  Way way(bytes, refers);
  for (auto _ : state) {
    way.write();
    way.read();
    benchmark::ClobberMemory();
  }
}

void there_and_back(benchmark::State& state, uint64_t bytes, bool refers) {
  Way there(bytes, refers);
  Way back(bytes, refers);
  std::atomic<bool> done = false;
  std::thread echo([&] {
    while (!done.load(std::memory_order_relaxed)) {
      if (!there.read()) continue;
      while (!back.write()) {
      }
    }
  });
  for (auto _ : state) {
    while (!there.write()) {
    }
    while (!back.read()) {
    }
  }
  done = true;
  echo.join();
}

/// The best of many short runs: on a busy machine both threads have a core only now and then.
double best(const std::vector<double>& runs) {
  return *std::min_element(runs.begin(), runs.end());
}

template <class Run>
void add(const std::string& name, int iterations, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseRealTime()
      ->Iterations(iterations)
      ->Repetitions(20)
      ->ComputeStatistics("best", best)
      ->ReportAggregatesOnly();
}

void register_all() {
  struct Carried {
    const char* name;
    uint64_t bytes;
    bool refers;
  };
  for (const Carried& carried :
       {Carried{"inline/8", 8, false}, Carried{"inline/56", 56, false}, Carried{"slot/64", 64, false},
        Carried{"slot/4096", 4096, false}, Carried{"slot/16384", 16384, false},
        Carried{"reference/4096", 4096, true}, Carried{"reference/16384", 16384, true}}) {
    add(std::string("write_and_read/") + carried.name, 20'000,
        [=](benchmark::State& state) { write_and_read(state, carried.bytes, carried.refers); });
    add(std::string("there_and_back/") + carried.name, 500,
        [=](benchmark::State& state) { there_and_back(state, carried.bytes, carried.refers); });
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tutti::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
