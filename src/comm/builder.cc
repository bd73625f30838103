#include "comm/builder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/agree_topology.h"
#include "core/cache_hints.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/hash.h"
#include "core/random.h"
#include "health/loss.h"
#include "net/process_file.h"
#include "transports/shm/pull.h"

namespace tutti {
namespace {

// Slot size in shared memory, besides wide slots. With 16 KiB, the copies into and out of a slot overlap
// little and stay in the caches. 32 KiB lost 20 to 40 % at 32 to 256 KiB (`./dev bench`, 2 ranks, far cores).
constexpr uint32_t kSlotBytes = 16384;

/// Slots of a link that this rank writes: fewer in a process with a limit on its addresses.
uint32_t default_slots(uint32_t rank_count) {
  rlimit addresses{};
  const bool is_limited = getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
  return is_limited ? 32 : topology::usual_slots(rank_count);
}

std::span<const std::byte> as_bytes(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// With different tables or names, ranks would run parts of different algorithms.
uint64_t hash_of_choice(const Process& process, const std::string& algorithm) {
  uint64_t hash = kHashSeed;
  const auto add = [&hash](const void* data, size_t bytes) { hash = hash_bytes(data, bytes, hash); };
  const auto add_name = [&](const std::string& name) { add(name.c_str(), name.size() + 1); };
  add_name(algorithm);
  const uint64_t prices = process.config().prices ? 1 : 0;
  add(&prices, sizeof prices);
  for (const ChoiceRow& row : process.choice().rows()) {
    const std::array<uint64_t, 7> numbers = {static_cast<uint64_t>(row.collective),
                                             row.ranks_min,
                                             row.ranks_max,
                                             row.bytes_min,
                                             row.bytes_max,
                                             static_cast<uint64_t>(row.condition),
                                             row.is_estimate ? 1u : 0u};
    add(numbers.data(), sizeof(numbers));
    add_name(row.algorithm);
  }
  return hash;
}

/// The error names the first difference, with both values.
Status compare(uint32_t rank, const RankFacts& theirs, const RankFacts& first) {
  struct Setting {
    const char* name;
    unsigned long long theirs, first;
  };
  const Setting settings[] = {
      {"TUTTI_SLOTS (0: not set)", theirs.configured_slots, first.configured_slots},
      {"TUTTI_SLOT_BYTES", theirs.slot_bytes, first.slot_bytes},
      {"the setting \"reproducible\"", theirs.reproducible, first.reproducible},
      {"the number of threads (config.threads or TUTTI_THREADS)", theirs.threads, first.threads},
      {"TUTTI_HEARTBEAT_MS", theirs.heartbeat_ms, first.heartbeat_ms},
      {"TUTTI_STRIPE_BYTES", theirs.stripe_bytes, first.stripe_bytes},
      // By the next three, a rank knows whether a peer may use its buffers.
      {"TUTTI_REFERENCE_BYTES", theirs.reference_bytes, first.reference_bytes},
      {"TUTTI_PULL_BYTES", theirs.pull_bytes, first.pull_bytes},
      {"whether TUTTI_PULL_BYTES is set (1: yes)", theirs.pull_bytes_set, first.pull_bytes_set}};
  for (const Setting& setting : settings) {
    if (setting.theirs == setting.first) continue;
    return {Code::kInvalidArgument,
            format("%s is %llu on rank %u and %llu on rank 0: it must be the same on all ranks", setting.name,
                   setting.theirs, rank, setting.first)};
  }
  TUTTI_TRY(compare_settings(rank, theirs.transports, first.transports));
  if (theirs.choice != first.choice) {
    return {Code::kInvalidArgument,
            format("rank %u and rank 0 choose algorithms differently: TUTTI_ALGORITHM (or config.algorithm), "
                   "TUTTI_PRICES and the rows of TUTTI_CHOICE_FILE must be the same on all ranks",
                   rank)};
  }
  return Status::ok();
}

/// The process to pull from, proved by reading its token from its memory; 0 if the kernel refuses.
int pull_pid(const RankFacts& theirs) {
  Process::Token seen{};
  const auto pid = static_cast<int>(theirs.pid);
  return pull(pid, theirs.token_address, seen.data(), seen.size()) == 0 && seen == theirs.process ? pid : 0;
}

/// A closed descriptor for a negative number.
Result<FileDescriptor> duplicate_file(int fd) {
  if (fd < 0) return FileDescriptor();
  FileDescriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (copy.is_open()) return copy;
  return system_error("fcntl(F_DUPFD_CLOEXEC)", errno);
}

/// The failure for other ranks. Where this rank lacks a resource, the text names the rank.
Status with_own_rank(uint32_t rank, const Status& why) {
  if (!is_resource_error(why) || why.text().starts_with("rank ")) return why;
  return {why.code(), format("rank %u cannot take part: %s", rank, std::string(why.text()).c_str())};
}

/// The files of a peer in another process, in their order; empty if they must be fetched: the kernel does not
/// show them, or a device has some.
std::vector<FileDescriptor> open_files_of(const RankFacts& theirs, bool is_first) {
  std::vector<FileDescriptor> files;
  if (theirs.device.has_file != 0 || (is_first && theirs.device.multicasts != 0)) return files;
  for (const ProcessFile& name : theirs.files) {
    files.push_back(open_file_of(theirs.pid, name));
    if (!files.back().is_open()) return {};
  }
  return files;
}

/// Touches cells and credits, so that the first call is not slow.
void prefault_rings(const Segment& segment, const SegmentShape& shape) {
  for (uint32_t i = 0; i < shape.published; ++i) {
    prefault(segment.publish_ring(i), shape.publish_ring().header_bytes());
  }
}

}  // namespace

struct CommunicatorBuilder::OwnFiles {
  FileDescriptor segment;
  /// Copies: the rank may return its links before all others have fetched these files.
  FileDescriptor device;
  FileDescriptor multicast;
  std::optional<FileOffer> offer;
  std::array<ProcessFile, kNamedFiles> names;
};

CommunicatorBuilder::CommunicatorBuilder(Process& process, uint32_t rank, uint32_t rank_count,
                                         const CommOptions& options)
    : process_(process),
      rank_(rank),
      rank_count_(rank_count),
      options_(options),
      parts_(std::make_unique<CommunicatorParts>(process, options, rank, rank_count)),
      peers_(parts_->peers) {
  const Config& config = process.config();
  shape_ = {.rank_count = rank_count,
            .published = options.threads + (rank_count > 2 ? 1 : 0),
            .channels = channels_of_stripes(options.threads),
            .short_channels = rank_count > 2 ? kPlanChannels : 0,
            .slots = config.slots != 0 ? config.slots : default_slots(rank_count),
            .slot_bytes = config.slot_bytes != 0 ? config.slot_bytes : kSlotBytes,
            .has_wide_slots = config.slot_bytes == 0,
            .demotes_lines = can_demote_lines()};
}

Result<std::unique_ptr<Communicator>> Communicator::create(Process& process, const UniqueId& id,
                                                           uint32_t rank_count, uint32_t rank,
                                                           const CommOptions& options, BootstrapStop* stop) {
  const BootstrapOptions bootstrap{.id = id,
                                   .rank_count = rank_count,
                                   .rank = rank,
                                   .deadline_ns = deadline_after_ms(options.setup_timeout_ms),
                                   .stop = stop};
  std::unique_ptr<Communicator> communicator;
  const Status built = contained([&] {
    CommunicatorBuilder builder(process, rank, rank_count, options);
    TUTTI_TRY(builder.build(bootstrap));
    communicator = builder.take();
    return Status::ok();
  });
  if (built) return communicator;
  // Late ranks that ask this process learn the reason.
  process.bootstrap_servers().stay(bootstrap, built);
  return built;
}

Status CommunicatorBuilder::build(const BootstrapOptions& options) {
  std::optional<Bootstrap> bootstrap;
  const Status joined = contained([&]() -> Status {
    auto made = Bootstrap::join(options, process_.config());
    TUTTI_TRY(made.status());
    bootstrap.emplace(std::move(*made));
    return Status::ok();
  });
  if (!joined) {
    const Status told = with_own_rank(rank_, joined);
    if (is_resource_error(joined)) Bootstrap::decline(options, process_.config(), told);
    return told;
  }
  const Status failed = contained([&] { return run_phases(*bootstrap); });
  if (failed) return failed;
  // The first failure counts, not one of its consequences.
  Status cause = failed;
  static_cast<void>(contained([&]() -> Status {
    cause = with_own_rank(rank_, bootstrap->find_cause(failed));
    bootstrap->fail(cause);
    return Status::ok();
  }));
  // A rank may already have its communicator. Its first call then reports the error, and it shrinks without
  // this rank.
  if (!peers_.memory().empty()) {
    peers_.raise(cause);
    peers_.show_left();
  }
  // The parts' handlers still use the builder's objects.
  communicator_.reset();
  parts_.reset();
  return cause;
}

Status CommunicatorBuilder::run_phases(Bootstrap& bootstrap) {
  TUTTI_TRY(start_workers());
  // Other ranks learn of a failure once all have joined.
  const Status opened = open_device();
  if (rank_count_ == 1) return build_alone(bootstrap, opened);
  OwnFiles own;
  TUTTI_TRY(describe(own));
  auto table = introduce(bootstrap, own);
  TUTTI_TRY(table.status());
  const std::vector<RankFacts>& facts = **table;
  TUTTI_TRY(opened);
  // The timing of the ranks does not matter for the following steps.
  TUTTI_TRY(choose(bootstrap, facts));
  std::vector<KeptFiles> kept(rank_count_);
  TUTTI_TRY(connect(bootstrap, facts, kept));
  TUTTI_TRY(allocate(bootstrap, facts, kept));
  return watch(bootstrap);
}

Status CommunicatorBuilder::watch(Bootstrap& bootstrap) {
  const CommunicatorParts& parts = *parts_;
  communicator_ = std::make_unique<Communicator>(std::move(parts_));
  TUTTI_TRY(compare_digests(bootstrap, parts.topology->digest()));
  // From now on a life descriptor or control connection reports a rank that ends, and the heartbeat one that
  // hangs.
  if (parts.plane != nullptr) parts.plane->expect_beats();
  if (parts.heartbeat != nullptr) parts.heartbeat->expect_beats();
  return Status::ok();
}

/// The last exchange. `digest`: of what this rank has derived from the facts.
Status CommunicatorBuilder::compare_digests(Bootstrap& bootstrap, uint64_t digest) const {
  const auto all = bootstrap.finish(as_bytes(digest));
  TUTTI_TRY(all.status());
  for (uint32_t rank = 1; rank < rank_count_; ++rank) {
    if ((*all)[rank] == (*all)[0]) continue;
    return {Code::kMismatch,
            format("rank %u and rank 0 have derived different topologies from the same facts", rank)};
  }
  return Status::ok();
}

Status CommunicatorBuilder::build_alone(Bootstrap& bootstrap, const Status& opened) {
  TUTTI_TRY(opened);
  cores_ = core_count(usable_cpus(), cpu_quota());
  own_cores_ = cores_;
  choose_waiting(1);
  parts_->own_header = std::make_unique<SegmentHeader>();
  header_ = parts_->own_header.get();
  peers_.set_hosts({0});
  peers_.set_own_page(*header_);
  const std::vector<RankFacts> alone = {own_facts({}, {})};
  TUTTI_TRY(allocate(bootstrap, alone, {}));
  communicator_ = std::make_unique<Communicator>(std::move(parts_));
  return bootstrap.finish({}).status();
}

Status CommunicatorBuilder::describe(OwnFiles& own) {
  TUTTI_TRY(make_segment(own));
  return open_files(own);
}

Status CommunicatorBuilder::make_segment(OwnFiles& own) {
  auto memory = create_memory("tutti-segment", shape_.bytes());
  TUTTI_TRY(memory.status());
  auto mapping = map_memory(*memory, shape_.bytes());
  TUTTI_TRY(mapping.status());
  own.segment = std::move(*memory);
  segment_ = std::make_shared<Segment>(std::move(*mapping), shape_);
  header_ = &segment_->header();
  peers_.set_own_page(*header_);
  prefault_rings(*segment_, shape_);
  segment_key_ = process_.add_segment(segment_);
  return Status::ok();
}

Status CommunicatorBuilder::open_files(OwnFiles& own) {
  auto server = process_.file_server();
  TUTTI_TRY(server.status());
  auto device = duplicate_file(device_ != nullptr ? device_->file() : -1);
  TUTTI_TRY(device.status());
  auto multicast = duplicate_file(device_ != nullptr ? device_->multicast_file() : -1);
  TUTTI_TRY(multicast.status());
  own.device = std::move(*device);
  own.multicast = std::move(*multicast);
  const std::array<int, kNamedFiles> named = {own.segment.get(), process_.heap().fd(), process_.life_fd()};
  std::ranges::transform(named, own.names.begin(), name_file);
  own.offer.emplace(**server);
  return fill_random(std::as_writable_bytes(std::span(own.offer->secret)));
}

Result<RankTable> CommunicatorBuilder::introduce(Bootstrap& bootstrap, OwnFiles& own) {
  const int life = process_.life_fd();
  const std::array<int, kRankFiles> files = {own.segment.get(), process_.heap().fd(), life,
                                             own.device.is_open() ? own.device.get() : life,
                                             own.multicast.is_open() ? own.multicast.get() : life};
  const auto announce = [&](const PackedEndpoints& data) {
    own.offer->open(files);
    RankFacts facts = own_facts(data, own.offer->secret);
    facts.files = own.names;
    const auto bytes = as_bytes(facts);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  auto introductions = bootstrap.introduce(announce);
  TUTTI_TRY(introductions.status());
  return read_introductions(bootstrap.id(), *introductions);
}

Status CommunicatorBuilder::choose(Bootstrap& bootstrap, const std::vector<RankFacts>& facts) {
  // All ranks find the same difference here, before any rank looks for files that another one has dropped
  // because of it.
  for (uint32_t peer = 0; peer < rank_count_; ++peer) TUTTI_TRY(compare(peer, facts[peer], facts[0]));
  std::vector<uint64_t> hosts;
  hosts.reserve(rank_count_);
  for (const RankFacts& theirs : facts) hosts.push_back(theirs.host);
  // Ranks that joined through one host's server share that host.
  host_of_ = bootstrap.is_network() ? number_hosts(hosts) : std::vector<uint32_t>(rank_count_, 0);
  peers_.set_hosts(host_of_);
  host_count_ = peers_.host_count();
  count_cores(facts);
  // A plan fits the shortest rings.
  for (const RankFacts& theirs : facts) shape_.slots = std::min(shape_.slots, theirs.slots);
  // This rank's segment has the other size, but no other rank reads its rings.
  auto transports = network_transports(process_.config());
  TUTTI_TRY(transports.status());
  network_traits_ = combined_traits(*transports);
  if (peers_.shares_no_host() && process_.config().slot_bytes == 0)
    shape_.slot_bytes = network_traits_.slot_bytes;
  return agree_on_topology(bootstrap, facts);
}

Status CommunicatorBuilder::agree_on_topology(Bootstrap& bootstrap, const std::vector<RankFacts>& facts) {
  topology::RankCosts costs = topology::usual_costs(false);
  costs.slots = shape_.slots;
  costs.slices.most = shape_.slot_bytes;
  costs.slices.least = peers_.shares_no_host() && network_traits_.prefers_whole_slots
                           ? shape_.slot_bytes
                           : std::min<uint64_t>(costs.slices.least, shape_.slot_bytes);
  if (host_count_ == 1 && rank_count_ <= cores_) costs.slices.wide_slots = shape_.wide_slots();
  costs.stripes_max = options_.threads;
  costs.stripe_bytes = process_.config().stripe_bytes;
  auto topology = tutti::agree_on_topology(
      bootstrap, process_, facts,
      {.rank = rank_, .host_of = host_of_, .host_count = host_count_, .cores = cores_, .costs = costs});
  TUTTI_TRY(topology.status());
  parts_->topology = std::move(*topology);
  return Status::ok();
}

Status CommunicatorBuilder::connect(Bootstrap& bootstrap, const std::vector<RankFacts>& facts,
                                    std::vector<KeptFiles>& kept) {
  memory_.resize(rank_count_);
  TUTTI_TRY(reach_peers(bootstrap, facts, kept));
  TUTTI_TRY(connect_hosts(bootstrap, facts));
  peers_.set_memory(std::move(memory_));
  TUTTI_TRY(open_control_plane(bootstrap));
  TUTTI_TRY(watch_life(facts, kept));
  TUTTI_TRY(start_heartbeat());
  process_.add_communicator(&peers_, bootstrap.id());
  return Status::ok();
}

RankFacts CommunicatorBuilder::own_facts(const PackedEndpoints& data, const FileSecret& secret) const {
  const Config& config = process_.config();
  return {.process = process_.token(),
          .machine = process_.locality().machine,
          .host = process_.locality().host,
          .data = data,
          .secret = secret,
          .segment_key = segment_key_,
          .token_address = reinterpret_cast<uint64_t>(process_.token().data()),
          .pid = getpid(),
          .heap_base = reinterpret_cast<uint64_t>(process_.heap().base()),
          .heap_bytes = process_.heap().bytes(),
          .slots = shape_.slots,
          .demotes_lines = shape_.demotes_lines ? 1u : 0u,
          .configured_slots = config.slots,
          .slot_bytes = config.slot_bytes,
          .cpus = usable_cpus(),
          .cpu_quota = cpu_quota(),
          .reproducible = options_.reproducible ? 1u : 0u,
          .threads = options_.threads,
          .transports = agreed_values(config),
          .heartbeat_ms = config.heartbeat_ms,
          .stripe_bytes = config.stripe_bytes,
          .reference_bytes = config.reference_bytes,
          .pull_bytes = config.pull_bytes,
          .device = device_identity(),
          .tuned = process_.tuned_text().empty()
                       ? 0
                       : hash_bytes(process_.tuned_text().data(), process_.tuned_text().size()),
          .names_topology = process_.config().topology_file.empty() ? 0u : 1u,
          .pull_bytes_set = static_cast<uint16_t>(config.pull_bytes_set ? 1 : 0),
          .sibling_distance = static_cast<uint16_t>(sibling_distance(usable_cpus())),
          .choice = hash_of_choice(process_, options_.algorithm)};
}

Status CommunicatorBuilder::start_workers() {
  if (options_.threads == 1) return Status::ok();
  auto workers = Workers::start(options_.threads - 1);
  TUTTI_TRY(workers.status());
  workers_ = std::move(*workers);
  return Status::ok();
}

/// Fetches and maps the files of each peer on this host, and closes what is not needed later: thousands of
/// ranks would exceed the limit on descriptors.
Status CommunicatorBuilder::reach_peers(Bootstrap& bootstrap, const std::vector<RankFacts>& facts,
                                        std::vector<KeptFiles>& kept) {
  TUTTI_TRY(find_peers(facts));
  std::set<Process::Token> seen;
  for (uint32_t i = 0; i < rank_count_; ++i) {
    // Each rank starts with its own number, so that not all ask one process at once.
    const uint32_t peer = (rank_ + i) % rank_count_;
    if (host_of_[peer] != host_of_[rank_]) {
      auto page = map_plain(sizeof(SegmentHeader));
      TUTTI_TRY(page.status());
      memory_[peer] = {.segment = std::make_shared<Segment>(std::move(*page), shape_), .is_remote = true};
      continue;
    }
    if (facts[peer].process == process_.token()) continue;
    auto files = open_files_of(facts[peer], peer == 0);
    if (files.empty()) {
      auto fetched = fetch_from(bootstrap, peer, facts[peer]);
      TUTTI_TRY(fetched.status());
      files = std::move(*fetched);
    }
    TUTTI_TRY(map_peer(peer, facts[peer], files, memory_[peer]));
    if (seen.insert(facts[peer].process).second) kept[peer].life = std::move(files[kLifeFile]);
    if (facts[peer].device.has_file != 0) kept[peer].device = std::move(files[kDeviceFile]);
    if (peer == 0 && facts[peer].device.multicasts != 0)
      kept[peer].multicast = std::move(files[kMulticastFile]);
  }
  return Status::ok();
}

/// The segments of the peers in this process.
Status CommunicatorBuilder::find_peers(const std::vector<RankFacts>& facts) {
  std::vector<uint32_t> peers;
  std::vector<uint64_t> keys;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (facts[peer].process != process_.token()) continue;
    peers.push_back(peer);
    keys.push_back(facts[peer].segment_key);
  }
  auto segments = process_.find_segments(keys);
  for (size_t i = 0; i < peers.size(); ++i) {
    if (segments[i] == nullptr)
      return {Code::kPeerLost,
              format("rank %u, a thread of this process, has failed in its set-up", peers[i])};
    memory_[peers[i]] = {.segment = std::move(segments[i]), .same_process = true};
  }
  return Status::ok();
}

Result<std::vector<FileDescriptor>> CommunicatorBuilder::fetch_from(Bootstrap& bootstrap, uint32_t peer,
                                                                    const RankFacts& theirs) const {
  auto files = fetch_files({.name = Process::file_server_name(theirs.process),
                            .secret = theirs.secret,
                            .count = kRankFiles,
                            .deadline_ns = bootstrap.deadline_ns(),
                            .bootstrap_fd = bootstrap.descriptor(),
                            .check = [&bootstrap] { return bootstrap.check(); }});
  if (files) return files;
  // The bootstrap's own message comes first.
  TUTTI_TRY(bootstrap.check());
  return Status(files.status().code(), format("rank %u cannot reach rank %u, which is on the same host: %s",
                                              rank_, peer, std::string(files.status().text()).c_str()));
}

/// A peer in another process of this host.
Status CommunicatorBuilder::map_peer(uint32_t peer, const RankFacts& theirs,
                                     const std::vector<FileDescriptor>& files, PeerSegment& result) {
  const auto cannot_map = [&](const Status& why) {
    return Status(
        why.code(),
        format("mapping the memory of rank %u: %s; every process maps the heap of each other process of its "
               "host, here %llu bytes: TUTTI_HEAP_BYTES sets less",
               peer, std::string(why.text()).c_str(), static_cast<unsigned long long>(theirs.heap_bytes)));
  };
  SegmentShape shape = shape_;
  shape.slots = theirs.slots;
  shape.demotes_lines = theirs.demotes_lines != 0;
  auto mapping = map_memory(files[kSegmentFile], shape.bytes());
  if (!mapping) return cannot_map(mapping.status());
  auto heap = process_.peer_heap(theirs.process, files[kHeapFile], theirs.heap_bytes);
  if (!heap) return cannot_map(heap.status());
  // The links need the peer's heap: it lives as long as the segment.
  auto* both = new std::pair<Segment, std::shared_ptr<PeerHeap>>(Segment(std::move(*mapping), shape), *heap);
  const std::shared_ptr<std::pair<Segment, std::shared_ptr<PeerHeap>>> owner(both);
  result.segment = std::shared_ptr<Segment>(owner, &owner->first);
  result.pull_pid = pull_pid(theirs);
  result.reference_offset = reinterpret_cast<uint64_t>((*heap)->mapping.base()) - theirs.heap_base;
  return Status::ok();
}

/// Counts the cores of this host, for waiting, and of the host with the fewest, for choosing algorithms.
void CommunicatorBuilder::count_cores(const std::vector<RankFacts>& facts) {
  const auto cores_of = [&](auto&& is_there) {
    CpuSet cpus;
    uint32_t quota = 0;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (!is_there(rank)) continue;
      cpus |= facts[rank].cpus;
      const uint32_t theirs = facts[rank].cpu_quota;
      if (theirs != 0) quota = quota == 0 ? theirs : std::min(quota, theirs);
    }
    return core_count(cpus, quota);
  };
  cores_ = UINT32_MAX;
  for (uint32_t host = 0; host < host_count_; ++host) {
    cores_ = std::min(cores_, cores_of([&](uint32_t rank) { return host_of_[rank] == host; }));
  }
  // Containers share the cores of their machine.
  const auto is_here = [&](uint32_t rank) { return facts[rank].machine == facts[rank_].machine; };
  uint32_t ranks_here = 0;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) ranks_here += is_here(rank) ? 1 : 0;
  own_cores_ = cores_of(is_here);
  // A topology file of the user tells of other hosts.
  are_containers_ = host_count_ > 1 && ranks_here == rank_count_ && facts[0].names_topology == 0;
  choose_waiting(ranks_here);
}

