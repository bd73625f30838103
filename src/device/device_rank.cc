// Ranks on CUDA devices: opening and connecting them, and placing their programs.
#include "device/device_rank.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/log.h"
#include "device/cuda_rank.h"
#include "device/device_arguments.h"
#include "device/staging_device.h"
#include "engine/cuda/kernels.h"
#include "engine/links.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::Context;

// A rank borrows at most the blocks of a long call (device_stripes).
constexpr uint32_t kMostBlocks = 32;
// So many that streams of several ranks seldom share one; the most that CUDA has.
constexpr uint32_t kManyQueues = 32;

template <class T>
Status keep(Result<T> made, T& target) {
  TUTTI_TRY(made.status());
  target = std::move(*made);
  return Status::ok();
}

}  // namespace

Status CudaRank::open() {
  const BesideCaptures beside(driver());
  const cuda::DeviceFacts& facts = context_.facts();
  identity_ = {.uuid = facts.uuid, .is_device = 1};
  facts.pci_bus_id.copy(identity_.bus_id.data(), identity_.bus_id.size());
  if (!device_.kernels) {
    // The communicator's calls will pass through host memory.
    identity_.lacks_kernels = 1;
    log_line(format("rank %u (device %d): ", rank_, context_.device()) + std::string(device_.kernels.text()) +
             "; calls pass through host memory, which is slower");
    return Status::ok();
  }
  // At most what ranks may borrow together: a call has at most as many stripes as its rank has blocks.
  const uint32_t multiprocessors = std::min(facts.multiprocessors, std::max(1u, device_.lender->total()));
  identity_.multiprocessors = multiprocessors;
  TUTTI_TRY(keep(cuda::Stream::create(context_), blocking_));
  TUTTI_TRY(keep(cuda::Stream::create(context_), relaunch_));
  TUTTI_TRY(keep(cuda::Event::create(context_), relaunch_begins_));
  TUTTI_TRY(keep(cuda::Event::create(context_), issued_event_));
  TUTTI_TRY(keep(cuda::Event::create(context_), capture_event_));
  TUTTI_TRY(keep(cuda::Event::create(context_), streams_event_));
  TUTTI_TRY(keep(cuda::PinnedMemory::allocate(context_, sizeof(cuda::Signals)), signals_memory_));
  signals_ = signals_memory_.as<cuda::Signals>();
  signals_->done = 1;
  const size_t sends_at = sizeof(cuda::RankState) + kLineBytes - sizeof(cuda::RankState) % kLineBytes;
  const size_t links = size_t{layout_.link_count()} + layout_.multicast_link_count();
  const size_t receives_at = sends_at + links * sizeof(cuda::SendLink);
  const size_t barrier_at = receives_at + links * sizeof(cuda::RecvLink);
  const size_t bytes = std::max(barrier_at + 2 * kLineBytes, kCheckBytes);
  TUTTI_TRY(keep(cuda::DeviceMemory::allocate(context_, bytes), tables_));
  state_ = tables_.as<cuda::RankState>();
  sends_ = reinterpret_cast<cuda::SendLink*>(tables_.address() + sends_at);
  receives_ = reinterpret_cast<cuda::RecvLink*>(tables_.address() + receives_at);
  barrier_ = tables_.as<std::byte>() + barrier_at;
  TUTTI_TRY(memory_.open());
  links_ = std::make_shared<DeviceLinks>();
  auto rings = SharedDeviceMemory::create(context_, layout_.bytes(), layout_.zeroed_bytes());
  if (!rings) {
    return {rings.status().code(), format("rank %u needs %zu MiB of device %d for its links to %u ranks: %s",
                                          rank_, layout_.bytes() >> 20, context_.device(), rank_count_,
                                          std::string(rings.status().text()).c_str())};
  }
  links_->memory = std::move(*rings);
  identity_.links_key = reinterpret_cast<uint64_t>(links_->base());
  identity_.has_file = links_->memory.file().is_open() ? 1 : 0;
  devices_.add_links(identity_.links_key, links_);
  offer_multicast();
  return Status::ok();
}

/// Maps the memory of a peer's links and checks the access. Uses the tables, which are filled later.
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
    const Status may = context_.check_peer(theirs.identity.uuid);
    if (!may) return refuse(may);
    const DeviceMemoryHandle handle{.kind = DeviceMemoryHandle::kFile, .bytes = links_->memory.bytes()};
    auto memory = PeerDeviceMemory::open(context_, handle, *theirs.file);
    if (!memory) return refuse(memory.status());
    peers_[peer].links = std::make_shared<DeviceLinks>();
    peers_[peer].links->mapped = std::move(*memory);
  }
  // The slots of the ring from the peer to this rank: no other rank uses them before all are connected.
  std::byte* const slots = peers_[peer].links->base() + layout_.slots_at(peer, rank_, 0);
  const Status checked = check_access(context_, slots, tables_.as<void>(), identity_.links_key + rank_);
  return checked ? Status::ok() : refuse(checked);
}

