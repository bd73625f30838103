// CudaRank, CudaDevices: implement device_rank.h with CUDA, over the driver's interface (cuda/driver.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "device/device_memory.h"
#include "device/device_rank.h"
#include "device/link_layout.h"
#include "device/registered_memory_table.h"
#include "engine/cuda/bind.h"
#include "engine/cuda/program.h"
#include "transports/p2p/device_memory.h"
#include "transports/p2p/multicast_memory.h"

namespace tutti {

/// Under MPS, processes run on a device at the same time. Of its `total` blocks those for the `on_device`
/// ranks that are not `here`.
constexpr uint32_t blocks_of_others(uint32_t total, uint32_t on_device, uint32_t here) {
  return total - total * here / on_device;
}

/// Lends out blocks of a device, which ranks of this process may keep busy while they wait. A launch without
/// lent blocks leaves the device and comes back.
class BlockLender {
 public:
  explicit BlockLender(uint32_t blocks) : total_(blocks), left_(blocks) {}
  uint32_t total() const { return total_; }
  uint32_t left() const { return left_.load(std::memory_order_relaxed); }
  /// At most a third of what is left, a power of two: later communicators of the process get blocks, too.
  uint32_t modest_share() const { return std::max(1u, std::bit_floor(left() / 3)); }
  /// Lends as many of `wanted` blocks as there are, at most 8 if not all, in powers of two. `others`: blocks
  /// that are left to other processes. Any thread.
  uint32_t lend_some(uint32_t wanted, uint32_t others = 0) {
    if (lend(wanted, others)) return wanted;
    for (const uint32_t fewer : {8u, 4u, 2u, 1u}) {
      if (fewer < wanted && lend(fewer, others)) return fewer;
    }
    return 0;
  }
  /// Lends all or none. Any thread.
  bool lend(uint32_t blocks, uint32_t others = 0) {
    uint32_t left = left_.load(std::memory_order_relaxed);
    while (blocks + others <= left) {
      if (left_.compare_exchange_weak(left, left - blocks, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give_back(uint32_t blocks) { left_.fetch_add(blocks, std::memory_order_relaxed); }

 private:
  const uint32_t total_;
  std::atomic<uint32_t> left_;
};

/// A device, opened by its first rank and never closed: context and kernels.
struct OpenDevice {
  std::unique_ptr<cuda::Context> context;
  cuda::Library library;
  cuda::Kernel run;
  cuda::Kernel run_short;
  Status kernels;         ///< an error: the driver does not run the kernels; copies may still work
  int architecture = 0;   ///< for which the kernels were compiled
  uint32_t resident = 0;  ///< blocks that the device holds at once, of either kernel
  std::unique_ptr<BlockLender> lender;
};

/// The memory of a rank's links. Peers share ownership, because they still read the links of a rank that has
/// gone.
struct DeviceLinks {
  SharedDeviceMemory memory;  ///< if the rank is in this process
  PeerDeviceMemory mapped;    ///< if the rank is in another process
  MulticastMemory multicast;  ///< if the rank is in this process and the communicator has multicast memory

  std::byte* base() const {
    auto* const own = memory.as<std::byte>();
    return own != nullptr ? own : mapped.as<std::byte>();
  }
  /// The rank's exposed buffer, at the beginning of the memory; device memory holds no other SegmentHeader.
  ExposedBuffer* exposed_buffer() const { return reinterpret_cast<ExposedBuffer*>(base()); }
};

struct ConnectedPeer {
  std::shared_ptr<DeviceLinks> links;
  uint32_t same_memory = 0;  ///< 1: one process and device: each loads from any address of the other
};

class CudaRank;

class CudaDevices final : public Devices {
 public:
  CudaDevices(std::unique_ptr<const cuda::Driver> driver, uint32_t queues, bool yields)
      : driver_(std::move(driver)), queues_(queues), yields_(yields) {}
  /// Queues of a device, among which the driver spreads the process's streams.
  uint32_t queues() const { return queues_; }
  /// Whether launches may leave a device to other processes.
  bool yields() const { return yields_; }
  Result<std::unique_ptr<DeviceRank>> open_rank(int device, uint32_t rank, uint32_t rank_count) override;
  Result<std::unique_ptr<StagingDevice>> open_staging(int device, uint32_t rank) override;
  Status launch(std::span<const DeviceOperation> operations) override;
  Result<void*> allocate(int device, uint64_t bytes) override;
  bool free(void* memory) override;
  Status check_host_pointer(std::string_view name, const void* address) const override;
  void keep_for_good(std::unique_ptr<DeviceRank> rank) override;
  bool is_device_memory(const void* address) const override {
    return driver_->look_up(address).kind == cuda::MemoryKind::kDevice;
  }

  void add_links(uint64_t key, const std::shared_ptr<DeviceLinks>& links) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(links_, [](const auto& entry) { return entry.second.expired(); });
    links_[key] = links;
  }
  std::shared_ptr<DeviceLinks> find_links(uint64_t key) {
    const std::scoped_lock lock(mutex_);
    const auto found = links_.find(key);
    return found == links_.end() ? nullptr : found->second.lock();
  }

 private:
  Result<const OpenDevice*> open(int device);
  static Status load_kernels(OpenDevice& device);

  std::unique_ptr<const cuda::Driver> driver_;
  const uint32_t queues_;
  const bool yields_;
  static bool can_stay(const CudaRank& lead, std::span<const DeviceOperation> operations);
  static Status queue_parts(std::span<const DeviceOperation> operations);

  std::mutex together_;  ///< held by a thread while it takes the locks of several ranks
  std::mutex mutex_;     ///< guards the fields below
  std::map<int, OpenDevice> open_;
  std::vector<std::unique_ptr<DeviceRank>> kept_;
  std::map<uint64_t, std::weak_ptr<DeviceLinks>> links_;
  std::map<void*, SharedDeviceMemory> allocations_;
};

struct CudaProgram final : DeviceProgram {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint32_t threads = 0;   ///< of a block
  bool captured = false;  ///< a graph may hold the program
  bool retired = false;   ///< no owner is left: the memory may be reused
};

/// An operation that is being queued.
struct PendingOperation {
  CudaProgram* program = nullptr;
  DeviceBuffers buffers;
  CUstream stream = nullptr;
  std::optional<uint64_t> capture;  ///< of the stream
  bool meets_all = false;
  bool is_launched = false;
  bool stays = false;
};

struct SharedLaunch {
  cuda::Launch launch{};
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint32_t borrowed = 0;     ///< lent blocks of the launch's ranks
  bool takes_turns = false;  ///< a part has fewer blocks than lanes
  std::array<CudaRank*, cuda::kMaxParts> ranks{};
};

class CudaRank final : public DeviceRank, private cuda::LinkIndex {
 public:
  CudaRank(CudaDevices& devices, const OpenDevice& device, uint32_t rank, uint32_t rank_count)
      : devices_(devices),
        device_(device),
        context_(*device.context),
        rank_(rank),
        rank_count_(rank_count),
        shape_(DeviceShape::of(rank_count)),
        layout_(rank_count, shape_),
        memory_(context_),
        registrations_(context_) {}
  ~CudaRank() override { give_blocks_back(); }

  /// No launch of the rank may still hold blocks for long.
  void give_blocks_back() { device_.lender->give_back(std::exchange(borrowed_, 0)); }
  bool is_aborted() const;

  Status open();
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceShape& shape() const override { return shape_; }
  int file() const override { return identity_.has_file != 0 ? links_->memory.file().get() : -1; }
  Status connect(std::span<const DevicePeer> ranks) override;
  int multicast_file() const override {
    if (links_ == nullptr) return -1;  // no kernels
    const FileDescriptor& file = links_->multicast.file();
    return file.is_open() ? file.get() : -1;
  }
  Status add_to_multicast(const FileDescriptor* file) override;
  Status bind_multicast() override;
  void drop_multicast() override { links_->multicast.reset(); }
  Result<DeviceProgramHold> bind(const Plan& plan, std::span<const Geometry> stripes, uint32_t channels,
                                 const BindOptions& options, DeviceMark mark) override;
  Result<DeviceProgramHold> bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                       const BindOptions& options, DeviceMark mark) override;
  Result<DeviceProgramHold> bind_messages(const BindOptions& options, DeviceMark mark) override;
  void retire(DeviceProgram* program) override;
  Status copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) override;
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later) override;
  Result<bool> is_done() override;
  DeviceBuffers barrier_buffers() const override {
    return {.input = barrier_, .output = barrier_ + kLineBytes, .scale = nullptr};
  }
  Result<std::byte*> shared_scratch(uint64_t bytes) override { return memory_.shared_scratch(bytes); }
  Status check_pointer(std::string_view name, const void* address) const override;
  bool has_peer(const DeviceRank& other) const override;
  uint32_t registration_end() const override { return cuda::kRegisteredEnd; }
  Result<OwnRegistration> offer_registration(const void* address, uint64_t bytes) const override;
  Status open_registration(uint32_t number, std::span<const RegistrationOffer> offers,
                           std::span<const FileDescriptor> files) override;
  void close_registration(uint32_t number) override;
  DeviceSnapshot look() override;
  Status relaunch() override;
  void give_up() override;
  void abort() override;
  bool has_stopped() override;

