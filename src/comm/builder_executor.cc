// CommunicatorBuilder, phase "allocate": where the communicator's calls run.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/builder.h"
#include "core/log.h"

namespace tutti {
namespace {

/// What keeps a rank from another rank's device memory; empty: nothing.
struct Obstruction {
  std::array<char, 512> text{};
};

}  // namespace

Status CommunicatorBuilder::open_device() {
  if (options_.device < 0) return Status::ok();
  const auto refuse = [this](const Status& why) {
    return Status(why.code(), format("config.device is CUDA device %d: %s", options_.device,
                                     std::string(why.text()).c_str()));
  };
  auto devices = process_.devices();
  if (!devices) return refuse(devices.status());
  auto rank = (*devices)->open_rank(options_.device, rank_, rank_count_);
  if (!rank) return refuse(rank.status());
  device_ = std::move(*rank);
  return Status::ok();
}

DeviceIdentity CommunicatorBuilder::device_identity() const {
  if (device_ != nullptr) return device_->identity();
  return {.uuid = {}, .has_failed = options_.device >= 0 ? 1u : 0u};
}

/// What in the facts keeps calls from running as kernels; empty: nothing.
std::string CommunicatorBuilder::why_no_kernels(std::span<const RankFacts> facts) const {
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (facts[rank].device.is_device == 0) return format("rank %u is in host memory", rank);
    if (facts[rank].device.lacks_kernels != 0)
      return format("the driver of rank %u does not run this build's kernels", rank);
  }
  for (uint32_t rank = 0; host_count_ > 1 && rank < rank_count_; ++rank) {
    if (host_of_[rank] != 0) return format("rank %u is on another host than rank 0", rank);
  }
  return "";
}

/// All ranks come to the same result.
Status CommunicatorBuilder::allocate(Bootstrap& bootstrap, std::span<const RankFacts> facts,
                                     std::span<const KeptFiles> files) {
  // A rank that cannot use its device ends the set-up of all.
  const bool has_failed =
      std::ranges::any_of(facts, [](const RankFacts& theirs) { return theirs.device.has_failed != 0; });
  const bool has_devices =
      std::ranges::any_of(facts, [](const RankFacts& theirs) { return theirs.device.is_device != 0; });
  if (has_failed || !has_devices) return allocate_host();
  std::string why = why_no_kernels(facts);
  if (why.empty()) {
    auto found = join_devices(bootstrap, facts, files);
    TUTTI_TRY(found.status());
    why = std::move(*found);
  }
  parts_->some_rank_is_staged = !why.empty();
  if (!why.empty()) {
    TUTTI_TRY(device_ == nullptr ? allocate_host() : allocate_staged(why, count_sharers(facts)));
    return host_count_ > 1 ? agree_on_cards(bootstrap) : Status::ok();
  }
  TUTTI_TRY(join_multicast(bootstrap, facts, files));
  return allocate_device();
}

Status CommunicatorBuilder::allocate_host() {
  auto host = std::make_unique<HostExecutor>(HostExecutorOptions{.peers = peers_,
                                                                 .config = process_.config(),
                                                                 .heap = process_.heap(),
                                                                 .shape = shape_,
                                                                 .topology = parts_->topology.get(),
                                                                 .reproducible = options_.reproducible,
                                                                 .threads = options_.threads,
                                                                 .cores = cores_,
                                                                 .are_containers = are_containers_,
                                                                 .wait_mode = wait_mode_,
                                                                 .striped_wait_mode = striped_wait_mode_,
                                                                 .longest_sleep_ns = longest_sleep_ns_,
                                                                 .timeout_ms = options_.timeout_ms,
                                                                 .network_traits = network_traits_,
                                                                 .network = std::move(network_),
                                                                 .workers = std::move(workers_)});
  parts_->host = host.get();
  parts_->executor = std::move(host);
  return Status::ok();
}

