#include "tests/simt/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

namespace tutti::simt {
namespace {

thread_local Scheduler* active = nullptr;

enum class Wish : uint8_t { kRun, kBarrier, kArrive, kPoll, kPreempt, kExit };

/// Of a block, as CUDA has them. Barrier 0 is the one of all threads.
constexpr uint32_t kBarriers = 16;

/// A block's shared memory: fresh pages, so that no sanitizer takes them for what an earlier block had. On a
/// device they hold anything at first.
class SharedMemory {
 public:
  SIMT_UNSEEN SharedMemory(PageAllocator& allocator, size_t bytes, void* tag)
      : memory_(allocator.map_pages(bytes, tag)), bytes_(bytes) {
    constexpr unsigned char kGarbage = 0xa5;
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    volatile auto* at = static_cast<unsigned char*>(memory_);
    for (size_t i = 0; i < bytes; ++i) at[i] = kGarbage;
  }
  ~SharedMemory() { munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* bytes() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_;
  size_t bytes_;
};

/// A kernel with a wrong bound would store four thousand million times before anything else fails.
constexpr uint32_t kMostStores = 1u << 20;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "the simulated device: %s\n", what);
  std::abort();
}

}  // namespace

/// A grid and how far it is.
struct Scheduler::Work {
  Grid grid;
  uint64_t number = 0;
  uint32_t next_block = 0;
  uint32_t blocks_left = 0;
  std::shared_ptr<Work> previous;  ///< of the stream; dropped when this one has finished
  char* previous_end_tag = nullptr;
  char begin_tag = 0;
  char end_tag = 0;
};

// What fibers read is plain: the functions of the standard library are seen by the thread sanitizer.
struct Scheduler::Thread {
  Thread(Scheduler& owner, size_t stack_bytes) : scheduler(owner), fiber(&thread_entry, this, stack_bytes) {}

  Scheduler& scheduler;
  Fiber fiber;
  Block* block = nullptr;
  Work* work = nullptr;
  uint32_t index = 0;
  Wish wish = Wish::kRun;
  bool has_polled = false;  ///< waits: its last poll failed
  bool bounded = false;
  const char* place = "";
  const void* address = nullptr;
  uint64_t arrived_at[kBarriers] = {};  ///< of barriers: one more than the generation to which it has come
  uint32_t barrier = 0;                 ///< to which it has come last
  uint32_t barrier_threads = 0;         ///< of that one; 0: all
  bool fenced = false;
  uint32_t stores = 0;          ///< of flags, since the last barrier
  uint64_t alias_known = 0;     ///< the last alias fence that it knows of
  uint64_t alias_used = 0;      ///< the one on which its accesses before the last barrier relied
  bool alias_accesses = false;  ///< it has accessed multicast memory since its last barrier
  bool alias_due = false;       ///< accesses have ended: an alias fence must come before a flag
};

struct Scheduler::Barrier {
  uint32_t arrived = 0;
  uint32_t threads = 0;  ///< that it waits for; 0: all of the block that have not left
  uint64_t generation = 0;
  uint64_t alias_known = 0;     ///< the last alias fence that one of the arrived knows of
  bool alias_accesses = false;  ///< one of them has accessed multicast memory
  /// Alternating, so that who leaves one barrier late does not see what was done before the next.
  char tags[2] = {};

  SIMT_UNSEEN char* tag() { return &tags[generation & 1]; }
};

struct Scheduler::Block {
  static constexpr uint32_t kMostVariables = 16;

  std::shared_ptr<Work> work;
  uint32_t index = 0;
  uint32_t gone = 0;
  uint32_t laziness = 0;             ///< of four turns it misses so many
  uint64_t alias_fences = 0;         ///< so far
  bool word_tells_accesses = false;  ///< who stored the word last knew of accesses that have ended
  Barrier barriers[kBarriers];
  std::vector<std::unique_ptr<Thread>> threads;
  std::unique_ptr<SharedMemory> shared;
  std::byte* shared_bytes = nullptr;
  char shared_tag = 0;
  size_t shared_used = 0;
  uint32_t variable_count = 0;
  const void* keys[kMostVariables] = {};
  void* variables[kMostVariables] = {};
};

Scheduler::Scheduler(const Options& options)
    : options_(options),
      random_state_(options.seed * 0x9e3779b97f4a7c15ull + 1),
      remover_(&remover_entry, this, options.stack_bytes) {}

Scheduler::~Scheduler() {
  // Those that are stuck stay so; what they did is over.
  for (const std::unique_ptr<Block>& block : resident_) {
    for (const std::unique_ptr<Thread>& thread : block->threads) thread->fiber.join();
  }
}