/// Decides how many blocks the rank's launches may keep while they wait. `ranks`: by rank.
Status CudaRank::borrow_blocks(std::span<const DevicePeer> ranks) {
  uint32_t on_device = 0;
  uint32_t here = 0;
  for (const DevicePeer& peer : ranks) {
    if (peer.identity.uuid != identity_.uuid) continue;
    ++on_device;
    here += peer.same_process ? 1 : 0;
  }
  const uint32_t queues = devices_.queues();
  if (here > 1 && queues == 1) {
    return {Code::kUnsupported,
            format("rank %u is one of %u ranks of its process on device %d, which has one queue for the "
                   "process's streams (CUDA_DEVICE_MAX_CONNECTIONS), so one rank's work would hold up "
                   "another's: set the variable to 8 or more, or run one process per rank",
                   rank_, here, context_.device())};
  }
  takes_turns_ = here == 1;
  // With one queue, a relaunch cannot pass work queued behind the launch. As with NCCL, all concurrent work
  // must fit on the device, or all ranks must queue it in the same order.
  if (queues == 1) blocks_ = std::max(1u, device_.resident / on_device);
  uint32_t wanted = std::min(kMostBlocks, device_.lender->total() / on_device);
  // Several ranks of a process share all of a device. A rank alone there leaves blocks to later
  // communicators.
  if (here == 1) wanted = std::min(wanted, device_.lender->modest_share());
  // A rank alone waits for no peer, so its blocks need no room of their own.
  if (rank_count_ == 1) blocks_ = kMostBlocks;
  // Without MPS the device serves one process at a time: what waits for another process keeps it waiting. The
  // relaunch of one rank must not stand behind the wait of another.
  const bool serves_others = on_device > here && !context_.facts().is_shared;
  const bool has_queue = here == 1 ? queues > 1 : queues >= kManyQueues;
  yields_ = serves_others && has_queue && devices_.yields();
  const bool is_shared = context_.facts().is_shared;
  const bool lends = rank_count_ > 1 && queues > 1 && !yields_ && !(is_shared && devices_.yields());
  if (is_shared) others_ = blocks_of_others(device_.lender->total(), on_device, here);
  if (lends) blocks_ = borrowed_ = device_.lender->lend_some(wanted, others_);
  return Status::ok();
}

Status CudaRank::connect(std::span<const DevicePeer> ranks) {
  const BesideCaptures beside(driver());
  TUTTI_TRY(borrow_blocks(ranks));
  peers_.resize(rank_count_);
  peers_[rank_] = {.links = links_, .same_memory = 1};
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (!ranks[peer].same_process || peer == rank_) continue;
    peers_[peer].links = devices_.find_links(ranks[peer].identity.links_key);
    // The peer has already given up the set-up and has reported why.
    if (peers_[peer].links == nullptr) return Status::ok();
  }
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (peer != rank_) TUTTI_TRY(connect_peer(peer, ranks[peer]));
  }
  TUTTI_TRY(registrations_.open(ways_to(ranks)));
  cuda::RankState state{};
  state.exposed = links_->exposed_buffer();
  TUTTI_TRY(cuda::copy_now(context_, state_, &state, sizeof(state)));
  const auto sends = make_sends();
  TUTTI_TRY(cuda::copy_now(context_, sends_, sends.data(), sends.size() * sizeof(sends[0])));
  const auto receives = make_receives();
  return cuda::copy_now(context_, receives_, receives.data(), receives.size() * sizeof(receives[0]));
}

/// How this rank will reach peers' registered memory.
std::vector<RegistrationPath> CudaRank::ways_to(std::span<const DevicePeer> ranks) const {
  std::vector<RegistrationPath> ways;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (peers_[peer].same_memory != 0) {
      ways.push_back({.kind = RegistrationPath::kSameMemory});
    } else if (ranks[peer].same_process) {
      ways.push_back({.kind = RegistrationPath::kPointer, .context = &peers_[peer].links->memory.context()});
    } else {
      ways.push_back({.kind = RegistrationPath::kMemoryHandle});
    }
  }
  return ways;
}

Result<OwnRegistration> CudaRank::offer_registration(const void* address, uint64_t bytes) const {
  const BesideCaptures beside(driver());
  return registrations_.offer(address, bytes);
}

Status CudaRank::open_registration(uint32_t number, std::span<const RegistrationOffer> offers,
                                   std::span<const FileDescriptor> files) {
  const BesideCaptures beside(driver());
  return registrations_.map(number, rank_, offers, files);
}

void CudaRank::close_registration(uint32_t number) {
  const BesideCaptures beside(driver());
  registrations_.unmap(number);
}