  // One operation, step by step, for CudaDevices::launch:

  /// Locks and clears the previous operation.
  void lock() {
    issuing_.lock();
    pending_ = {};
  }
  void unlock() { issuing_.unlock(); }
  /// Finds the stream. `first`: the first rank of those launched together. Changes nothing.
  Status find(const DeviceOperation& operation, const CudaRank& first);
  /// Makes the stream wait for the rank's earlier operations; in a capture, for those of the same capture.
  /// The stream that launches the graph orders the rest.
  Status order() const;
  bool was_launched() const override { return pending_.is_launched; }
  bool has_begun() const override { return pending_.is_launched && !pending_.capture; }
  bool has_room() const { return blocks_ > 0 && (pending_.program->lanes <= blocks_ || takes_turns_); }
  bool shares_device(const CudaRank& other) const { return &device_ == &other.device_; }
  uint32_t part_blocks(const SharedLaunch& shared) const {
    const uint32_t lanes = pending_.program->lanes;
    return shared.launch.stays != 0 ? std::min(lanes, blocks_) : lanes;
  }
  /// Polls of a launch that does not stay.
  uint64_t polls() const;
  void count_into(SharedLaunch& shared) const;
  bool can_join(const CudaRank& lead, const SharedLaunch& shared) const;
  Status join(const CudaRank& lead, SharedLaunch& shared);
  Status queue(SharedLaunch& shared);
  Status end();

