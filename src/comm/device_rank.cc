// Ranks on CUDA devices, over the driver's interface (cuda/driver.h).
#include "comm/device_rank.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "comm/device_arguments.h"
#include "comm/device_memory.h"
#include "comm/staging_device.h"
#include "core/clock.h"
#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "engine/cuda/bind.h"
#include "engine/cuda/kernels.h"
#include "engine/cuda/program.h"
#include "engine/links.h"
#include "transports/p2p/device_memory.h"
#include "transports/shm/segment.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::Context;
using cuda::CurrentContext;

// A lane that was not ready so many times in a row gives its place on the device to others: about a
// millisecond, so that ranks which all have their place seldom leave.
constexpr uint64_t kPolls = 1000;

/// A device of this process, opened by its first rank, for good: its context and kernels.
struct OpenDevice {
  std::unique_ptr<Context> context;
  cuda::Library library;
  cuda::Kernel run;
  cuda::Kernel run_short;
};

/// The memory of a rank's links. Its peers hold it too: a rank that has gone is still read.
struct DeviceLinks {
  SharedDeviceMemory memory;  ///< of a rank of this process
  PeerDeviceMemory mapped;    ///< of one of another process

  std::byte* base() const {
    auto* const own = memory.as<std::byte>();
    return own != nullptr ? own : mapped.as<std::byte>();
  }
};

/// A rank as this one sees it.
struct ConnectedPeer {
  std::shared_ptr<DeviceLinks> links;
  uint32_t same_memory = 0;  ///< 1: each can load from any address of the other's: one process, one device
};

class CudaDevices final : public Devices {
 public:
  explicit CudaDevices(std::unique_ptr<const cuda::Driver> driver) : driver_(std::move(driver)) {}
  Result<std::unique_ptr<DeviceRank>> open_rank(int device, uint32_t rank, uint32_t rank_count) override;
  Result<std::unique_ptr<StagingDevice>> open_staging(int device, uint32_t rank) override;
  Status check_host_pointer(std::string_view name, const void* address) const override;
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

  std::unique_ptr<const cuda::Driver> driver_;
  std::mutex mutex_;
  std::map<int, OpenDevice> open_;
  std::map<uint64_t, std::weak_ptr<DeviceLinks>> links_;
};

struct CudaProgram final : DeviceProgram {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint32_t threads = 0;   ///< of a block
  bool captured = false;  ///< a graph may hold it
};

/// A word that the device writes.
template <class T>
T load(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_acquire);
}

class CudaRank final : public DeviceRank, private cuda::LinkIndex {
 public:
  CudaRank(CudaDevices& devices, const OpenDevice& device, uint32_t rank, uint32_t rank_count)
      : devices_(devices),
        device_(device),
        context_(*device.context),
        rank_(rank),
        rank_count_(rank_count),
        shape_(DeviceShape::of(rank_count)),
        memory_(context_) {}