/// Spins only if every thread that may work has a core.
void CommunicatorBuilder::choose_waiting(uint32_t ranks_here) {
  const auto mode_of = [this, ranks_here](uint32_t threads) {
    const WaitMode wanted = process_.config().wait;
    if (wanted != WaitMode::kAuto) return wanted;
    return ranks_here * threads <= own_cores_ ? WaitMode::kSpin : WaitMode::kYield;
  };
  wait_mode_ = mode_of(1);
  striped_wait_mode_ = mode_of(options_.threads);
  longest_sleep_ns_ = Waiter::longest_sleep_ns(ranks_here, own_cores_);
}

Status CommunicatorBuilder::open_control_plane(const Bootstrap& bootstrap) {
  if (control_peers_.empty()) return Status::ok();
  const NetworkConnections* network = network_.get();
  CommunicatorParts* parts = parts_.get();
  auto plane = ControlPlane::open(
      process_.control(), std::move(control_peers_), process_.config().heartbeat_ms,
      {.on_alert =
           [parts](uint32_t from, const Status& why) {
             const Peers& peers = parts->peers;
             raise_alert(peers.own().alert, why.code(), from, why.text());
             if (from == peers.rank() && why.code() == Code::kPeerLost)
               peers.mark_lost(peers.rank(), StatusPage::kSilent);
           },
       .on_left =
           [parts](uint32_t peer) {
             parts->peers.header(peer).status.presence.store(StatusPage::kLeft);
             parts->exchange->give_up(peer);
           },
       .on_lost =
           [parts](uint32_t peer, bool is_silent, const Status& why) {
             parts->lose(peer, is_silent ? StatusPage::kSilent : StatusPage::kDied, why);
             parts->exchange->give_up(peer);
           },
       .report =
           [parts, network](uint32_t peer) {
             StatusCopy copy = StatusCopy::of(parts->peers.own().status);
             copy.unconfirmed_bytes = network->unconfirmed_bytes(peer);
             return copy;
           },
       .on_members =
           [parts](uint32_t peer, std::span<const std::byte> packed) {
             const auto members = Members::unpack(packed);
             if (members) write_decision(parts->peers.header(peer).decision, *members);
           },
       .on_renew = [parts](uint32_t peer, const Frame& frame) { parts->exchange->handle(peer, frame); }});
  TUTTI_TRY(plane.status());
  parts_->plane = std::move(*plane);
  const Config& config = process_.config();
  parts_->exchange->open({.rank = rank_,
                          .sockets = config.connections,
                          .credentials = credentials_of(bootstrap.id()),
                          .listen = {config.socket_ifname, config.port_first, config.port_last},
                          .send = [plane = parts_->plane.get()](uint32_t peer, const FrameHeader& header,
                                                                std::span<const std::byte> body) {
                            plane->send(peer, header, body);
                          }});
  peers_.set_control_plane(parts_->plane);
  peers_.set_detours([network](uint32_t peer) { return network->detour(peer); });
  process_.add_plane(parts_->plane);
  return Status::ok();
}

