// Microbenchmark of wake-ups: the cost of a turn of a Waiter, and how late a waiting rank notices a message.
//
// noticed_after: one thread writes a message when the other has waited for the given time. The result is the
// time from the write to the reader's return. Waits of up to 2 ms stay awake; longer waits sleep between
// polls (src/engine/wait.cc), so 5 and 50 ms show the cost of a sleep.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "engine/wait.h"
#include "tests/engine/raw_links.h"
#include "transports/link.h"

namespace tutti {
namespace {

constexpr RingShape kShape;

void turn(benchmark::State& state, WaitMode mode) {
  Waiter waiter(mode);
  for (auto _ : state) {
    waiter.moved();
    benchmark::DoNotOptimize(waiter.pause());
  }
}

/// Like Communicator::wait: polls, pauses, polls.
void read_one(RecvLink& link, WaitMode mode) {
  Waiter waiter(mode);
  for (;;) {
    for (uint32_t poll = 0; poll < waiter.polls(); ++poll) {
      const uint64_t word = link.word();
      if ((word & flag::kNumberMask) != ((link.next + 1) & flag::kNumberMask)) continue;
      return link.release(word);
    }
    waiter.pause();
  }
}

void noticed_after(benchmark::State& state, WaitMode mode, uint64_t waited_us) {
  test::RingMemory ring(kShape);
  SendLink send = SendLink::at(ring.bytes(), kShape);
  RecvLink recv = RecvLink::at(ring.bytes(), kShape, 0);
  std::atomic<uint64_t> begun = 0;  ///< number of waits that the reader has begun
  std::atomic<bool> done = false;
  uint64_t written_ns = 0;
  std::thread writer([&] {
    for (uint64_t wait = 1;; ++wait) {
      while (begun.load(std::memory_order_acquire) < wait) {
        if (done.load(std::memory_order_relaxed)) return;
        std::this_thread::yield();
      }
      for (const uint64_t due = now_ns() + waited_us * 1000; now_ns() < due;) std::this_thread::yield();
      written_ns = now_ns();
      send.can_write();
      send.commit(0, 0);
    }
  });
  for (auto _ : state) {
    begun.fetch_add(1, std::memory_order_release);
    read_one(recv, mode);
    state.SetIterationTime(static_cast<double>(now_ns() - written_ns) * 1e-9);
  }
  done = true;
  writer.join();
}

void register_all() {
  for (const auto& [mode, name] : {std::pair{WaitMode::kSpin, std::string("/spin")},
                                   {WaitMode::kYield, "/yield"},
                                   {WaitMode::kBeside, "/beside"}}) {
    benchmark::RegisterBenchmark(("turn" + name).c_str(), turn, mode);
    for (const uint64_t waited_us : {uint64_t{10}, uint64_t{1'000}, uint64_t{5'000}, uint64_t{50'000}}) {
      const std::string waited = "/waited_us:" + std::to_string(waited_us);
      benchmark::RegisterBenchmark(("noticed_after" + name + waited).c_str(), noticed_after, mode, waited_us)
          ->UseManualTime()
          ->Iterations(waited_us > 1'000 ? 5 : 100)
          ->Repetitions(5)
          ->ReportAggregatesOnly()
          ->Unit(benchmark::kMicrosecond);
    }
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