  Status open();
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceShape& shape() const override { return shape_; }
  int file() const override { return identity_.has_file != 0 ? links_->memory.file().get() : -1; }
  Status connect(std::span<const DevicePeer> ranks) override;
  Result<DeviceProgramHold> bind(const Plan& plan, std::span<const Geometry> stripes,
                                 const BindOptions& options, DeviceMark mark) override;
  Result<DeviceProgramHold> bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                       const BindOptions& options, DeviceMark mark) override;
  Result<DeviceProgramHold> bind_messages(const BindOptions& options, DeviceMark mark) override;
  void retire(DeviceProgram* program) override;
  Status launch(DeviceProgram& program, const DeviceBuffers& buffers, DeviceStream stream) override;
  Status copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) override;
  Result<bool> is_done() override;
  DeviceBuffers barrier_buffers() const override {
    return {.input = barrier_, .output = barrier_ + kLineBytes, .scale = nullptr};
  }
  Result<std::byte*> shared_scratch(uint64_t bytes) override { return memory_.shared_scratch(bytes); }
  Status check_pointer(std::string_view name, const void* address) const override;
  DeviceLook look() override;
  Status relaunch() override;
  void abort() override;

 private:
  /// Links of the rank's own, to or from `peer` on `channel`: all have their places from the start.
  uint32_t send(uint32_t peer, uint32_t channel) override { return channel * rank_count_ + peer; }
  uint32_t receive(uint32_t peer, uint32_t channel) override { return channel * rank_count_ + peer; }
  cuda::PeerWindow window(uint32_t peer) override {
    return {.window = reinterpret_cast<const cuda::Window*>(peers_[peer].links->base()),
            .reference_offset = 0,
            .same_process = peers_[peer].same_memory};
  }

  Status connect_peer(uint32_t peer, const DevicePeer& theirs);
  uint32_t link_count() const { return channels_of_stripes(shape_.stripes) * rank_count_; }
  SegmentShape ring_shape() const {
    return {.rank_count = rank_count_,
            .published = 0,
            .channels = channels_of_stripes(shape_.stripes),
            .slots = shape_.slots,
            .slot_bytes = shape_.slot_bytes};
  }
  /// Behind the rings of a rank's memory its mailboxes, by who writes there.
  size_t links_bytes() const {
    const size_t mail = shape_.short_bytes > 0 ? size_t{rank_count_} * cuda::kMailboxBytes : 0;
    return (rank_count_ > 1 ? ring_shape().bytes() : ring_shape().header_bytes()) + mail;
  }
  uint64_t mailbox(uint32_t owner, uint32_t writer) const {
    return reinterpret_cast<uint64_t>(peers_[owner].links->base()) + ring_shape().bytes() +
           uint64_t{writer} * cuda::kMailboxBytes;
  }
  std::vector<cuda::SendLink> make_sends() const;
  std::vector<cuda::RecvLink> make_receives() const;
  Result<DeviceProgramHold> place(const cuda::Image& image, DeviceMark mark);
  Result<CUstream> find_stream(DeviceStream stream) const;
  Status run(const CudaProgram& program, const cuda::Launch& launch, CUstream stream) const;
  Status order(CUstream stream, bool& captured);
  Status leave_mark(CUstream stream, bool captured);
  Result<bool> has_ended() const;
  Status free_retired();
  const cuda::Driver& driver() const { return context_.driver(); }

  CudaDevices& devices_;
  const OpenDevice& device_;
  const Context& context_;
  const uint32_t rank_;
  const uint32_t rank_count_;
  const DeviceShape shape_;
  DeviceIdentity identity_;

  DeviceHeap memory_;          ///< programs and scratch
  cuda::DeviceMemory tables_;  ///< RankState, then the sending and the receiving ends of links
  cuda::PinnedMemory signals_memory_;
  cuda::Signals* signals_ = nullptr;
  cuda::RankState* state_ = nullptr;
  cuda::SendLink* sends_ = nullptr;
  cuda::RecvLink* receives_ = nullptr;
  std::byte* barrier_ = nullptr;
  std::shared_ptr<DeviceLinks> links_;
  std::vector<ConnectedPeer> peers_;  ///< by rank
  cuda::Stream blocking_;             ///< of calls without a stream
  cuda::Stream relaunch_;

  std::mutex mutex_;                                           ///< guards what follows: calls and the tender
  std::map<uint64_t, std::unique_ptr<CudaProgram>> programs_;  ///< by address on the device
  std::vector<CudaProgram*> retired_;
  cuda::Event issued_event_;  ///< the last operation, outside captures
  bool has_mark_ = false;
  CUstream last_stream_ = nullptr;
  const CudaProgram* last_program_ = nullptr;
  uint64_t issued_ = 0;        ///< operations outside captures
  cuda::Event capture_event_;  ///< the last operation of the last capture
  CUstream capture_stream_ = nullptr;
  uint64_t capture_id_ = 0;
  bool captured_any_ = false;
  uint64_t given_up_ = 0;         ///< operations that could not be launched again
  uint64_t relaunched_left_ = 0;  ///< Signals::left that was answered by a relaunch
  uint64_t seen_moved_ = 0;
  uint64_t seen_ended_ = 0;
  uint64_t moved_ns_ = 0;
};