/// Shows other processes that this one runs, and watches them.
Status CommunicatorBuilder::start_heartbeat() {
  if (parts_->lives.empty() || process_.config().heartbeat_ms == 0) return Status::ok();
  std::vector<Heartbeat::Peer> peers;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    const PeerSegment& at = peers_.memory()[peer];
    if (!at.is_remote && !at.same_process) peers.push_back({peer, &at.segment->header().status.heartbeat});
  }
  auto heartbeat =
      Heartbeat::start(process_.control(), process_.config().heartbeat_ms, header_->status.heartbeat, peers,
                       [parts = parts_.get()](uint32_t rank, const Status& why) {
                         parts->lose(rank, StatusPage::kSilent, why);
                       });
  TUTTI_TRY(heartbeat.status());
  parts_->heartbeat = std::move(*heartbeat);
  return Status::ok();
}

Status CommunicatorBuilder::watch_life(const std::vector<RankFacts>& facts, std::vector<KeptFiles>& files) {
  std::map<Process::Token, std::vector<uint32_t>> ranks_of;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) ranks_of[facts[peer].process].push_back(peer);
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (!files[peer].life.is_open()) continue;
    const std::vector<uint32_t>& ranks = ranks_of[facts[peer].process];
    // On the list before the watch begins: the list is what ends the watch.
    parts_->lives.push_back(std::move(files[peer].life));
    const int fd = parts_->lives.back().get();
    TUTTI_TRY(process_.control().watch(fd, 0, [parts = parts_.get(), ranks, fd](uint32_t) {
      parts->process.control().forget(fd);
      for (const uint32_t rank : ranks) parts->lose(rank, StatusPage::kDied, ended_status(rank));
    }));
  }
  return Status::ok();
}

}  // namespace tutti
