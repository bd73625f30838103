// Scheduler: a device without hardware. Each CUDA thread is a fiber; blocks take slots, run interleaved in a
// seeded order and keep their slot until they have left, as on a GPU. It provides what kernels see through
// engine/cuda/device.h when they are compiled for the host.
//
// What it shows: any order that the seed can make, the same again for the same seed; too few slots (a grid
// whose blocks wait for blocks that have no slot is a deadlock here too); torn packets; and, under the thread
// sanitizer, each missing edge: every CUDA thread is a thread to it, and the only edges are those that CUDA
// grants (barriers, acquired releases, the order of a stream). What it does not: values that only a weaker
// memory returns, and time.
//
// A scheduler is made, used and destroyed by one OS thread; several OS threads may have one each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/fiber.h"

namespace tutti::simt {

struct Options {
  uint32_t block_slots = 132;  ///< blocks that can be resident at once
  uint64_t seed = 1;
  uint32_t preemption_period = 8;  ///< one in so many places where others may run they do; 0: never
  size_t stack_bytes = 128 << 10;
  size_t shared_bytes = 48 << 10;  ///< of each block, as CUDA allows
};

/// What a launch runs.
struct Grid {
  std::string name;     ///< for reports
  uint64_t stream = 0;  ///< grids of one stream run one after the other, and see what the earlier ones did
  uint32_t blocks = 1;
  uint32_t threads = 1;
  std::function<void()> body;  ///< run by every thread
};

enum class Turn : uint8_t {
  kIdle,  ///< no grid is left
  kMoved,
  /// Every thread that could run has polled, and nothing has changed meanwhile: no order of the fibers goes
  /// on from here. Where nobody else writes what they poll, a deadlock.
  kStuck,
};

class Scheduler {
 public:
  explicit Scheduler(const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The number of the grid, from 1.
  uint64_t launch(Grid grid);
  /// Whether all of it has left; if so, the caller sees what it did.
  bool finished(uint64_t grid);
  /// Lets every resident block run a little.
  Turn turn();
  /// Takes turns until nothing is left (true), or until stuck and `goes_on` says no (false). The caller then
  /// sees what the finished grids did. Without `goes_on` being stuck is the end.
  bool run(const std::function<bool()>& goes_on = {});
  /// What every resident block waits for, a line each.
  std::string report() const;
  uint32_t most_resident() const { return most_resident_; }

  // What the fibers ask for; only called by them.
  static Scheduler& of_this_thread();
  uint32_t thread_index() const;
  uint32_t thread_count() const;
  uint32_t block_index() const;
  void wait_at_barrier(const char* place);
  /// At barrier `number`, from 1 on, of so many threads. A wrong number of threads, or one that comes twice,
  /// aborts.
  void meet(uint32_t number, uint32_t threads, const char* place, bool waits);
  void poll_failed(const char* what, const void* address, bool bounded);
  void wait_ended();
  /// A missing fence aborts. The rules: fence_needed comes after fence_made, with no barrier and no
  /// fence_used_up between. A thread with alias_fence_needed knows, by barriers, of an alias fence that it
  /// has not relied on before its last barrier. A thread that knows, by its last barrier or by the word that
  /// it has loaded since, that such accesses have ended makes an alias fence before fence_needed.
  void fence_made();
  void fence_needed();
  void fence_used_up();
  void alias_fence_made();
  void alias_fence_needed();
  void word_stored();
  void word_loaded();
  void preempt();
  void* shared_variable(const void* key, size_t bytes);

 private:
  struct Thread;
  struct Barrier;
  struct Block;
  struct Work;

  static void thread_entry(void* argument);
  static void remover_entry(void* argument);
  void remove(Work* work);
  void run_thread(Thread& thread);
  uint64_t random();
  void admit();
  void start_block(Work& work);
  void run_block(Block& block);
  void serve(Thread& thread);
  void arrive(Thread& thread);
  void open_barrier(Block& block, uint32_t number);
  void retire_blocks();
  std::unique_ptr<Thread> take_thread(Block& block, uint32_t index);
  static uint64_t pool_key(const Block& block, uint32_t index);

  Options options_;
  uint64_t random_state_;
  uint64_t launches_ = 0;
  uint64_t moves_ = 0;    ///< counts whatever can let somebody else go on
  bool run_all_ = false;  ///< the last turn moved nothing, but passed over somebody
  uint32_t most_resident_ = 0;
  Fiber own_;
  PageAllocator allocator_;  ///< gives blocks their shared memory
  /// Frees what fibers have read: the scheduler's own thread may not have seen them leave.
  Fiber remover_;
  Work* removed_ = nullptr;
  Thread* running_ = nullptr;
  std::map<uint64_t, std::list<std::shared_ptr<Work>>> streams_;  ///< grids that have not finished
  std::map<uint64_t, std::shared_ptr<Work>> previous_;            ///< of each stream, the last that has
  std::vector<std::shared_ptr<Work>> unseen_;                     ///< finished, not yet seen by the OS thread
  std::vector<std::unique_ptr<Block>> resident_;
  std::map<uint64_t, std::vector<std::unique_ptr<Thread>>> pool_;  ///< threads to be used again
};

}  // namespace tutti::simt