template <class T>
Status keep(Result<T> made, T& place) {
  TUTTI_TRY(made.status());
  place = std::move(*made);
  return Status::ok();
}

Status CudaRank::open() {
  const BesideCaptures beside(driver());
  const cuda::DeviceFacts& facts = context_.facts();
  identity_ = {.uuid = facts.uuid, .is_device = 1, .multiprocessors = facts.multiprocessors};
  TUTTI_TRY(keep(cuda::Stream::create(context_), blocking_));
  TUTTI_TRY(keep(cuda::Stream::create(context_), relaunch_));
  TUTTI_TRY(keep(cuda::Event::create(context_), issued_event_));
  TUTTI_TRY(keep(cuda::Event::create(context_), capture_event_));
  TUTTI_TRY(keep(cuda::PinnedMemory::allocate(context_, sizeof(cuda::Signals)), signals_memory_));
  signals_ = signals_memory_.as<cuda::Signals>();
  signals_->done = 1;
  const size_t sends_at =
      sizeof(cuda::RankState) + alignof(cuda::Cell) - sizeof(cuda::RankState) % alignof(cuda::Cell);
  const size_t receives_at = sends_at + link_count() * sizeof(cuda::SendLink);
  const size_t barrier_at = receives_at + link_count() * sizeof(cuda::RecvLink);
  const size_t bytes = barrier_at + 2 * kLineBytes;
  TUTTI_TRY(keep(cuda::DeviceMemory::allocate(context_, bytes), tables_));
  state_ = tables_.as<cuda::RankState>();
  sends_ = reinterpret_cast<cuda::SendLink*>(tables_.address() + sends_at);
  receives_ = reinterpret_cast<cuda::RecvLink*>(tables_.address() + receives_at);
  barrier_ = tables_.as<std::byte>() + barrier_at;
  TUTTI_TRY(memory_.open());
  links_ = std::make_shared<DeviceLinks>();
  auto rings = SharedDeviceMemory::create(context_, links_bytes());
  if (!rings) {
    return {rings.status().code(), format("rank %u needs %zu MiB of device %d for its links to %u ranks: %s",
                                          rank_, links_bytes() >> 20, context_.device(), rank_count_,
                                          std::string(rings.status().text()).c_str())};
  }
  links_->memory = std::move(*rings);
  identity_.links_key = reinterpret_cast<uint64_t>(links_->base());
  identity_.has_file = links_->memory.file().is_open() ? 1 : 0;
  devices_.add_links(identity_.links_key, links_);
  return Status::ok();
}

/// Reaches the memory of a peer's links, and shows that it does.
Status CudaRank::connect_peer(uint32_t peer, const DevicePeer& theirs) {
  const auto refuse = [&](const Status& why) {
    return Status(why.code(), format("rank %u (device %d) cannot reach rank %u: %s", rank_, context_.device(),
                                     peer, std::string(why.text()).c_str()));
  };
  if (theirs.same_process) {
    peers_[peer].same_memory = theirs.identity.uuid == identity_.uuid;
    if (peers_[peer].same_memory != 0) return Status::ok();
    const Status reached = peers_[peer].links->memory.let_in(context_);
    if (!reached) return refuse(reached);
  } else {
    if (theirs.identity.has_file == 0) {
      return refuse(
          {Code::kUnsupported,
           "it is in another process, and its device's memory cannot be shared by file descriptor"});
    }
    if (theirs.file == nullptr)
      return refuse(
          {Code::kUnsupported, "it is on another host, and device memory is not sent to other hosts yet"});
    const DeviceTicket ticket{.kind = DeviceTicket::kFile, .bytes = links_->memory.bytes()};
    auto memory = PeerDeviceMemory::open(context_, ticket, *theirs.file);
    if (!memory) return refuse(memory.status());
    peers_[peer].links = std::make_shared<DeviceLinks>();
    peers_[peer].links->mapped = std::move(*memory);
  }
  // The slots of the ring from the peer to this rank: nobody else touches them before all are connected.
  const SegmentShape shape = ring_shape();
  std::byte* const slots =
      peers_[peer].links->base() + shape.peer_offset(0, rank_) + shape.peer_ring().header_bytes();
  const Status checked = check_access(context_, slots, identity_.links_key + rank_);
  return checked ? Status::ok() : refuse(checked);
}