SIMT_UNSEEN void Scheduler::remove(Work* work) {
  removed_ = work;
  release_tag(&removed_);
  own_.leave(remover_);
}

/// SplitMix64.
SIMT_UNSEEN uint64_t Scheduler::random() {
  uint64_t mixed = random_state_ += 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
  return mixed ^ mixed >> 31;
}

uint64_t Scheduler::launch(Grid grid) {
  std::shared_ptr<Work> work(new Work, [this](Work* old) { remove(old); });
  work->number = ++launches_;
  work->blocks_left = grid.blocks;
  work->grid = std::move(grid);
  std::list<std::shared_ptr<Work>>& stream = streams_[work->grid.stream];
  work->previous = stream.empty() ? previous_[work->grid.stream] : stream.back();
  if (work->previous != nullptr) work->previous_end_tag = &work->previous->end_tag;
  release_tag(&work->begin_tag);
  stream.push_back(std::move(work));
  return launches_;
}

bool Scheduler::finished(uint64_t grid) {
  for (const auto& [number, stream] : streams_) {
    for (const std::shared_ptr<Work>& work : stream) {
      if (work->number == grid) return false;
    }
  }
  const auto seen = std::find_if(unseen_.begin(), unseen_.end(),
                                 [grid](const std::shared_ptr<Work>& work) { return work->number == grid; });
  if (seen != unseen_.end()) {
    acquire_tag(&(*seen)->end_tag);
    unseen_.erase(seen);
  }
  return true;
}

/// Under the thread sanitizer a thread is used again only where the order of a stream makes an edge anyway.
uint64_t Scheduler::pool_key(const Block& block, uint32_t index) {
  if (!kThreadSanitizer) return 0;
  return (block.work->grid.stream << 32) ^ (uint64_t{block.index} << 16) ^ index;
}

std::unique_ptr<Scheduler::Thread> Scheduler::take_thread(Block& block, uint32_t index) {
  std::vector<std::unique_ptr<Thread>>& free = pool_[pool_key(block, index)];
  std::unique_ptr<Thread> thread;
  if (free.empty()) {
    thread = std::make_unique<Thread>(*this, options_.stack_bytes);
  } else {
    thread = std::move(free.back());
    free.pop_back();
    thread->fiber.restart();
  }
  thread->block = &block;
  thread->work = block.work.get();
  thread->index = index;
  thread->wish = Wish::kRun;
  thread->has_polled = false;
  thread->fenced = false;
  thread->stores = 0;
  std::fill(std::begin(thread->arrived_at), std::end(thread->arrived_at), 0);
  thread->alias_known = 0;
  thread->alias_used = 0;
  thread->alias_accesses = false;
  thread->alias_due = false;
  return thread;
}

void Scheduler::start_block(Work& work) {
  auto block = std::make_unique<Block>();
  block->work = streams_[work.grid.stream].front();
  block->index = work.next_block++;
  block->shared = std::make_unique<SharedMemory>(allocator_, options_.shared_bytes, &block->shared_tag);
  block->shared_bytes = block->shared->bytes();
  for (uint32_t i = 0; i < work.grid.threads; ++i) block->threads.push_back(take_thread(*block, i));
  resident_.push_back(std::move(block));
  most_resident_ = std::max(most_resident_, static_cast<uint32_t>(resident_.size()));
  ++moves_;
}

/// Fills the free slots; of the grids that wait for slots any may be next.
void Scheduler::admit() {
  while (resident_.size() < options_.block_slots) {
    std::vector<Work*> waiting;
    for (const auto& [number, stream] : streams_) {
      Work& work = *stream.front();
      if (work.next_block < work.grid.blocks) waiting.push_back(&work);
    }
    if (waiting.empty()) return;
    start_block(*waiting[random() % waiting.size()]);
  }
}

Turn Scheduler::turn() {
  Scheduler* const outer = std::exchange(active, this);
  admit();
  const uint64_t moves = moves_;
  bool passed_over = false;
  const size_t count = resident_.size();
  const size_t first = count == 0 ? 0 : random() % count;
  for (size_t i = 0; i < count; ++i) {
    Block& block = *resident_[(first + i) % count];
    if (random() % 32 == 0) block.laziness = static_cast<uint32_t>(random() % 4);
    if (!run_all_ && random() % 4 < block.laziness) {
      passed_over = true;
    } else {
      run_block(block);
    }
  }
  retire_blocks();
  active = outer;
  if (count == 0) return Turn::kIdle;
  run_all_ = moves_ == moves;
  return run_all_ && !passed_over ? Turn::kStuck : Turn::kMoved;
}

