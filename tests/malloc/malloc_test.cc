// libtutti_malloc.so, preloaded: malloc keeps its contract, forked children have memory of their own, and
// ranks reach each other's large memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "comm/process.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kLeast = 128 * kKiB;  // the default of TUTTI_MALLOC_BYTES

void fill(void* memory, size_t bytes, int value) {
  std::memset(memory, value, bytes);
}

bool holds(const void* memory, size_t bytes, int value) {
  const auto* const at = static_cast<const unsigned char*>(memory);
  return std::all_of(at, at + bytes, [value](unsigned char byte) { return byte == value; });
}

/// Runs `body` in a child that has not used tutti; its return value is the child's status.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

/// Whether the heap of this process's tutti holds the memory.
bool is_shared(const void* memory, size_t bytes) {
  auto process = Process::instance();
  return process && (*process)->heap().contains(memory, bytes);
}

struct Way {
  const char* name;
  std::function<void*(size_t)> allocate;
  size_t alignment;
};

std::vector<Way> ways() {
  return {
      {"malloc", [](size_t bytes) { return malloc(bytes); }, 16},
      {"calloc", [](size_t bytes) { return calloc(bytes, 1); }, 16},
      {"realloc", [](size_t bytes) { return realloc(nullptr, bytes); }, 16},
      {"memalign", [](size_t bytes) { return memalign(64, bytes); }, 64},
      {"memalign of 2 MiB", [](size_t bytes) { return memalign(2 * kMiB, bytes); }, 2 * kMiB},
      {"aligned_alloc", [](size_t bytes) { return aligned_alloc(4096, bytes); }, 4096},
      {"posix_memalign",
       [](size_t bytes) {
         void* memory = nullptr;
         return posix_memalign(&memory, 256, bytes) == 0 ? memory : nullptr;
       },
       256},
      {"valloc", [](size_t bytes) { return valloc(bytes); }, 4096},
      {"pvalloc", [](size_t bytes) { return pvalloc(bytes); }, 4096},
  };
}

TEST(MallocTest, EveryWayGivesUsableMemoryOfEverySize) {
  for (const Way& way : ways()) {
    for (const size_t bytes : {size_t{1}, 64 * kKiB - 1, kLeast - 1, kLeast, kLeast + 1, 2 * kMiB + 3}) {
      SCOPED_TRACE(std::string(way.name) + " of " + std::to_string(bytes));
      std::vector<void*> all;
      for (int i = 0; i < 4; ++i) {
        void* const memory = way.allocate(bytes);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % way.alignment, 0u);
        EXPECT_GE(malloc_usable_size(memory), bytes);
        fill(memory, bytes, i);
        all.push_back(memory);
      }
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(holds(all[i], bytes, i));
        free(all[i]);
      }
    }
  }
}