Status CudaRank::connect(std::span<const DevicePeer> ranks) {
  const BesideCaptures beside(driver());
  peers_.resize(rank_count_);
  peers_[rank_] = {.links = links_, .same_memory = 1};
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (!ranks[peer].same_process || peer == rank_) continue;
    peers_[peer].links = devices_.find_links(ranks[peer].identity.links_key);
    // Gone already: its rank has given up the set-up of all, and has said why.
    if (peers_[peer].links == nullptr) return Status::ok();
  }
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (peer != rank_) TUTTI_TRY(connect_peer(peer, ranks[peer]));
  }
  cuda::RankState state{};
  state.window = reinterpret_cast<cuda::Window*>(links_->base());
  TUTTI_TRY(cuda::copy_now(context_, state_, &state, sizeof(state)));
  const auto sends = make_sends();
  TUTTI_TRY(cuda::copy_now(context_, sends_, sends.data(), sends.size() * sizeof(sends[0])));
  const auto receives = make_receives();
  return cuda::copy_now(context_, receives_, receives.data(), receives.size() * sizeof(receives[0]));
}

std::vector<cuda::SendLink> CudaRank::make_sends() const {
  const SegmentShape shape = ring_shape();
  std::vector<cuda::SendLink> links;
  for (uint32_t channel = 0; channel < shape.channels; ++channel) {
    for (uint32_t peer = 0; peer < rank_count_; ++peer) {
      const auto end = SendLink::at(links_->base() + shape.peer_offset(channel, peer), shape.peer_ring());
      links.push_back({.cells = reinterpret_cast<cuda::Cell*>(end.cells),
                       .credit = reinterpret_cast<cuda::Credit*>(end.credits),
                       .slots = reinterpret_cast<unsigned char*>(end.slots),
                       .slot_mask = end.slot_mask,
                       .slot_bytes = end.slot_bytes,
                       .peer = peer,
                       .same_process = peers_[peer].same_memory,
                       .next = 0,
                       .limit = end.limit,
                       .last_reference = 0});
    }
  }
  return links;
}

std::vector<cuda::RecvLink> CudaRank::make_receives() const {
  const SegmentShape shape = ring_shape();
  std::vector<cuda::RecvLink> links;
  for (uint32_t channel = 0; channel < shape.channels; ++channel) {
    for (uint32_t peer = 0; peer < rank_count_; ++peer) {
      const auto end =
          RecvLink::at(peers_[peer].links->base() + shape.peer_offset(channel, rank_), shape.peer_ring(), 0);
      links.push_back({.cells = reinterpret_cast<const cuda::Cell*>(end.cells),
                       .credit = reinterpret_cast<cuda::Credit*>(end.credit),
                       .slots = reinterpret_cast<const unsigned char*>(end.slots),
                       .slot_mask = end.slot_mask,
                       .slot_bytes = end.slot_bytes,
                       .peer = peer,
                       .credit_mask = end.credit_mask,
                       .reference_offset = 0,
                       .next = 0});
    }
  }
  return links;
}

