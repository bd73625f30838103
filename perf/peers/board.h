// The page that all ranks of a benchmark job share, whatever library they run.
//
// The method must not depend on the measured library. So ranks synchronize, agree on a batch's length and
// exchange clocks through this page: a zeroed file that the orchestrator makes. CLOCK_MONOTONIC is one clock
// for all processes of a machine, so a batch is timed from the first rank's start to the last rank's end.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace peers {

inline constexpr int kRanksMax = 64;

inline int64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline int64_t now_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

/// One rank's report about its last batch.
struct alignas(64) RankLine {
  std::atomic<int64_t> begin_ns;
  std::atomic<int64_t> end_ns;
  std::atomic<int64_t> cpu_ns;
  std::atomic<int64_t> wrong;  // elements that differ from the expected result
};

/// One of the cache lines that two ranks bounce, to measure the cost of a line transfer.
struct alignas(64) BounceLine {
  std::atomic<uint64_t> value;
};

struct BoardPage {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> generation;
  alignas(64) std::atomic<int64_t> calls;  // length of the next batch; 0 ends the measurement
  alignas(64) char blob[512];              // rank 0's message to all, for example a unique id
  BounceLine bounce[2];
  RankLine ranks[kRanksMax];
};

inline constexpr size_t kBoardBytes = 64 * 1024;
static_assert(sizeof(BoardPage) <= kBoardBytes);
static_assert(std::atomic<int64_t>::is_always_lock_free, "atomics must work between processes");

/// This rank's view of the page. Maps it at construction, unmaps it at destruction; throws on failure. Made
/// before the rank is bound to a core.
class Board {
 public:
  Board(const std::string& path, int rank, int rank_count) : rank_(rank), rank_count_(rank_count) {
    if (rank_count > kRanksMax) throw std::runtime_error("too many ranks for the benchmark's shared page");
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) throw std::runtime_error("cannot open " + path);
    void* memory = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    page_ = static_cast<BoardPage*>(memory);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    (void)sched_getaffinity(0, sizeof(allowed), &allowed);
    oversubscribed_ = rank_count > CPU_COUNT(&allowed);
  }
  ~Board() { munmap(page_, kBoardBytes); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  BoardPage& page() { return *page_; }
  RankLine& line(int rank) { return page_->ranks[rank]; }
  int rank() const { return rank_; }
  int rank_count() const { return rank_count_; }

  /// Sets the function that a waiting rank calls. An MPI library moves bytes only inside its own calls. A
  /// rank that has left its last call may still owe its peer an acknowledgement, so it must enter the library
  /// until all ranks are done.
  void set_progress(std::function<void()> progress) { progress_ = std::move(progress); }

  /// Returns when all ranks have called it. Yields at once if there are more ranks than cores; otherwise
  /// after a while, so that a rank that lost its core gets it back.
  void barrier() {
    const uint32_t generation = page_->generation.load(std::memory_order_acquire);
    if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(rank_count_)) {
      page_->arrived.store(0, std::memory_order_relaxed);
      page_->generation.store(generation + 1, std::memory_order_release);
      return;
    }
    constexpr int kSpinsBeforeYield = 20'000;
    for (int spins = oversubscribed_ ? kSpinsBeforeYield : 0;
         page_->generation.load(std::memory_order_acquire) == generation;) {
      if (progress_) progress_();
      if (spins < kSpinsBeforeYield) {
        ++spins;
      } else {
        sched_yield();
      }
    }
  }

  /// `count` round trips of a line between ranks 0 and 1. Each spins on the line that the other one writes.
  void bounce(int64_t count) {
    BounceLine* lines = page_->bounce;
    for (int64_t i = 0; i < count; ++i) {
      ++last_bounce_;
      if (rank_ == 0) lines[0].value.store(last_bounce_, std::memory_order_release);
      while (lines[1 - rank_].value.load(std::memory_order_acquire) != last_bounce_) {
      }
      if (rank_ == 1) lines[1].value.store(last_bounce_, std::memory_order_release);
    }
  }

  /// What a cache line takes between ranks 0 and 1 now, one way, in nanoseconds: where the host of a virtual
  /// machine has placed the cores. Collective. 0 where ranks share cores, and on ranks from 2 on.
  int64_t probe_line() {
    constexpr int64_t kTrips = 8;
    if (oversubscribed_ || rank_ > 1 || rank_count_ < 2) return 0;
    bounce(kTrips);
    int64_t least_ns = INT64_MAX;  // of several stretches: an interrupt takes longer than all of them
    for (int stretch = 0; stretch < 4; ++stretch) {
      const int64_t start = now_ns();
      bounce(kTrips);
      least_ns = std::min(least_ns, (now_ns() - start) / (2 * kTrips));
    }
    return least_ns;
  }

 private:
  BoardPage* page_ = nullptr;
  uint64_t last_bounce_ = 0;
  int rank_;
  int rank_count_;
  bool oversubscribed_ = false;
  std::function<void()> progress_;
};

/// Binds the calling thread to the rank-th core that it may use, so that the scheduler never puts two ranks
/// on one core.
inline void pin_to_core(int rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = rank % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

}  // namespace peers