TEST(MallocTest, ReallocKeepsTheBytesAcrossAllSizes) {
  const std::vector<size_t> sizes = {100,        kLeast,    kLeast - 1, 4 * kMiB, 3 * kMiB, 5 * kMiB,
                                     kLeast + 5, 64 * kKiB, 10,         kMiB,     1};
  void* memory = nullptr;
  size_t before = 0;
  for (const size_t bytes : sizes) {
    memory = realloc(memory, bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_TRUE(holds(memory, std::min(before, bytes), 7)) << bytes;
    fill(memory, bytes, 7);
    before = bytes;
  }
  free(memory);
  EXPECT_EQ(realloc(malloc(kMiB), 0), nullptr) << "frees";
}

TEST(MallocTest, CallocIsZeroWhereAFreedBlockWaited) {
  void* memory = malloc(kMiB);
  fill(memory, kMiB, 1);
  free(memory);
  memory = calloc(kMiB / 4, 4);
  EXPECT_TRUE(holds(memory, kMiB, 0));
  free(memory);
}

// Method: a page that was returned to the system would read 0. Volatile: the compiler knows that freed memory
// has no value.
TEST(MallocTest, AFreedBlockServesItsSizeAgain) {
  EXPECT_EQ(in_child([] {
              volatile char* const memory = static_cast<char*>(malloc(3 * kMiB));
              *memory = 7;
              free(const_cast<char*>(memory));
              volatile char* const again = static_cast<char*>(malloc(3 * kMiB - 100 * kKiB));
              return *again == 7 ? 0 : 1;
            }),
            0);
}

TEST(MallocTest, ImpossibleSizesAreRefused) {
  // Volatile: else the compiler warns, and knows the answer.
  volatile size_t half = SIZE_MAX / 2;
  errno = 0;
  EXPECT_EQ(malloc(half), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(calloc(half, 8), nullptr);
  EXPECT_EQ(pvalloc(half * 2), nullptr);
  void* memory = nullptr;
  EXPECT_EQ(posix_memalign(&memory, 24, kMiB), EINVAL);
  // A quarter more than this overflows.
  volatile size_t most = SIZE_MAX / 5 * 4 + 150000;
  memory = malloc(kMiB);
  EXPECT_EQ(realloc(memory, most), nullptr);
  free(memory);
}

TEST(MallocTest, LargeMemoryIsShared) {
  EXPECT_EQ(in_child([] {
              void* const large = malloc(kLeast);
              void* const small = malloc(kLeast - 1);
              return is_shared(large, kLeast) && !is_shared(small, 1) ? 0 : 1;
            }),
            0);
}

TEST(MallocTest, ASettingSaysFromWhichSizeOrNever) {
  const auto shares = [](const char* setting, size_t bytes) {
    setenv("TUTTI_MALLOC_BYTES", setting, 1);
    return is_shared(malloc(bytes), bytes);
  };
  EXPECT_EQ(in_child([&] { return shares("1000000", kMiB) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return shares("2000000", kMiB) ? 1 : 0; }), 0);
  EXPECT_EQ(in_child([&] { return shares("0", kMiB) ? 1 : 0; }), 0);
}

TEST(MallocTest, AFullHeapLeavesTheRestToTheNextAllocator) {
  EXPECT_EQ(in_child([] {
              setenv("TUTTI_HEAP_BYTES", "16777216", 1);
              void* const fits = malloc(8 * kMiB);
              void* const more = malloc(64 * kMiB);
              fill(more, 64 * kMiB, 1);
              return is_shared(fits, 8 * kMiB) && !is_shared(more, 1) ? 0 : 1;
            }),
            0);
}

TEST(MallocTest, MemoryOfTuttiAndOfMallocShareOneHeap) {
  EXPECT_EQ(in_child([] {
              void* const block = malloc(kMiB);
              void* memory = nullptr;
              if (tutti_mem_alloc(&memory, kMiB) != TUTTI_SUCCESS) return 1;
              if (!is_shared(memory, kMiB) || !is_shared(block, kMiB)) return 2;
              if (tutti_mem_free(memory) != TUTTI_SUCCESS) return 3;
              return tutti_mem_free(memory) == TUTTI_INVALID_ARGUMENT ? 0 : 4;
            }),
            0);
}

// Goal: fork() gives the child what the parent had, and neither sees what the other one writes or frees.
TEST(MallocTest, AForkedChildHasACopy) {
  auto* const memory = static_cast<char*>(malloc(8 * kMiB));
  auto* const freed = static_cast<char*>(malloc(kMiB));
  fill(memory, 4 * kMiB, 1);  // the second half has no pages yet
  fill(freed, kMiB, 2);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    if (!holds(memory, 4 * kMiB, 1) || !holds(memory + 4 * kMiB, 4 * kMiB, 0)) _exit(2);
    if (!holds(freed, kMiB, 2)) _exit(3);
    fill(memory, 8 * kMiB, 3);
    free(freed);
    auto* const grown = static_cast<char*>(realloc(memory, 16 * kMiB));
    if (!holds(grown, 8 * kMiB, 3)) _exit(4);
    // Grandchildren, as ever.
    _exit(in_child([grown] { return holds(grown, 8 * kMiB, 3) ? 0 : 1; }) == 0 ? 0 : 5);
  }
  fill(memory, 4 * kMiB, 4);
  free(freed);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(holds(memory, 4 * kMiB, 4));
  EXPECT_TRUE(holds(memory + 4 * kMiB, 4 * kMiB, 0));
  free(memory);
  close(go[0]);
  close(go[1]);
}

// Goal: programs close descriptors that they do not know, and reuse the numbers.
TEST(MallocTest, AForkNeedsNoDescriptorOfTheHeap) {
  EXPECT_EQ(in_child([] {
              void* const memory = malloc(kMiB);
              fill(memory, kMiB, 5);
              for (int fd = 3; fd < 1024; ++fd) close(fd);
              for (int fd = 3; fd < 300; ++fd) static_cast<void>(open("/proc/self/exe", O_RDONLY));
              return in_child([memory] { return holds(memory, kMiB, 5) ? 0 : 1; });
            }),
            0);
}

// What the handlers below work on; null: nothing.
char* handled = nullptr;
void* made_by_handler = nullptr;

TEST(MallocTest, HandlersOfOtherLibrariesSeeTheirOwnMemory) {
  pthread_atfork(
      [] {
        if (handled != nullptr) free(malloc(3 * kMiB));
      },
      nullptr,
      [] {
        if (handled == nullptr) return;
        fill(handled, kMiB, 2);
        made_by_handler = malloc(3 * kMiB);
      });
  handled = static_cast<char*>(malloc(kMiB));
  fill(handled, kMiB, 1);
  EXPECT_EQ(in_child([] { return holds(handled, kMiB, 2) && made_by_handler != nullptr ? 0 : 1; }), 0);
  EXPECT_TRUE(holds(handled, kMiB, 1)) << "the child wrote to its parent's memory";
  free(std::exchange(handled, nullptr));
}

TEST(MallocTest, AForkWithAPendingCancellationReturns) {
  void* const memory = calloc(kMiB, 1);
  std::thread thread([] {
    pthread_cancel(pthread_self());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
  thread.join();
  free(memory);
  free(malloc(kMiB));
}

/// Before a child ends by a signal: it leaves no core, which would be as long as its heap, and no message.
void expect_abort() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
}

TEST(MallocTest, AForkOnAStackOfMallocEndsTheProcess) {
  const int status = in_child([] {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, aligned_alloc(4096, kMiB), kMiB);
    pthread_t thread;
    expect_abort();
    pthread_create(
        &thread, &attributes, [](void*) -> void* { return reinterpret_cast<void*>(fork()); }, nullptr);
    pthread_join(thread, nullptr);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST(MallocTest, ASecondFreeEndsTheProcess) {
  const int status = in_child([] {
    expect_abort();
    void* volatile const memory = malloc(kMiB);
    free(memory);
    free(memory);
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

// Method: the system refuses to take locked pages back, and to forget them in a child.
TEST(MallocTest, FreeKeepsErrno) {
  const auto keeps = [](size_t bytes, void* memory) {
    if (mlock(memory, bytes) != 0) return 2;
    errno = 77;
    free(memory);
    return errno == 77 ? 0 : 1;
  };
  void* const memory = calloc(kMiB, 1);
  const int in_copy = in_child([&] { return keeps(kMiB, memory); });
  free(memory);
  if (in_copy == 2 << 8) GTEST_SKIP() << "memory cannot be locked here";
  EXPECT_EQ(in_copy, 0);
  // This long, it does not wait for its next use.
  EXPECT_EQ(in_child([&] {
              auto* const block = static_cast<char*>(malloc(300 * kMiB));
              *block = 1;
              if (mlock(block, 4096) != 0) return 2;
              errno = 77;
              free(block);
              return errno == 77 ? 0 : 1;
            }),
            0);
}

TEST(MallocTest, LimitsOfTheProcessLeaveItRunning) {
  const auto with_limit = [](__rlimit_resource which, size_t limit) {
    const rlimit limits{limit, limit};
    setrlimit(which, &limits);
    std::vector<void*> all;
    while (void* const memory = malloc(kMiB)) {
      if (all.size() == 100) break;
      fill(memory, kMiB, 1);
      all.push_back(memory);
    }
    for (void* const memory : all) free(memory);
    return all.empty() ? 1 : 0;
  };
  for (const size_t bytes : {size_t{0}, kMiB, 10 * kMiB}) {
    EXPECT_EQ(in_child([&] { return with_limit(RLIMIT_FSIZE, bytes); }), 0) << bytes;
  }
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t taken = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(in_child([&] { return with_limit(RLIMIT_AS, taken + 300 * kMiB); }), 0);
}

TEST(MallocTest, ABlockGrowsWhereItLies) {
  EXPECT_EQ(in_child([] {
              void* const memory = malloc(kMiB);
              const volatile auto address = reinterpret_cast<uintptr_t>(memory);
              return reinterpret_cast<uintptr_t>(realloc(memory, 16 * kMiB)) == address ? 0 : 1;
            }),
            0);
}

TEST(MallocTest, WaitingBlocksDoNotFillTheHeap) {
  EXPECT_EQ(in_child([] {
              setenv("TUTTI_HEAP_BYTES", "16777216", 1);
              for (int i = 0; i < 12; ++i) {
                void* const small = malloc(kMiB + static_cast<size_t>(i) * 200 * kKiB);
                free(small);
              }
              void* const large = malloc(15 * kMiB);
              return is_shared(large, 15 * kMiB) ? 0 : 1;
            }),
            0);
}

// Method: threads take, fill, check and free blocks of random sizes, while the main thread forks.
TEST(MallocTest, ThreadsAndForksDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kTurns = 300;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread, &failures] {
      std::mt19937 random(static_cast<unsigned>(thread));
      std::vector<std::pair<void*, size_t>> held(8);
      for (int turn = 0; turn < kTurns; ++turn) {
        auto& [memory, bytes] = held[random() % held.size()];
        if (memory != nullptr && !holds(memory, bytes, thread + 1)) ++failures;
        free(memory);
        bytes = 16 * kKiB + random() % kMiB;
        memory = malloc(bytes);
        fill(memory, bytes, thread + 1);
      }
      for (auto& [memory, bytes] : held) free(memory);
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([] {
                void* const memory = malloc(kMiB);
                fill(memory, kMiB, 9);
                return holds(memory, kMiB, 9) ? 0 : 1;
              }),
              0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

// Goal: ranks of two processes reduce, gather and send large memory of malloc, which neither of them copies.
TEST(MallocTest, RanksReachEachOthersBlocks) {
  constexpr size_t kCount = kMiB;
  const auto failures = run_cluster({.layout = {1, 1}}, [](Rank& rank) {
    auto* const send = static_cast<float*>(malloc(kCount * sizeof(float)));
    auto* const recv = static_cast<float*>(malloc(2 * kCount * sizeof(float)));
    rank.expect_true(is_shared(send, kCount * sizeof(float)), "shared");
    for (int turn = 0; turn < 3; ++turn) {
      std::fill_n(send, kCount, static_cast<float>(rank.rank() + turn));
      rank.expect_ok(
          tutti_all_reduce(send, recv, kCount, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, TUTTI_BLOCKING),
          "all_reduce");
      const auto sum = static_cast<float>(1 + 2 * turn);
      rank.expect_true(std::all_of(recv, recv + kCount, [sum](float one) { return one == sum; }), "the sum");
      rank.expect_ok(tutti_all_gather(send, recv, kCount, TUTTI_FLOAT32, rank.comm, TUTTI_BLOCKING),
                     "all_gather");
      rank.expect_true(
          recv[0] == static_cast<float>(turn) && recv[2 * kCount - 1] == static_cast<float>(turn + 1),
          "all blocks");
    }
    free(send);
    free(recv);
  });
  EXPECT_TRUE(failures.empty()) << failures;
}

}  // namespace
}  // namespace tutti::test