Result<DeviceProgramHold> CudaRank::bind(const Plan& plan, std::span<const Geometry> stripes,
                                         const BindOptions& options, DeviceMark mark) {
  return place(cuda::bind(plan, stripes, options, *this), std::move(mark));
}

Result<DeviceProgramHold> CudaRank::bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                               const BindOptions& options, DeviceMark mark) {
  std::vector<cuda::MailLink> mail;
  for (uint32_t peer = 0; peer < rank_count_; ++peer)
    mail.push_back({.out = mailbox(peer, rank_), .in = mailbox(rank_, peer)});
  return place(cuda::bind_short(plan, stripes, options, mail), std::move(mark));
}

Result<DeviceProgramHold> CudaRank::bind_messages(const BindOptions& options, DeviceMark mark) {
  const cuda::Image image = cuda::bind_messages(mark.messages, options, *this);
  return place(image, std::move(mark));
}

Result<DeviceProgramHold> CudaRank::place(const cuda::Image& image, DeviceMark mark) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  cuda::Image marked = image;
  marked.signature_seed = mark.signature_seed;
  marked.is_collective = mark.is_collective;
  TUTTI_TRY(free_retired());
  auto scratch = memory_.scratch(marked.scratch_bytes);
  TUTTI_TRY(scratch.status());
  auto program = std::make_unique<CudaProgram>();
  program->bytes = cuda::packed_bytes(marked);
  program->lanes = static_cast<uint32_t>(marked.lanes.size());
  program->threads = marked.threads;
  program->by_packets = !marked.short_lanes.empty();
  program->mark = std::move(mark);
  auto address = memory_.take(program->bytes);
  TUTTI_TRY(address.status());
  program->address = *address;
  const cuda::Surroundings around{.sends = sends_,
                                  .receives = receives_,
                                  .state = state_,
                                  .signals = signals_,
                                  .scratch = *scratch,
                                  .input_shared = false,
                                  .output_shared = false};
  TUTTI_TRY(memory_.upload(*address, program->bytes,
                           [&](std::byte* out) { cuda::pack(marked, around, program->address, out); }));
  DeviceProgramHold made(program.get(), {this});
  programs_[program->address] = std::move(program);
  return made;
}

void CudaRank::retire(DeviceProgram* program) {
  const std::scoped_lock lock(mutex_);
  auto* ours = static_cast<CudaProgram*>(program);
  if (!ours->captured) retired_.push_back(ours);
}

/// Their memory, once nothing is under way that could use it.
Status CudaRank::free_retired() {
  if (retired_.empty()) return Status::ok();
  auto done = has_ended();
  TUTTI_TRY(done.status());
  if (!*done) return Status::ok();
  for (const CudaProgram* program : retired_) {
    if (program == last_program_) last_program_ = nullptr;
    memory_.give_back(program->address, program->bytes);
    programs_.erase(program->address);
  }
  retired_.clear();
  return Status::ok();
}

/// The stream, if it is one of this device.
Result<CUstream> CudaRank::find_stream(DeviceStream stream) const {
  if (stream.internal) return blocking_.handle();
  return check_stream(context_, rank_, stream.handle);
}

/// Makes the stream wait for the rank's operations so far. In a capture only for those that were captured
/// with it: what else runs when the graph is launched is the launching stream's affair.
Status CudaRank::order(CUstream stream, bool& captured) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  TUTTI_TRY(driver().check(driver().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr),
                           "cuStreamGetCaptureInfo(argument stream)"));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return {Code::kInvalidUsage, "the capture of argument stream has failed: end it, and look at its errors"};
  }
  captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (captured) {
    const bool first = capture_id_ != id;
    capture_id_ = id;
    if (first || stream == capture_stream_) return Status::ok();
    return capture_event_.make_wait(stream);
  }
  // Threads share the handle of their default streams.
  if (!has_mark_ || (stream == last_stream_ && stream != CU_STREAM_PER_THREAD)) return Status::ok();
  return issued_event_.make_wait(stream);
}