bool Scheduler::run(const std::function<bool()>& goes_on) {
  Turn last = turn();
  while (last == Turn::kMoved || (last == Turn::kStuck && goes_on && goes_on())) last = turn();
  for (const std::shared_ptr<Work>& work : unseen_) acquire_tag(&work->end_tag);
  unseen_.clear();
  return last == Turn::kIdle;
}

void Scheduler::run_block(Block& block) {
  const size_t count = block.threads.size();
  const size_t first = random() % count;
  for (size_t i = 0; i < count; ++i) {
    Thread& thread = *block.threads[(first + i) % count];
    if (thread.wish == Wish::kBarrier || thread.wish == Wish::kExit) continue;
    running_ = &thread;
    own_.leave(thread.fiber);
    running_ = nullptr;
    serve(thread);
  }
}

/// What a thread that came back wishes.
void Scheduler::serve(Thread& thread) {
  Block& block = *thread.block;
  if (thread.wish != Wish::kPoll || thread.bounded) ++moves_;
  if (thread.wish == Wish::kExit) ++block.gone;
  if (thread.wish == Wish::kBarrier || thread.wish == Wish::kArrive) arrive(thread);
  const uint32_t arrived = block.barriers[0].arrived;
  if (arrived > 0 && arrived + block.gone == block.threads.size()) open_barrier(block, 0);
}

/// Counts the thread at its barrier.
void Scheduler::arrive(Thread& thread) {
  Barrier& barrier = thread.block->barriers[thread.barrier];
  if (barrier.arrived > 0 && barrier.threads != thread.barrier_threads)
    fail("threads come to a barrier with different numbers of threads");
  barrier.threads = thread.barrier_threads;
  ++barrier.arrived;
  barrier.alias_known = std::max(barrier.alias_known, thread.alias_known);
  barrier.alias_accesses = barrier.alias_accesses || thread.alias_accesses;
  if (thread.alias_accesses) thread.alias_used = thread.alias_known;
  thread.alias_accesses = false;
  if (thread.wish == Wish::kArrive) thread.wish = Wish::kRun;
  if (barrier.arrived == barrier.threads) open_barrier(*thread.block, thread.barrier);
}

void Scheduler::open_barrier(Block& block, uint32_t number) {
  Barrier& barrier = block.barriers[number];
  ++barrier.generation;
  barrier.arrived = 0;
  for (const std::unique_ptr<Thread>& thread : block.threads) {
    if (thread->wish != Wish::kBarrier || thread->barrier != number) continue;
    thread->wish = Wish::kRun;
    thread->alias_known = std::max(thread->alias_known, barrier.alias_known);
    thread->alias_due = barrier.alias_accesses;
  }
  barrier.alias_accesses = false;
}

void Scheduler::retire_blocks() {
  for (size_t i = 0; i < resident_.size();) {
    Block& block = *resident_[i];
    if (block.gone < block.threads.size()) {
      ++i;
      continue;
    }
    for (std::unique_ptr<Thread>& thread : block.threads) {
      pool_[pool_key(block, thread->index)].push_back(std::move(thread));
    }
    const std::shared_ptr<Work> work = block.work;
    resident_.erase(resident_.begin() + static_cast<ptrdiff_t>(i));
    if (--work->blocks_left > 0) continue;
    const auto stream = streams_.find(work->grid.stream);
    stream->second.pop_front();
    if (stream->second.empty()) streams_.erase(stream);
    work->previous.reset();
    previous_[work->grid.stream] = work;
    unseen_.push_back(work);
  }
}

std::string Scheduler::report() const {
  std::string text;
  for (const std::unique_ptr<Block>& block : resident_) {
    std::map<std::string, uint32_t> waits;
    for (const std::unique_ptr<Thread>& thread : block->threads) {
      char line[160];
      if (thread->wish == Wish::kBarrier) {
        std::snprintf(line, sizeof line, "at barrier '%s'", thread->place);
      } else if (thread->has_polled) {
        std::snprintf(line, sizeof line, "polling for %s at %p", thread->place, thread->address);
      } else {
        std::snprintf(line, sizeof line, thread->wish == Wish::kExit ? "gone" : "running");
      }
      ++waits[line];
    }
    text += block->work->grid.name + ", block " + std::to_string(block->index) + ":";
    const char* separator = " ";
    for (const auto& [wait, count] : waits) {
      text += separator + std::to_string(count) + (count == 1 ? " thread " : " threads ") + wait;
      separator = ", ";
    }
    text += "\n";
  }
  for (const auto& [number, stream] : streams_) {
    const Grid& grid = stream.front()->grid;
    const uint32_t without = grid.blocks - stream.front()->next_block;
    if (without > 0) text += grid.name + ": " + std::to_string(without) + " blocks without a slot\n";
  }
  return text;
}

// ---- on the fibers ------------------------------------------------------------------------------

