#include "tests/cuda/driver/device.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/cuda/device.h"
#include "tests/cuda/driver/streams.h"

namespace fake_cuda {
namespace {

/// Turns that moved nothing before the thread sleeps a little between them: what it waits for may come from
/// another process, of which nobody tells it.
constexpr int kTurnsBeforeSleep = 64;
constexpr auto kSleep = std::chrono::microseconds(50);
/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older toolkits do not name.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);

template <class T>
T load(uintptr_t address) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(address)).load(std::memory_order_acquire);
}

/// Whether the word at the task's address satisfies it.
template <class T, class Signed>
bool satisfied(const ValueTask& task) {
  const T found = load<T>(task.address);
  const T wanted = static_cast<T>(task.value);
  switch (task.flags & 0xF) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND: return (found & wanted) != 0;
    default: return static_cast<T>(~(found | wanted)) != 0;
  }
}

bool finish_value(const ValueTask& task) {
  if (task.waits)
    return task.bytes == 4 ? satisfied<uint32_t, int32_t>(task) : satisfied<uint64_t, int64_t>(task);
  if (task.bytes == 4) {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(task.address))
        .store(static_cast<uint32_t>(task.value), std::memory_order_release);
  } else {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(task.address))
        .store(task.value, std::memory_order_release);
  }
  return true;
}

void copy(const CopyTask& task) {
  const auto* source =
      task.staged.empty() ? reinterpret_cast<const unsigned char*>(task.source) : task.staged.data();
  auto* target = reinterpret_cast<unsigned char*>(task.target);
  for (size_t slice = 0; slice < task.slices; ++slice) {
    for (size_t row = 0; row < task.rows; ++row) {
      std::memmove(target + slice * task.target_slice + row * task.target_pitch,
                   source + slice * task.source_slice + row * task.source_pitch, task.bytes);
    }
  }
  // The same whatever was sent, so that crossing twice does not heal it.
  if (task.corrupt && task.bytes > 0) target[task.bytes - 1] = 0xDB;
}

void fill(const FillTask& task) {
  for (size_t row = 0; row < task.rows; ++row) {
    auto* at = reinterpret_cast<unsigned char*>(task.target + row * task.pitch);
    // By far the most bytes are cleared one by one.
    if (task.value_bytes == 1) {
      std::memset(at, static_cast<int>(task.value), task.bytes);
      continue;
    }
    for (size_t i = 0; i < task.bytes; i += task.value_bytes)
      std::memcpy(at + i, &task.value, task.value_bytes);
  }
}

/// What each of the scheduler's threads runs; a block of PTX is one thread to it.
void run_kernel(const KernelTask& task) {
  if (task.kernel != nullptr) {
    task.kernel->run(task.argument.data());
    return;
  }
  ptx::GridFacts grid = task.grid;
  grid.parameters = task.argument.data();
  ptx::run_block(grid, simulator::block_index(), [](bool /*moved*/) {
    simulator::poll_failed("its turn", nullptr, true);
    simulator::wait_ended();
  });
}

std::string name_of(const KernelTask& task) {
  return task.kernel != nullptr ? task.kernel->name : task.grid.entry->name;
}

}  // namespace

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

Device::Device(CUdevice ordinal, int number) : ordinal_(ordinal), number_(number) {
  context_.device = this;
}

Device::~Device() = default;

std::string Device::name() const {
  return "Fake GPU " + std::to_string(number_);
}

CUuuid Device::uuid() const {
  CUuuid uuid{};
  std::snprintf(uuid.bytes, sizeof(uuid.bytes), "fake-gpu-%d", number_);
  return uuid;
}

std::string Device::pci_bus_id() const {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "0000:%02X:00.0", number_ + 1);
  return text.data();
}