/// For the next operation's `order`.
Status CudaRank::leave_mark(CUstream stream, bool captured) {
  if (captured) {
    capture_stream_ = stream;
    captured_any_ = true;
    return capture_event_.record(stream);
  }
  last_stream_ = stream;
  has_mark_ = true;
  return issued_event_.record(stream);
}

Status CudaRank::run(const CudaProgram& program, const cuda::Launch& launch, CUstream stream) const {
  const cuda::Kernel& kernel = program.by_packets ? device_.run_short : device_.run;
  return cuda::launch(context_, kernel, {.blocks = program.lanes, .threads = program.threads}, stream,
                      &launch);
}

Status CudaRank::launch(DeviceProgram& program, const DeviceBuffers& buffers, DeviceStream stream) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  auto handle = find_stream(stream);
  TUTTI_TRY(handle.status());
  bool captured = false;
  TUTTI_TRY(order(*handle, captured));
  auto& ours = static_cast<CudaProgram&>(program);
  cuda::Launch launch{};
  launch.parts[0] = {.program = reinterpret_cast<cuda::Program*>(ours.address),
                     .input = buffers.input,
                     .output = buffers.output,
                     .scale = buffers.scale,
                     .first_block = 0,
                     .block_count = ours.lanes};
  launch.part_count = 1;
  launch.first = 1;
  launch.poll_limit = kPolls;
  TUTTI_TRY(run(ours, launch, *handle));
  ours.captured = ours.captured || captured;
  if (!captured) {
    ++issued_;
    last_program_ = &ours;
  }
  const auto done = reinterpret_cast<CUdeviceptr>(&signals_->done);
  TUTTI_TRY(driver().check(driver().stream_wait_value32(*handle, done, 1, CU_STREAM_WAIT_VALUE_EQ),
                           "cuStreamWaitValue32"));
  return leave_mark(*handle, captured);
}

Status CudaRank::copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  auto handle = find_stream(stream);
  TUTTI_TRY(handle.status());
  bool captured = false;
  TUTTI_TRY(order(*handle, captured));
  TUTTI_TRY(driver().check(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                                 reinterpret_cast<CUdeviceptr>(from), bytes, *handle),
                           "cuMemcpyAsync"));
  return leave_mark(*handle, captured);
}

Result<bool> CudaRank::is_done() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  return has_ended();
}

/// Whether all operations outside captures have. mutex_ is held.
Result<bool> CudaRank::has_ended() const {
  if (!has_mark_) return true;
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const CUresult result = driver().event_query(issued_event_.handle());
  if (result == CUDA_ERROR_NOT_READY) return false;
  TUTTI_TRY(driver().check(result, "cuEventQuery"));
  return true;
}

Status CudaRank::check_pointer(std::string_view name, const void* address) const {
  return check_device_pointer(context_, rank_, name, address);
}

DeviceLook CudaRank::look() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  DeviceLook look;
  const uint64_t left = load(signals_->left);
  const uint64_t ended = load(signals_->ended);
  const auto ring = static_cast<cuda::Ring>(left & ((1u << cuda::kRingBits) - 1));
  look.launches = left >> cuda::kRingBits;
  look.sequence = load(signals_->sequence);
  look.may_be_replayed = captured_any_;
  // Operations of replayed graphs count among the ended ones.
  if (captured_any_) {
    const auto done = has_ended();
    look.is_running = done && !*done;
  } else {
    look.is_running = issued_ > ended + given_up_;
  }
  const uint64_t moved = load(signals_->moved);
  if (moved != seen_moved_ || ended != seen_ended_ || moved_ns_ == 0) moved_ns_ = now_ns();
  seen_moved_ = moved;
  seen_ended_ = ended;
  if (ring == cuda::Ring::kMismatch) look.state = DeviceLook::State::kFailed;
  if (ring == cuda::Ring::kUnfinished && left != relaunched_left_) look.state = DeviceLook::State::kBlocked;
  if (look.state == DeviceLook::State::kFine) {
    // What was issued last is what has ended last.
    look.program = look.is_running ? nullptr : last_program_;
    return look;
  }
  const auto found = programs_.find(reinterpret_cast<uint64_t>(signals_->part.program));
  if (found != programs_.end()) look.program = found->second.get();
  look.waited_ns = now_ns() - moved_ns_;
  const cuda::Obstacle& obstacle = signals_->obstacle;
  look.obstacle = {.peer = obstacle.peer,
                   .step = obstacle.step,
                   .sending = obstacle.sending != 0,
                   .word = obstacle.word,
                   .expected = obstacle.expected};
  return look;
}