Status CommunicatorBuilder::allocate_device() {
  const JobTopology* const topology = parts_->topology.get();
  const bool has_order = topology != nullptr;
  auto device = std::make_unique<DeviceExecutor>(DeviceExecutorOptions{
      .peers = peers_,
      .config = process_.config(),
      .devices = *process_.devices_in_use(),
      .relaunch_thread = process_.relaunch_thread(),
      .reproducible = options_.reproducible,
      .multiprocessors = multiprocessors_,
      .ranks_on_device = ranks_on_device_,
      .order = has_order ? topology->order() : std::span<const uint32_t>(),
      .levels = has_order ? topology->levels() : std::span<const std::vector<uint32_t>>(),
      .has_multicast = has_multicast_,
      .wait_mode = wait_mode_,
      .timeout_ms = options_.timeout_ms,
      .rank = std::move(device_)});
  parts_->device = device.get();
  parts_->executor = std::move(device);
  return parts_->device->start();
}

/// Replaces the DeviceRank. All ranks know `why`. `sharers`: ranks of this process on the device.
Status CommunicatorBuilder::allocate_staged(const std::string& why, uint32_t sharers) {
  // Free this memory before set-up ends. Freeing waits for the device, where another rank of this process may
  // later run an operation that waits for this rank.
  device_.reset();
  auto devices = process_.devices();
  TUTTI_TRY(devices.status());
  auto device = (*devices)->open_staging(options_.device, rank_);
  TUTTI_TRY(device.status());
  auto staging = std::make_unique<Staging>(std::move(*device), process_.heap(),
                                           Staging::Options{.rank = rank_,
                                                            .rank_count = rank_count_,
                                                            .why = why,
                                                            .sharers = sharers,
                                                            .queues = process_.config().device_queues});
  TUTTI_TRY(allocate_host());
  auto staged = std::make_unique<StagedExecutor>(peers_, std::move(parts_->executor), std::move(staging));
  parts_->staged = staged.get();
  parts_->executor = std::move(staged);
  return Status::ok();
}

/// Whether network cards may access the device's memory of every rank.
Status CommunicatorBuilder::agree_on_cards(Bootstrap& bootstrap) {
  const Status own = try_cards();
  const bool is_lost = !own && process_.config().gpu_direct && parts_->staged != nullptr &&
                       parts_->host->network()->reads_registered();
  const auto why =
      first_failure(bootstrap, own, is_lost ? "; messages between hosts pass through host memory" : nullptr);
  TUTTI_TRY(why.status());
  if (parts_->staged == nullptr) return Status::ok();
  if (!why->empty()) {
    parts_->staged->refuse_cards(*why);
    return Status::ok();
  }
  HostExecutor* const host = parts_->host;
  host->network()->use_device_memory(parts_->staged->copier());
  parts_->staged->use_cards(host->slices(),
                            [&peers = peers_](uint32_t peer) { return peers.is_remote(peer); });
  return Status::ok();
}

/// Errors: what keeps network cards from the memory of this rank's device.
Status CommunicatorBuilder::try_cards() const {
  const Status tried = [this]() -> Status {
    if (parts_->staged == nullptr) return {Code::kUnsupported, "it is in host memory"};
    if (!process_.config().gpu_direct)
      return {Code::kUnsupported, "TUTTI_GPU_DIRECT, NCCL_DMABUF_ENABLE or NCCL_NET_GDR_LEVEL forbids it"};
    if (process_.config().device_queues == 1)
      return {Code::kUnsupported, "CUDA_DEVICE_MAX_CONNECTIONS is 1: no copy can replace a failed card"};
    NetworkConnections& network = *parts_->host->network();
    return parts_->staged->try_cards(
        {.add = [&network](const DeviceSpan& span) { return network.register_device_memory(span); },
         .remove = [&network](MemoryHandle handle) { network.deregister_device_memory(handle); }});
  }();
  if (tried) return tried;
  return {tried.code(), format("rank %u: %s", rank_, std::string(tried.text()).c_str())};
}