SIMT_UNSEEN void Scheduler::thread_entry(void* argument) {
  Thread& self = *static_cast<Thread*>(argument);
  Work& work = *self.work;
  acquire_tag(&work.begin_tag);
  acquire_tag(&self.block->shared_tag);
  if (work.previous_end_tag != nullptr) acquire_tag(work.previous_end_tag);
  work.grid.body();
  release_tag(&work.end_tag);
  release_tag(self.block->barriers[0].tag());
  self.wish = Wish::kExit;
  self.fiber.leave_for_good(self.scheduler.own_);
}

SIMT_UNSEEN void Scheduler::remover_entry(void* argument) {
  Scheduler& self = *static_cast<Scheduler*>(argument);
  for (;;) {
    acquire_tag(&self.removed_);
    acquire_tag(&self.removed_->end_tag);
    delete self.removed_;
    self.remover_.leave(self.own_);
  }
}

SIMT_UNSEEN Scheduler& Scheduler::of_this_thread() {
  return *active;
}
SIMT_UNSEEN uint32_t Scheduler::thread_index() const {
  return running_->index;
}
SIMT_UNSEEN uint32_t Scheduler::thread_count() const {
  return running_->work->grid.threads;
}
SIMT_UNSEEN uint32_t Scheduler::block_index() const {
  return running_->block->index;
}

SIMT_UNSEEN void Scheduler::wait_at_barrier(const char* place) {
  meet(0, 0, place, true);
}

SIMT_UNSEEN void Scheduler::meet(uint32_t number, uint32_t threads, const char* place, bool waits) {
  Thread& self = *running_;
  Barrier& barrier = self.block->barriers[number];
  char* const tag = barrier.tag();
  release_tag(tag);
  if (self.arrived_at[number] == barrier.generation + 1) fail("a thread comes to a barrier twice");
  self.arrived_at[number] = barrier.generation + 1;
  self.place = place;
  self.barrier = number;
  self.barrier_threads = threads;
  self.fenced = false;
  self.stores = 0;
  self.wish = waits ? Wish::kBarrier : Wish::kArrive;
  self.fiber.leave(own_);
  if (waits) acquire_tag(tag);
}

SIMT_UNSEEN void Scheduler::poll_failed(const char* what, const void* address, bool bounded) {
  Thread& self = *running_;
  self.place = what;
  self.address = address;
  self.bounded = bounded;
  self.has_polled = true;
  self.wish = Wish::kPoll;
  self.fiber.leave(own_);
}

SIMT_UNSEEN void Scheduler::wait_ended() {
  running_->has_polled = false;
  running_->wish = Wish::kRun;
  ++moves_;
}

SIMT_UNSEEN void Scheduler::fence_made() {
  running_->fenced = true;
}

SIMT_UNSEEN void Scheduler::fence_needed() {
  if (!running_->fenced) fail("a flag is stored without a fence");
  if (running_->alias_due) fail("a flag tells of accesses by a multicast address, without an alias fence");
}

SIMT_UNSEEN void Scheduler::fence_used_up() {
  running_->fenced = false;
  if (++running_->stores > kMostStores) fail("a thread stores without an end");
}

SIMT_UNSEEN void Scheduler::alias_fence_made() {
  running_->alias_known = ++running_->block->alias_fences;
  running_->alias_due = false;
}

SIMT_UNSEEN void Scheduler::alias_fence_needed() {
  if (running_->alias_known <= running_->alias_used)
    fail("an access by a multicast address without an alias fence");
  running_->alias_accesses = true;
}

SIMT_UNSEEN void Scheduler::word_stored() {
  running_->block->word_tells_accesses = running_->alias_due;
}

SIMT_UNSEEN void Scheduler::word_loaded() {
  running_->alias_due = running_->block->word_tells_accesses;
}

SIMT_UNSEEN void Scheduler::preempt() {
  if (options_.preemption_period == 0 || random() % options_.preemption_period != 0) return;
  Thread& self = *running_;
  self.wish = Wish::kPreempt;
  self.fiber.leave(own_);
}

SIMT_UNSEEN void* Scheduler::shared_variable(const void* key, size_t bytes) {
  constexpr size_t kAlignment = 16;
  Block& block = *running_->block;
  for (uint32_t i = 0; i < block.variable_count; ++i) {
    if (block.keys[i] == key) return block.variables[i];
  }
  std::byte* const variable = block.shared_bytes + block.shared_used;
  block.shared_used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (block.shared_used > options_.shared_bytes || block.variable_count == Block::kMostVariables)
    std::abort();
  block.keys[block.variable_count] = key;
  block.variables[block.variable_count++] = variable;
  return variable;
}

}  // namespace tutti::simt
