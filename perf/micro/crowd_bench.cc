// What many ranks on few cores cost: creating them, their memory, a first barrier, and waiting.
//
//   crowd_bench threads|processes RANKS
//
// The ranks create a communicator and meet in a barrier. Then rank 0 computes nothing for 10 s, while all
// others wait for it in a second barrier. Prints one row of a table: seconds to create, memory, seconds of
// the first barrier, and what the wait took: cores, and switches a second of each rank.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

constexpr uint64_t kWaitNs = 10'000'000'000;

/// In memory that all ranks share.
struct Shared {
  tutti_unique_id_t id;
  std::atomic<uint32_t> has_id;
  std::atomic<uint32_t> created;
  std::atomic<uint32_t> failed;
  std::atomic<uint64_t> created_ns;
  std::atomic<uint64_t> first_barrier_ns;
  std::atomic<uint64_t> wait_cpu_ns;
  std::atomic<uint64_t> wait_switches;
};

struct Usage {
  uint64_t cpu_ns = 0;
  uint64_t switches = 0;
};

/// Of the calling process.
Usage usage() {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return {ns(own.ru_utime) + ns(own.ru_stime), static_cast<uint64_t>(own.ru_nvcsw + own.ru_nivcsw)};
}

bool is_fine(tutti_result_t result, const char* what) {
  if (result != TUTTI_SUCCESS) std::fprintf(stderr, "%s: %s\n", what, tutti_last_error());
  return result == TUTTI_SUCCESS;
}

/// `measures`: of the ranks of a process, one measures what the process uses.
bool run_rank(Shared& shared, int rank_count, int rank, bool measures) {
  // A process that has made an id cannot fork its ranks.
  if (rank == 0) {
    if (!is_fine(tutti_get_unique_id(&shared.id), "unique id")) return false;
    shared.has_id.store(1);
  }
  while (shared.has_id.load() == 0) sched_yield();
  tutti_comm_t* comm = nullptr;
  if (!is_fine(tutti_comm_create(&comm, rank_count, shared.id, rank, nullptr), "create")) return false;
  if (shared.created.fetch_add(1) + 1 == static_cast<uint32_t>(rank_count)) shared.created_ns.store(now_ns());
  const uint64_t began = now_ns();
  if (!is_fine(tutti_barrier(comm, TUTTI_BLOCKING), "barrier")) return false;
  if (rank == 0) shared.first_barrier_ns.store(now_ns() - began);
  const Usage before = usage();
  if (rank == 0) std::this_thread::sleep_for(std::chrono::nanoseconds(kWaitNs));
  if (!is_fine(tutti_barrier(comm, TUTTI_BLOCKING), "barrier")) return false;
  const Usage after = usage();
  if (measures) {
    shared.wait_cpu_ns += after.cpu_ns - before.cpu_ns;
    shared.wait_switches += after.switches - before.switches;
  }
  return is_fine(tutti_comm_destroy(comm), "destroy");
}

void run_threads(Shared& shared, int rank_count) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&shared, rank_count, rank] {
      if (!run_rank(shared, rank_count, rank, rank == 0)) shared.failed.store(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_processes(Shared& shared, int rank_count) {
  for (int rank = 0; rank < rank_count; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(run_rank(shared, rank_count, rank, true) ? 0 : 1);
    if (child < 0) shared.failed.store(1);
  }
  for (int status = 0; wait(&status) > 0;) {
    if (status != 0) shared.failed.store(1);
  }
}

/// Most resident memory of this process, or of all its children together (an estimate: the largest of them).
long resident_mib(bool of_children) {
  rusage used{};
  getrusage(of_children ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
  return used.ru_maxrss / 1024;
}

int run(const std::string& kind, int rank_count) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *new (memory) Shared();
  const uint64_t began = now_ns();
  const bool are_processes = kind == "processes";
  are_processes ? run_processes(shared, rank_count) : run_threads(shared, rank_count);
  if (shared.failed.load() != 0) return 1;
  const double seconds = static_cast<double>(kWaitNs) / 1e9;
  std::printf("| %s | %d | %.2f | %ld%s | %.3f | %.3f | %.1f |\n", kind.c_str(), rank_count,
              static_cast<double>(shared.created_ns.load() - began) / 1e9, resident_mib(are_processes),
              are_processes ? " each" : "", static_cast<double>(shared.first_barrier_ns.load()) / 1e9,
              static_cast<double>(shared.wait_cpu_ns.load()) / 1e9 / seconds,
              static_cast<double>(shared.wait_switches.load()) / seconds / rank_count);
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const std::string kind = argc == 3 ? argv[1] : "";
  if (kind != "threads" && kind != "processes") {
    std::fprintf(stderr, "usage: %s threads|processes RANKS\n", argv[0]);
    return 2;
  }
  return tutti::run(kind, std::atoi(argv[2]));
}