int Device::attribute(CUdevice_attribute which) const {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return settings().multiprocessors;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return settings().capability / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return settings().capability % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return settings().no_files ? 0 : 1;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: return settings().multicast ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: return settings().dma_buf ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
      return CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      return settings().writes_ordered ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
                                       : CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
    case kMpsEnabled: return settings().mps ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1 << 10;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 64;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 1;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 1 << 18;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return number_ + 1;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: return settings().cooperative_blocks > 0 ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: return 1;
    default: return 0;
  }
}

bool Device::reaches(int other) const {
  return other == number_ || !holds(settings().no_peer, number_, other);
}

void Device::remove_stream(Stream* stream) {
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream), streams_.end());
}

void Device::enqueue(Stream& stream, std::shared_ptr<Work> work) {
  work->stream = stream.id;
  work->order = ++work_count_;
  work->states.assign(work->nodes->size(), Work::State::kPending);
  work->grids.assign(work->nodes->size(), 0);
  stream.queue.push_back(std::move(work));
  stream.last = stream.queue.back()->token;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wake_.notify_one();
}

void Device::wait_idle(Guard& guard) {
  machine().changed.wait(guard, [&] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const Stream* stream) { return stream->queue.empty(); });
  });
}

void Device::stop(Guard& guard) {
  stopping_ = true;
  wake_.notify_one();
  if (!thread_.joinable()) return;
  guard.unlock();
  thread_.join();
  guard.lock();
}

ProcessTurn::~ProcessTurn() {
  if (file_ >= 0) ::close(file_);
}

bool ProcessTurn::take() {
  if (settings().turns.empty() || is_held_) return true;
  if (file_ < 0) file_ = ::open(settings().turns.c_str(), O_RDWR | O_CLOEXEC);
  // A process that relaunches at once must not take every turn: the others only look now and then.
  constexpr uint64_t kOthersFirstNs = 10'000'000;
  pid_t last = 0;
  const bool had_last = ::pread(file_, &last, sizeof(last), 0) == sizeof(last) && last == getpid();
  if (had_last && now_ns() < ended_ns_ + kOthersFirstNs) return false;
  is_held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (is_held_) {
    last = getpid();
    static_cast<void>(!::pwrite(file_, &last, sizeof(last), 0));
  }
  return is_held_;
}

void ProcessTurn::end() {
  if (!std::exchange(is_held_, false)) return;
  ended_ns_ = now_ns();
  ::flock(file_, LOCK_UN);
}

void Device::run() {
  const auto slots = static_cast<uint32_t>(settings().multiprocessors * settings().blocks_per_multiprocessor);
  scheduler_ = std::make_unique<tutti::simt::Scheduler>(
      tutti::simt::Options{.block_slots = slots, .seed = settings().seed + static_cast<uint64_t>(number_)});
  Guard guard(machine().lock);
  int still = 0;
  while (!stopping_) {
    bool moved = look_at_streams(guard);
    if (grids_running_ == 0) turn_.end();
    if (grids_running_ > 0 && turn_.take()) {
      let_in_kernels();
      guard.unlock();
      moved |= scheduler_->turn() == tutti::simt::Turn::kMoved;
      machine().memory.let_in_everywhere(true);
      guard.lock();
    }
    still = moved ? 0 : still + 1;
    const bool idle = std::all_of(streams_.begin(), streams_.end(),
                                  [](const Stream* stream) { return stream->queue.empty(); });
    if (idle) {
      wake_.wait(guard);
    } else if (still > kTurnsBeforeSleep) {
      wake_.wait_for(guard, kSleep);
    } else if (!moved) {
      guard.unlock();
      sched_yield();
      guard.lock();
    }
  }
  scheduler_.reset();
}

/// Kernels touch memory of their device, and of those that it has been given access to.
void Device::let_in_kernels() {
  std::vector<int> devices = {number_};
  for (const auto& [from, to] : machine().peers) {
    if (from == this) devices.push_back(to->number());
  }
  machine().memory.let_in(devices);
}