cuda::SendLink CudaRank::make_send(uint32_t peer, uint32_t ring) const {
  std::byte* const base = links_->base();
  const auto end = SendLink::at(base + layout_.cells_at(rank_, peer, ring), layout_.ring());
  return {.cells = end.cells,
          .credit = end.credits,
          .slots = base + layout_.slots_at(rank_, peer, ring),
          .slot_mask = end.slot_mask,
          .slot_bytes = end.slot_bytes,
          .peer = peer,
          .same_memory = peers_[peer].same_memory,
          .by_slot = 0,
          .comes_back = 0,
          .next = 0,
          .limit = end.limit,
          .last_reference = 0};
}

cuda::RecvLink CudaRank::make_receive(uint32_t peer, uint32_t ring) const {
  std::byte* const base = peers_[peer].links->base();
  const auto end = RecvLink::at(base + layout_.cells_at(peer, rank_, ring), layout_.ring(), 0);
  return {.cells = end.cells,
          .credit = end.credit,
          .slots = base + layout_.slots_at(peer, rank_, ring),
          .slot_mask = end.slot_mask,
          .slot_bytes = end.slot_bytes,
          .peer = peer,
          .credit_mask = end.credit_mask,
          .registered = registrations_.table(peer),
          .next = 0};
}

/// No rank has a link to itself.
std::vector<cuda::SendLink> CudaRank::make_sends() const {
  std::vector<cuda::SendLink> links;
  for (uint32_t ring = 0; ring < layout_.rings(); ++ring) {
    for (uint32_t peer = 0; peer < rank_count_; ++peer)
      links.push_back(peer == rank_ ? cuda::SendLink{} : make_send(peer, ring));
  }
  return links;
}

std::vector<cuda::RecvLink> CudaRank::make_receives() const {
  std::vector<cuda::RecvLink> links;
  for (uint32_t ring = 0; ring < layout_.rings(); ++ring) {
    for (uint32_t peer = 0; peer < rank_count_; ++peer)
      links.push_back(peer == rank_ ? cuda::RecvLink{} : make_receive(peer, ring));
  }
  return links;
}

Result<DeviceProgramHold> CudaRank::bind(const Plan& plan, std::span<const Geometry> stripes,
                                         uint32_t channels, const BindOptions& options, DeviceMark mark) {
  channels_ = channels;
  return install(cuda::bind(plan, stripes, options, *this), std::move(mark));
}

Result<DeviceProgramHold> CudaRank::bind_short(const Plan& plan, std::span<const Geometry> stripes,
                                               const BindOptions& options, DeviceMark mark) {
  std::vector<cuda::MailLink> mail;
  for (uint32_t peer = 0; peer < rank_count_; ++peer)
    mail.push_back({.out = mailbox(peer, rank_), .in = mailbox(rank_, peer)});
  return install(cuda::bind_short(plan, stripes, options, mail), std::move(mark));
}

Result<DeviceProgramHold> CudaRank::bind_messages(const BindOptions& options, DeviceMark mark) {
  const cuda::Image image = cuda::bind_messages(mark.messages, options, *this, shape_.message_parts);
  return install(image, std::move(mark));
}

/// Allocates and uploads without the lock. Both may wait for the device, which may wait for a relaunch: a
/// relaunch takes the lock, and one thread makes those of all ranks.
Result<DeviceProgramHold> CudaRank::install(const cuda::Image& image, DeviceMark mark) {
  const BesideCaptures beside(driver());
  cuda::Image marked = image;
  marked.signature_seed = mark.signature_seed;
  marked.is_collective = mark.is_collective;
  TUTTI_TRY(free_retired());
  auto scratch = memory_.scratch(marked.scratch_bytes);
  TUTTI_TRY(scratch.status());
  auto program = std::make_shared<CudaProgram>();
  program->bytes = cuda::packed_bytes(marked);
  program->lanes = static_cast<uint32_t>(marked.lanes.size());
  program->threads = marked.threads;
  program->by_packets = !marked.short_lanes.empty();
  program->mark = std::move(mark);
  auto address = memory_.take(program->bytes);
  TUTTI_TRY(address.status());
  program->address = *address;
  {
    const std::scoped_lock lock(mutex_);
    program->retired = has_retired_ = true;  // until complete
    programs_[*address] = program;
  }
  const cuda::Surroundings around{
      .sends = sends_, .receives = receives_, .state = state_, .signals = signals_, .scratch = *scratch};
  TUTTI_TRY(memory_.upload(*address, program->bytes,
                           [&](std::byte* out) { cuda::pack(marked, around, program->address, out); }));
  const std::scoped_lock lock(mutex_);
  program->retired = false;
  return DeviceProgramHold(program.get(), {this});
}