 private:
  /// Links have fixed indices from the start.
  uint32_t send(uint32_t peer, cuda::LinkName name) override {
    return layout_.link_index(peer, layout_.ring_of(name, channels_));
  }
  uint32_t receive(uint32_t peer, cuda::LinkName name) override { return send(peer, name); }
  uint32_t send_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    return layout_.link_count() + layout_.multicast_link(peer, stripe, use);
  }
  uint32_t receive_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    return send_multicast(peer, stripe, use);
  }
  cuda::PeerExposedBuffer exposed_buffer(uint32_t peer) override {
    return {.buffer = peers_[peer].links->exposed_buffer(), .registered = registrations_.table(peer)};
  }
  uint64_t find_location(const void* address, uint64_t bytes) override {
    const Reach reach = registrations_.find(address);
    return bytes <= reach.bytes ? reach.location : 0;
  }

  Status borrow_blocks(std::span<const DevicePeer> ranks);
  Status connect_peer(uint32_t peer, const DevicePeer& theirs);
  uint64_t mailbox(uint32_t owner, uint32_t writer) const {
    return reinterpret_cast<uint64_t>(peers_[owner].links->base()) + layout_.mailbox_at(writer);
  }
  std::vector<RegistrationPath> ways_to(std::span<const DevicePeer> ranks) const;
  void offer_multicast();
  std::byte* multicast_ring(uint32_t owner, uint32_t reader, uint32_t stripe, cuda::Multicast use) const;
  cuda::SendLink make_send(uint32_t peer, uint32_t ring) const;
  cuda::RecvLink make_receive(uint32_t peer, uint32_t ring) const;
  cuda::SendLink multicast_send(uint32_t peer, uint32_t stripe, cuda::Multicast use) const;
  cuda::RecvLink multicast_receive(uint32_t peer, uint32_t stripe, cuda::Multicast use) const;
  std::vector<cuda::SendLink> make_sends() const;
  std::vector<cuda::RecvLink> make_receives() const;
  Result<DeviceProgramHold> install(const cuda::Image& image, DeviceMark mark);
  const cuda::Kernel& kernel(const CudaProgram& program) const {
    return program.by_packets ? device_.run_short : device_.run;
  }
  const cuda::Event& mark() const { return pending_.capture ? capture_event_ : issued_event_; }
  Status leave_mark();
  void note_launch(bool stays);
  bool is_running(uint64_t ended);
  Result<bool> has_ended() const;
  const Status& check_device();
  Status free_retired();
  uint64_t queued_ns() const;
  void release_stream();
  const cuda::Driver& driver() const { return context_.driver(); }

  CudaDevices& devices_;
  const OpenDevice& device_;
  const cuda::Context& context_;
  const uint32_t rank_;
  const uint32_t rank_count_;
  const DeviceShape shape_;
  const LinkLayout layout_;
  DeviceIdentity identity_;
  uint32_t blocks_ = 0;  ///< that launches may keep while they wait; 0: launches leave
  uint32_t borrowed_ = 0;
  uint32_t channels_ = 1;     ///< of the plan that is being bound
  bool takes_turns_ = false;  ///< lanes may take turns on fewer blocks; then the rank shares no launch
  uint32_t others_ = 0;       ///< blocks that are left to other processes
  bool yields_ = false;       ///< launches soon leave the device to other processes

  DeviceHeap memory_;  ///< programs and scratch
  RegisteredMemoryTable registrations_;
  cuda::DeviceMemory tables_;  ///< RankState, then the links' sending and receiving ends
  cuda::PinnedMemory signals_memory_;
  cuda::Signals* signals_ = nullptr;
  cuda::RankState* state_ = nullptr;
  cuda::SendLink* sends_ = nullptr;
  cuda::RecvLink* receives_ = nullptr;
  std::byte* barrier_ = nullptr;
  std::shared_ptr<DeviceLinks> links_;
  std::vector<ConnectedPeer> peers_;  ///< by rank
  cuda::Stream blocking_;
  cuda::Stream relaunch_;
  cuda::Event relaunch_begins_;  ///< before the last relaunch in its stream

  // The RelaunchThread never takes this lock: a launch into a full stream may wait for work that only a
  // relaunch ends.
  std::mutex issuing_;  ///< guards the fields below: calls
  PendingOperation pending_;
  CUstream last_stream_ = nullptr;
  CUstream capture_stream_ = nullptr;
  std::optional<uint64_t> capture_id_;
  cuda::Event streams_event_;

  std::mutex mutex_;  ///< guards the fields below: calls and the RelaunchThread
  std::map<uint64_t, std::shared_ptr<CudaProgram>> programs_;  ///< by address on the device
  bool has_retired_ = false;                                   ///< some programs may be retired
  cuda::Event issued_event_;
  uint64_t marks_ = 0;    ///< recordings of issued_event_
  uint64_t settled_ = 0;  ///< marks_ when all operations had ended
  std::shared_ptr<const CudaProgram> last_program_;
  uint64_t issued_ = 0;        ///< operations outside captures
  cuda::Event capture_event_;  ///< last operation of the last capture
  bool captured_any_ = false;
  uint64_t given_up_ = 0;         ///< operations whose relaunch failed, or never began
  uint64_t given_up_left_ = 0;    ///< Signals::left of the last one that never began
  uint64_t relaunched_left_ = 0;  ///< Signals::left at the last relaunch
  uint64_t relaunched_ns_ = 0;    ///< when it was; 0: it failed
  uint64_t seen_moved_ = 0;
  uint64_t seen_ended_ = 0;
  uint64_t seen_left_ = 0;
  uint64_t moved_ns_ = 0;
  uint64_t left_ns_ = 0;       ///< when seen_left_ was first seen
  Status health_;              ///< of the device, when it was last asked
  uint64_t asked_ns_ = 0;      ///< when it was
  bool is_barred_ = false;     ///< `abort` has told the device
  bool bar_has_come_ = false;  ///< ... and the device knows: launches that begin now leave at once
};

}  // namespace tutti