/// True when something has started or ended.
bool Device::look_at_streams(Guard& guard) {
  bool moved = false;
  machine().memory.let_in_everywhere(true);
  // Streams may be made, and go, while the lock is open.
  const std::vector<Stream*> streams = streams_;
  for (Stream* stream : streams) {
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end() || stream->queue.empty())
      continue;
    const std::shared_ptr<Work> work = stream->queue.front();
    if (is_held_up(*work)) continue;
    moved |= snapshot_of(*work, guard);
    const bool ended = std::all_of(work->states.begin(), work->states.end(),
                                   [](Work::State state) { return state == Work::State::kDone; });
    if (!ended) continue;
    moved = true;
    work->token->done = true;
    work->token->done_ns = now_ns();
    stream->queue.pop_front();
    if (stream->destroyed && stream->queue.empty()) {
      remove_stream(stream);
      machine().streams.remove(stream);
    }
    machine().changed.notify_all();
  }
  return moved;
}

/// Whether something that was given to the same queue earlier has not begun.
bool Device::is_held_up(const Work& work) const {
  const uint64_t queues = settings().connections;
  if (queues == UINT64_MAX) return false;
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream* stream) {
    return stream->id % queues == work.stream % queues &&
           std::any_of(stream->queue.begin(), stream->queue.end(), [&](const std::shared_ptr<Work>& other) {
             return other->order < work.order && std::find(other->states.begin(), other->states.end(),
                                                           Work::State::kPending) != other->states.end();
           });
  });
}

bool Device::snapshot_of(Work& work, Guard& guard) {
  const auto is_done = [](const TokenPointer& token) { return token->done; };
  if (!std::all_of(work.waits.begin(), work.waits.end(), is_done)) return false;
  bool moved = false;
  const Nodes& nodes = *work.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Work::State& state = work.states[i];
    if (state == Work::State::kDone) continue;
    const auto& needs = nodes[i].dependencies;
    const bool ready = std::all_of(needs.begin(), needs.end(),
                                   [&](size_t need) { return work.states[need] == Work::State::kDone; });
    const Work::State before = state;
    if (ready && start(nodes[i], work, i, guard)) state = Work::State::kDone;
    moved |= state != before;
    if (state != Work::State::kDone && settings().serial_graphs) break;
  }
  return moved;
}

/// Begins the node, or looks at it again; true when it has ended.
bool Device::start(const Node& node, Work& work, size_t index, Guard& guard) {
  if (const auto* value = std::get_if<ValueTask>(&node.task)) return finish_value(*value);
  if (const auto* kernel = std::get_if<KernelTask>(&node.task)) {
    if (work.states[index] == Work::State::kPending) {
      // Branches of a graph have an order of their own for each kernel.
      const uint64_t order = work.nodes->size() == 1 ? work.stream : (work.stream << 16) + index + 1;
      const auto run = [kernel] { run_kernel(*kernel); };
      work.grids[index] = scheduler_->launch({.name = name_of(*kernel),
                                              .stream = order,
                                              .blocks = kernel->blocks,
                                              .threads = kernel->threads,
                                              .body = run});
      work.states[index] = Work::State::kRunning;
      ++grids_running_;
    }
    if (!scheduler_->finished(work.grids[index])) return false;
    --grids_running_;
    return true;
  }
  if (const auto* task = std::get_if<FreeTask>(&node.task)) {
    Range* range = machine().memory.find_base(task->address, {Origin::kPool});
    if (range != nullptr) machine().memory.release(*range);
    return true;
  }
  guard.unlock();
  if (const auto* task = std::get_if<CopyTask>(&node.task)) copy(*task);
  if (const auto* task = std::get_if<FillTask>(&node.task)) fill(*task);
  if (const auto* task = std::get_if<HostTask>(&node.task)) {
    machine().memory.let_in_everywhere(false);
    run_host_function(*task);
    machine().memory.let_in_everywhere(true);
  }
  guard.lock();
  return true;
}

}  // namespace fake_cuda