uint32_t CommunicatorBuilder::count_sharers(std::span<const RankFacts> facts) const {
  const DeviceIdentity& own = facts[rank_].device;
  return static_cast<uint32_t>(std::count_if(facts.begin(), facts.end(), [&](const RankFacts& theirs) {
    return theirs.device.is_device != 0 && theirs.device.uuid == own.uuid &&
           theirs.process == process_.token();
  }));
}

/// Ranks on devices of one host try to reach each other's memory. Returns the reason of the lowest rank that
/// failed, or nothing.
Result<std::string> CommunicatorBuilder::join_devices(Bootstrap& bootstrap, std::span<const RankFacts> facts,
                                                      std::span<const KeptFiles> files) {
  std::vector<DevicePeer> peers;
  for (const RankFacts& theirs : facts) {
    const DeviceIdentity& device = theirs.device;
    const size_t peer = peers.size();
    const bool has_file = device.has_file != 0 && peer < files.size() && files[peer].device.is_open();
    peers.push_back({.identity = device,
                     .same_process = theirs.process == process_.token(),
                     .file = has_file ? &files[peer].device : nullptr});
    const auto shares = [&](const RankFacts& other) { return other.device.uuid == device.uuid; };
    ranks_on_device_ =
        std::max(ranks_on_device_, static_cast<uint32_t>(std::count_if(facts.begin(), facts.end(), shares)));
    multiprocessors_ = std::min(multiprocessors_, device.multiprocessors);
  }
  const Status joined = device_->connect(peers);
  if (!joined && joined.code() != Code::kUnsupported) return joined;
  if (rank_count_ == 1) return std::string();
  return first_failure(bootstrap, joined,
                       "; the communicator goes on, but its calls pass through host memory, which is slower");
}

/// Sets up multicast memory if a switch joins the devices and each has one rank. If one rank fails, no rank
/// has it, and calls work without it.
Status CommunicatorBuilder::join_multicast(Bootstrap& bootstrap, std::span<const RankFacts> facts,
                                           std::span<const KeptFiles> files) {
  const bool all_can =
      std::ranges::all_of(facts, [](const RankFacts& theirs) { return theirs.device.multicasts != 0; });
  if (rank_count_ == 1 || ranks_on_device_ > 1 || !all_can) return Status::ok();
  const bool is_here = facts[0].process == process_.token();
  for (const bool binds : {false, true}) {
    const Status own = binds ? device_->bind_multicast()
                             : device_->add_to_multicast(is_here ? nullptr : &files[0].multicast);
    const auto failure = first_failure(bootstrap, own, "; the communicator goes on without multicast memory");
    TUTTI_TRY(failure.status());
    if (failure->empty()) continue;
    device_->drop_multicast();
    return Status::ok();
  }
  has_multicast_ = true;
  return Status::ok();
}

/// The error of the lowest rank that failed, which that rank logs with its consequence; empty: none.
/// `consequence`: null: nobody needs to know.
Result<std::string> CommunicatorBuilder::first_failure(Bootstrap& bootstrap, const Status& status,
                                                       const char* consequence) const {
  Obstruction own{};
  status.text().copy(own.text.data(), own.text.size() - 1);
  auto all = bootstrap.share(std::as_bytes(std::span(&own, 1)));
  TUTTI_TRY(all.status());
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    Obstruction theirs{};
    const std::vector<std::byte>& bytes = (*all)[rank];
    std::memcpy(&theirs, bytes.data(), std::min(sizeof(theirs), bytes.size()));
    theirs.text.back() = '\0';
    const std::string text = theirs.text.data();
    if (text.empty()) continue;
    // One line per communicator.
    if (rank == rank_ && consequence != nullptr) log_line(text + consequence);
    return text;
  }
  return std::string();
}

}  // namespace tutti