void CudaRank::retire(DeviceProgram* program) {
  const std::scoped_lock lock(mutex_);
  auto* ours = static_cast<CudaProgram*>(program);
  ours->retired = !ours->captured;
  has_retired_ = has_retired_ || ours->retired;
}

/// Frees the memory of retired programs once no operation is under way.
Status CudaRank::free_retired() {
  const std::scoped_lock lock(mutex_);
  if (!has_retired_) return Status::ok();
  auto done = has_ended();
  TUTTI_TRY(done.status());
  if (!*done) return Status::ok();
  std::erase_if(programs_, [this](const auto& entry) {
    const auto& [address, program] = entry;
    if (program->retired) memory_.give_back(address, program->bytes);
    return program->retired;
  });
  has_retired_ = false;
  return Status::ok();
}

Status CudaRank::check_pointer(std::string_view name, const void* address) const {
  return check_device_pointer(context_, rank_, name, address);
}

Result<const OpenDevice*> CudaDevices::open(int device) {
  const std::scoped_lock lock(mutex_);
  const auto found = open_.find(device);
  if (found != open_.end()) return &found->second;
  const BesideCaptures beside(*driver_);
  OpenDevice fresh;
  TUTTI_TRY(keep(Context::retain(*driver_, device), fresh.context));
  fresh.kernels = load_kernels(fresh);
  // A lack of memory may pass; whatever else is wrong with kernels, copies may still work.
  if (fresh.kernels.code() == Code::kOutOfMemory) return fresh.kernels;
  // Leaves one block for ranks without lent blocks.
  fresh.lender = std::make_unique<BlockLender>(fresh.resident - std::min(fresh.resident, 1u));
  return &open_.emplace(device, std::move(fresh)).first->second;
}

/// Loads both kernels, and launches each once with nothing to do: a first launch may make the driver reserve
/// memory and wait for the device, where later another rank's kernel may wait for this rank.
Status CudaDevices::load_kernels(OpenDevice& device) {
  const Context& context = *device.context;
  auto loaded =
      cuda::load_kernels(context, cuda::kernel_images(), std::array{cuda::kRunKernel, cuda::kShortKernel});
  TUTTI_TRY(loaded.status());
  device.library = std::move(loaded->library);
  device.run = loaded->kernels[0];
  device.run_short = loaded->kernels[1];
  device.architecture = loaded->architecture;
  auto stream = cuda::Stream::create(context);
  TUTTI_TRY(stream.status());
  device.resident = UINT32_MAX;
  for (const cuda::Kernel& kernel : {device.run, device.run_short}) {
    auto blocks = cuda::resident_blocks(context, kernel, cuda::kBlockThreads);
    TUTTI_TRY(blocks.status());
    device.resident = std::min(device.resident, *blocks);
    const cuda::Launch nothing{};
    TUTTI_TRY(cuda::launch(context, kernel, {.threads = cuda::kBlockThreads}, stream->handle(), &nothing));
  }
  return stream->synchronize();
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

void CudaDevices::keep_for_good(std::unique_ptr<DeviceRank> rank) {
  auto& ours = static_cast<CudaRank&>(*rank);
  if (ours.is_aborted()) ours.give_blocks_back();
  const std::scoped_lock lock(mutex_);
  kept_.push_back(std::move(rank));
}

Result<void*> CudaDevices::allocate(int device, uint64_t bytes) {
  const BesideCaptures beside(*driver_);
  const std::scoped_lock lock(mutex_);
  const Context& context = *open_.at(device).context;
  auto memory = SharedDeviceMemory::create(context, bytes);
  TUTTI_TRY(memory.status());
  void* const address = memory->as<void>();
  allocations_.emplace(address, std::move(*memory));
  return address;
}

bool CudaDevices::free(void* memory) {
  const BesideCaptures beside(*driver_);
  SharedDeviceMemory freed;
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end()) return false;
  // Free after unlocking: freeing may wait for the device, and so for other ranks.
  freed = std::move(found->second);
  allocations_.erase(found);
  return true;
}

Status CudaDevices::check_host_pointer(std::string_view name, const void* address) const {
  const cuda::Pointer found = driver_->look_up(address);
  if (found.kind != cuda::MemoryKind::kDevice) return Status::ok();
  return {
      Code::kInvalidArgument,
      format("argument %s (%p) is memory of CUDA device %d, but the communicator's rank is in host memory: "
             "make it with config.device TUTTI_CUDA_DEVICE(%d)",
             std::string(name).c_str(), address, found.device, found.device)};
}

Result<std::unique_ptr<Devices>> Devices::find(uint32_t queues, bool yields) {
  auto driver = cuda::Driver::find();
  TUTTI_TRY(driver.status());
  return std::unique_ptr<Devices>(std::make_unique<CudaDevices>(std::move(*driver), queues, yields));
}

}  // namespace tutti