Status CudaRank::relaunch() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  relaunched_left_ = load(signals_->left);
  cuda::Launch launch{};
  launch.parts[0] = signals_->part;
  launch.parts[0].first_block = 0;
  launch.part_count = 1;
  launch.first = 0;
  launch.poll_limit = kPolls;
  const auto& program = programs_.at(reinterpret_cast<uint64_t>(launch.parts[0].program));
  const Status launched = run(*program, launch, relaunch_.handle());
  if (!launched) {
    // Nobody else can release the stream that waits for the operation.
    ++given_up_;
    std::atomic_ref(signals_->done).store(1, std::memory_order_release);
  }
  return launched;
}

void CudaRank::abort() {
  std::atomic_ref(signals_->abort).store(1, std::memory_order_release);
}

Result<const OpenDevice*> CudaDevices::open(int device) {
  const std::scoped_lock lock(mutex_);
  const auto found = open_.find(device);
  if (found != open_.end()) return &found->second;
  const BesideCaptures beside(*driver_);
  OpenDevice fresh;
  TUTTI_TRY(keep(Context::retain(*driver_, device), fresh.context));
  TUTTI_TRY(keep(cuda::Library::load(*fresh.context, cuda::kernel_image()), fresh.library));
  TUTTI_TRY(keep(fresh.library.kernel(cuda::kRunKernel), fresh.run));
  TUTTI_TRY(keep(fresh.library.kernel(cuda::kShortKernel), fresh.run_short));
  return &open_.emplace(device, std::move(fresh)).first->second;
}

Result<std::unique_ptr<DeviceRank>> CudaDevices::open_rank(int device, uint32_t rank, uint32_t rank_count) {
  auto opened = open(device);
  TUTTI_TRY(opened.status());
  auto made = std::make_unique<CudaRank>(*this, **opened, rank, rank_count);
  TUTTI_TRY(made->open());
  return std::unique_ptr<DeviceRank>(std::move(made));
}

Result<std::unique_ptr<StagingDevice>> CudaDevices::open_staging(int device, uint32_t rank) {
  auto opened = open(device);
  TUTTI_TRY(opened.status());
  return open_staging_device(*(*opened)->context, rank);
}

Status CudaDevices::check_host_pointer(std::string_view name, const void* address) const {
  const cuda::Pointer found = driver_->look_up(address);
  if (found.kind != cuda::MemoryKind::kDevice) return Status::ok();
  return {
      Code::kInvalidArgument,
      format("argument %s (%p) is memory of CUDA device %d, but the communicator's rank is in host memory: "
             "make it with config.device %d",
             std::string(name).c_str(), address, found.device, found.device)};
}

}  // namespace

Result<std::unique_ptr<Devices>> Devices::find() {
  if (cuda::kernel_image().empty()) return Status(Code::kUnsupported, "this build has no CUDA kernels");
  auto driver = cuda::Driver::find();
  TUTTI_TRY(driver.status());
  return std::unique_ptr<Devices>(std::make_unique<CudaDevices>(std::move(*driver)));
}

}  // namespace tutti
