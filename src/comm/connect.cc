// Creating a communicator, as its phases: meet, describe, choose, connect, allocate.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "bootstrap/set_up.h"
#include "comm/communicator.h"
#include "comm/rank_facts.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/hash.h"
#include "transports/shm/pull.h"

namespace tutti {
namespace {

// Slots in shared memory. 16 KiB keeps the copy into a slot and the copy out of it apart in time but both in
// the caches: 8, 16 and 32 KiB were within 10 % of each other from 2 MiB on, 32 KiB lost 20 to 40 % at 32 KiB
// to 256 KiB (`./dev bench`, 2 ranks, far cores).
constexpr uint32_t kSlotBytes = 16384;
std::span<const std::byte> as_bytes(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

RankFacts facts_of(std::span<const std::byte> introduction) {
  RankFacts facts;
  std::memcpy(&facts, introduction.data(), std::min(sizeof(facts), introduction.size()));
  return facts;
}

/// Ranks that chose by different tables or names would run parts of different algorithms.
uint64_t hash_of_choice(const Process& process) {
  uint64_t hash = kHashSeed;
  const auto add = [&hash](const void* data, size_t bytes) { hash = hash_bytes(data, bytes, hash); };
  const auto add_name = [&](const std::string& name) { add(name.c_str(), name.size() + 1); };
  add_name(process.config().algorithm);
  for (const ChoiceRow& row : process.choice().rows()) {
    const std::array<uint64_t, 6> numbers = {
        static_cast<uint64_t>(row.collective), row.ranks_min, row.ranks_max, row.bytes_min, row.bytes_max,
        static_cast<uint64_t>(row.condition)};
    add(numbers.data(), sizeof(numbers));
    add_name(row.algorithm);
  }
  return hash;
}

/// Settings that must be equal: the error names the first that is not, and both values.
Status compare(uint32_t rank, const RankFacts& theirs, const RankFacts& first) {
  const auto differ = [rank](const char* what, unsigned long long value, unsigned long long reference) {
    return Status(Code::kInvalidArgument,
                  format("%s is %llu on rank %u and %llu on rank 0: it must be the same on all ranks", what,
                         value, rank, reference));
  };
  if (theirs.slots != first.slots) return differ("TUTTI_SLOTS", theirs.slots, first.slots);
  if (theirs.slot_bytes != first.slot_bytes) {
    return differ("TUTTI_SLOT_BYTES", theirs.slot_bytes, first.slot_bytes);
  }
  if (theirs.reproducible != first.reproducible) {
    return differ("the setting \"reproducible\"", theirs.reproducible, first.reproducible);
  }
  if (theirs.threads != first.threads) {
    return differ("the number of threads (config.threads or TUTTI_THREADS)", theirs.threads, first.threads);
  }
  if (theirs.heartbeat_ms != first.heartbeat_ms) {
    return differ("TUTTI_HEARTBEAT_MS", theirs.heartbeat_ms, first.heartbeat_ms);
  }
  TUTTI_TRY(compare_settings(rank, theirs.transports, first.transports));
  if (theirs.stripe_bytes != first.stripe_bytes) {
    return differ("TUTTI_STRIPE_BYTES", theirs.stripe_bytes, first.stripe_bytes);
  }
  if (theirs.choice != first.choice) {
    return {Code::kInvalidArgument,
            format("rank %u and rank 0 choose algorithms differently: TUTTI_ALGORITHM and the rows of "
                   "TUTTI_CHOICE_FILE must be the same on all ranks",
                   rank)};
  }
  return Status::ok();
}

/// The process to pull from, proved by reading its token from where it says it lies; 0 when the kernel
/// refuses.
int pull_pid(const RankFacts& theirs) {
  Process::Token seen{};
  const auto pid = static_cast<int>(theirs.pid);
  return pull(pid, theirs.token_address, seen.data(), seen.size()) && seen == theirs.process ? pid : 0;
}

/// None of a negative number.
Result<FileDescriptor> duplicate_file(int fd) {
  if (fd < 0) return FileDescriptor();
  FileDescriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (copy.is_open()) return copy;
  return Status(Code::kSystemError, format("fcntl(F_DUPFD_CLOEXEC): %s", std::strerror(errno)));
}

/// Before the first message: cells and credits are touched here, so that the first call does not pay for it.
void prefault_rings(const Segment& segment, const SegmentShape& shape) {
  for (uint32_t i = 0; i < shape.published; ++i) {
    prefault(segment.publish_ring(i), shape.publish_ring().header_bytes());
  }
}

}  // namespace

Communicator::Communicator(Process& process, uint32_t rank_count, uint32_t rank, const CommOptions& options)
    : process_(process),
      rank_count_(rank_count),
      rank_(rank),
      options_(options),
      timeout_ms_(options.timeout_ms) {
  const Config& config = process.config();
  shape_ = {.rank_count = rank_count,
            .published = options.threads,
            .channels = channels_of_stripes(options.threads),
            .slots = config.slots,
            .slot_bytes = config.slot_bytes != 0 ? config.slot_bytes : kSlotBytes};
}

Result<std::unique_ptr<Communicator>> Communicator::create(Process& process, const UniqueId& id,
                                                           uint32_t rank_count, uint32_t rank,
                                                           const CommOptions& options, BootstrapStop* stop) {
  const BootstrapOptions setup{.id = id,
                               .rank_count = rank_count,
                               .rank = rank,
                               .deadline_ns = deadline_after_ms(options.setup_timeout_ms),
                               .stop = stop};
  std::unique_ptr<Communicator> comm(new Communicator(process, rank_count, rank, options));
  const Status made = comm->meet(setup);
  if (!made) {
    comm.reset();
    // Ranks that come late learn why, if this process is the one that they ask.
    process.bootstrap_servers().stay(setup, made);
    return made;
  }
  return comm;
}

/// Meet: from here on every rank learns of a failure of any other.
Status Communicator::meet(const BootstrapOptions& options) {
  auto setup = Bootstrap::join(options, process_.config());
  TUTTI_TRY(setup.status());
  const Status prepared = contained([&] { return prepare(*setup); });
  if (prepared) return prepared;
  // The first failure that is heard of is everybody's, and should not be what another one has led to.
  Status cause = prepared;
  static_cast<void>(contained([&]() -> Status {
    cause = setup->find_cause(prepared);
    setup->fail(cause);
    return Status::ok();
  }));
  // Who is through all the same, because the last word of the meeting has reached it, reads it in its first
  // call, and shrinks without this rank.
  if (!links_.peers().empty()) {
    raise(cause);
    show_left();
  }
  return cause;
}

/// All phases after joining the meeting.
Status Communicator::prepare(Bootstrap& setup) {
  TUTTI_TRY(start_workers());
  // Other ranks hear of a failure once all have met.
  const Status opened = open_device();
  if (rank_count_ == 1) {
    TUTTI_TRY(opened);
    cores_ = core_count(usable_cpus(), cpu_quota());
    choose_waiting(1);
    own_header_ = std::make_unique<SegmentHeader>();
    header_ = own_header_.get();
    const std::vector<RankFacts> alone = {describe({}, {})};
    TUTTI_TRY(connect_device(setup, alone, {}));
    return setup.finish();
  }

  // Describe: this rank's shared memory exists, empty.
  auto memory = create_memory("tutti-segment", shape_.bytes());
  TUTTI_TRY(memory.status());
  auto mapping = map_memory(*memory, shape_.bytes());
  TUTTI_TRY(mapping.status());
  segment_ = std::make_shared<Segment>(std::move(*mapping), shape_);
  header_ = &segment_->header();
  prefault_rings(*segment_, shape_);
  process_.add_segment(reinterpret_cast<uint64_t>(header_), segment_);
  auto server = process_.file_server();
  TUTTI_TRY(server.status());
  // Its own, since the rank may give its links back before all others have asked for their file.
  const auto device_file = duplicate_file(device_ != nullptr ? device_->file() : -1);
  TUTTI_TRY(device_file.status());
  const auto multicast_file = duplicate_file(device_ != nullptr ? device_->multicast_file() : -1);
  TUTTI_TRY(multicast_file.status());
  FileOffer offer(**server);
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(offer.secret))));
  const std::array<int, kRankFiles> files = {
      memory->get(), process_.heap().fd(), process_.life_fd(),
      device_file->is_open() ? device_file->get() : process_.life_fd(),
      multicast_file->is_open() ? multicast_file->get() : process_.life_fd()};
  const auto announce = [&](const PackedEndpoints& data) {
    offer.open(files);
    const RankFacts facts = describe(data, offer.secret);
    const auto bytes = as_bytes(facts);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  auto introductions = setup.introduce(announce);
  TUTTI_TRY(introductions.status());
  TUTTI_TRY(opened);

  // Choose and connect: nothing that follows depends on when ranks do it.
  TUTTI_TRY(connect(setup, *introductions));
  // Every rank has what it needs: from here on a rank that ends is found by its life descriptor, or its
  // control connection, and one that stands still by its heartbeat.
  TUTTI_TRY(setup.finish());
  if (plane_ != nullptr) plane_->expect_beats();
  if (heartbeat_ != nullptr) heartbeat_->expect_beats();
  return Status::ok();
}

RankFacts Communicator::describe(const PackedEndpoints& data, const FileSecret& secret) const {
  const Config& config = process_.config();
  return {.process = process_.token(),
          .machine = process_.place().machine,
          .host = process_.place().host,
          .data = data,
          .secret = secret,
          .segment_key = reinterpret_cast<uint64_t>(header_),
          .token_address = reinterpret_cast<uint64_t>(process_.token().data()),
          .pid = getpid(),
          .heap_base = reinterpret_cast<uint64_t>(process_.heap().base()),
          .heap_bytes = process_.heap().bytes(),
          .slots = shape_.slots,
          .slot_bytes = config.slot_bytes,
          .cpus = usable_cpus(),
          .cpu_quota = cpu_quota(),
          .reproducible = options_.reproducible ? 1u : 0u,
          .threads = options_.threads,
          .transports = agreed_values(config),
          .heartbeat_ms = config.heartbeat_ms,
          .stripe_bytes = config.stripe_bytes,
          .device = device_identity(),
          .choice = hash_of_choice(process_)};
}

/// The threads that help the caller, and their places for links.
Status Communicator::start_workers() {
  if (options_.threads == 1) return Status::ok();
  auto workers = Workers::start(options_.threads - 1);
  TUTTI_TRY(workers.status());
  workers_ = std::move(*workers);
  for (uint32_t i = 1; i < options_.threads; ++i) stripe_links_.push_back(std::make_unique<RankLinks>());
  return Status::ok();
}

Status Communicator::connect(Bootstrap& setup, const Blobs& introductions) {
  std::vector<RankFacts> facts;
  facts.reserve(rank_count_);
  for (const auto& introduction : introductions) facts.push_back(facts_of(introduction));
  // All ranks find the same difference, before any looks for what another that has found it may have dropped.
  for (uint32_t peer = 0; peer < rank_count_; ++peer) TUTTI_TRY(compare(peer, facts[peer], facts[0]));
  std::vector<uint64_t> hosts;
  hosts.reserve(rank_count_);
  for (const RankFacts& theirs : facts) hosts.push_back(theirs.host);
  // Ranks that met at one server share their host, whatever they say.
  host_of_ = setup.is_network() ? number_hosts(hosts) : std::vector<uint32_t>(rank_count_, 0);
  host_count_ = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
  count_cores(facts);
  // This rank's segment was laid out for the other size; nobody on its host reads the rings in it.
  auto transports = network_transports(process_.config());
  TUTTI_TRY(transports.status());
  network_traits_ = combined_traits(*transports);
  if (shares_no_host() && process_.config().slot_bytes == 0) shape_.slot_bytes = network_traits_.slot_bytes;

  std::vector<RankLinks::Peer> peers(rank_count_);
  std::vector<KeptFiles> files(rank_count_);
  TUTTI_TRY(reach_peers(setup, facts, peers, files));
  TUTTI_TRY(connect_hosts(setup, facts));
  for (uint32_t i = 0; i < stripe_links_.size(); ++i) {
    stripe_links_[i]->connect(shape_, rank_, i + 1, peers, remote_.get());
  }
  links_.connect(shape_, rank_, 0, std::move(peers), remote_.get());
  TUTTI_TRY(open_control_plane());
  TUTTI_TRY(watch_life(facts, files));
  TUTTI_TRY(start_heartbeat());
  process_.add_communicator(this, setup.id());
  return connect_device(setup, facts, files);
}

/// The memory of all peers. Of each on this host what it offers is fetched, mapped, and closed but for what
/// is needed later: thousands of ranks would not fit into the limit of descriptors otherwise.
Status Communicator::reach_peers(Bootstrap& setup, const std::vector<RankFacts>& facts,
                                 std::vector<RankLinks::Peer>& peers, std::vector<KeptFiles>& kept) {
  std::set<Process::Token> seen;
  for (uint32_t i = 0; i < rank_count_; ++i) {
    // From its own number on: all at once they would ask the same process.
    const uint32_t peer = (rank_ + i) % rank_count_;
    if (host_of_[peer] != host_of_[rank_]) {
      auto page = map_plain(sizeof(SegmentHeader));
      TUTTI_TRY(page.status());
      peers[peer] = {.segment = std::make_shared<Segment>(std::move(*page), shape_), .is_remote = true};
      one_process_ = false;
      continue;
    }
    if (facts[peer].process == process_.token()) {
      TUTTI_TRY(find_peer(peer, facts[peer], peers[peer]));
      continue;
    }
    auto files = fetch_from(setup, peer, facts[peer]);
    TUTTI_TRY(files.status());
    TUTTI_TRY(map_peer(facts[peer], *files, peers[peer]));
    if (seen.insert(facts[peer].process).second) kept[peer].life = std::move((*files)[kLifeFile]);
    if (facts[peer].device.has_file != 0) kept[peer].device = std::move((*files)[kDeviceFile]);
    if (peer == 0 && facts[peer].device.multicasts != 0)
      kept[peer].multicast = std::move((*files)[kMulticastFile]);
  }
  return Status::ok();
}

/// A peer in this process.
Status Communicator::find_peer(uint32_t peer, const RankFacts& theirs, RankLinks::Peer& result) {
  result.segment = process_.find_segment(theirs.segment_key);
  result.same_process = true;
  if (result.segment != nullptr) return Status::ok();
  return {Code::kPeerLost, format("rank %u, a thread of this process, has failed in its set-up", peer)};
}

Result<std::vector<FileDescriptor>> Communicator::fetch_from(Bootstrap& setup, uint32_t peer,
                                                             const RankFacts& theirs) const {
  auto files = fetch_files({.name = Process::file_server_name(theirs.process),
                            .secret = theirs.secret,
                            .count = kRankFiles,
                            .deadline_ns = setup.deadline_ns(),
                            .bootstrap_fd = setup.descriptor(),
                            .check = [&setup] { return setup.check(); }});
  if (files) return files;
  // What has ended the set-up of all is told in its own words.
  TUTTI_TRY(setup.check());
  return Status(files.status().code(), format("rank %u cannot reach rank %u, which is on its host: %s", rank_,
                                              peer, std::string(files.status().text()).c_str()));
}

/// A peer in another process of this host.
Status Communicator::map_peer(const RankFacts& theirs, const std::vector<FileDescriptor>& files,
                              RankLinks::Peer& result) {
  one_process_ = false;
  auto mapping = map_memory(files[kSegmentFile], shape_.bytes());
  TUTTI_TRY(mapping.status());
  auto heap = process_.peer_heap(theirs.process, files[kHeapFile], theirs.heap_bytes);
  TUTTI_TRY(heap.status());
  // The links keep the heap mapped: its life is tied to the segment's.
  auto* both = new std::pair<Segment, std::shared_ptr<PeerHeap>>(Segment(std::move(*mapping), shape_), *heap);
  const std::shared_ptr<std::pair<Segment, std::shared_ptr<PeerHeap>>> owner(both);
  result.segment = std::shared_ptr<Segment>(owner, &owner->first);
  result.pull_pid = pull_pid(theirs);
  result.reference_offset = reinterpret_cast<uint64_t>((*heap)->mapping.base()) - theirs.heap_base;
  return Status::ok();
}

/// Cores of this host, for waiting, and of the host that has fewest, which all ranks choose algorithms by.
void Communicator::count_cores(const std::vector<RankFacts>& facts) {
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
  // Emulated hosts share the cores of one machine.
  const auto is_here = [&](uint32_t rank) { return facts[rank].machine == facts[rank_].machine; };
  uint32_t ranks_here = 0;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) ranks_here += is_here(rank) ? 1 : 0;
  own_cores_ = cores_of(is_here);
  choose_waiting(ranks_here);
}

/// Spins only where every thread that may be at work has a core.
void Communicator::choose_waiting(uint32_t ranks_here) {
  const auto mode_of = [this, ranks_here](uint32_t threads) {
    const WaitMode wanted = process_.config().wait;
    if (wanted != WaitMode::kAuto) return wanted;
    return ranks_here * threads <= own_cores_ ? WaitMode::kSpin : WaitMode::kYield;
  };
  wait_mode_ = mode_of(1);
  striped_wait_mode_ = mode_of(options_.threads);
  waiter_ = make_waiter();
}

Status Communicator::open_control_plane() {
  if (control_peers_.empty()) return Status::ok();
  auto plane = ControlPlane::open(
      process_.control(), std::move(control_peers_), process_.config().heartbeat_ms,
      {.on_alert =
           [this](uint32_t from, const Status& why) {
             raise_alert(header_->alert, why.code(), from, why.text());
             if (from == rank_ && why.code() == Code::kPeerLost) mark_lost(rank_, StatusPage::kSilent);
           },
       .on_left =
           [this](uint32_t peer) {
             links_.peers()[peer].segment->header().status.has_left.store(StatusPage::kLeft);
           },
       .on_lost =
           [this](uint32_t peer, bool is_silent, const Status& why) {
             lose(peer, is_silent ? StatusPage::kSilent : StatusPage::kDied, why);
           },
       .report =
           [this](uint32_t peer) {
             StatusCopy copy = StatusCopy::of(header_->status);
             copy.unsent_bytes = remote_->unsent_bytes(peer);
             return copy;
           },
       .on_members =
           [this](uint32_t peer, std::span<const std::byte> packed) {
             const auto members = Members::unpack(packed);
             if (members) write_decision(links_.peers()[peer].segment->header().decision, *members);
           }});
  TUTTI_TRY(plane.status());
  plane_ = std::move(*plane);
  process_.add_plane(plane_);
  return Status::ok();
}

/// Shows the processes of this host that this one runs, and looks whether they do.
Status Communicator::start_heartbeat() {
  if (lives_.empty() || process_.config().heartbeat_ms == 0) return Status::ok();
  std::vector<Heartbeat::Peer> peers;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    const RankLinks::Peer& at = links_.peers()[peer];
    if (!at.is_remote && !at.same_process) peers.push_back({peer, &at.segment->header().status.heartbeat});
  }
  auto heartbeat =
      Heartbeat::start(process_.control(), process_.config().heartbeat_ms, header_->status.heartbeat, peers,
                       [this](uint32_t rank, const Status& why) { lose(rank, StatusPage::kSilent, why); });
  TUTTI_TRY(heartbeat.status());
  heartbeat_ = std::move(*heartbeat);
  return Status::ok();
}

/// Watches one life descriptor of every other process.
Status Communicator::watch_life(const std::vector<RankFacts>& facts, std::vector<KeptFiles>& files) {
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (!files[peer].life.is_open()) continue;
    std::vector<uint32_t> ranks;
    for (uint32_t other = 0; other < rank_count_; ++other) {
      if (facts[other].process == facts[peer].process) ranks.push_back(other);
    }
    FileDescriptor life = std::move(files[peer].life);
    const int fd = life.get();
    TUTTI_TRY(process_.control().watch(fd, 0, [this, ranks, fd](uint32_t) {
      process_.control().forget(fd);
      for (const uint32_t rank : ranks) peer_lost(rank);
    }));
    lives_.push_back(std::move(life));
  }
  return Status::ok();
}

Communicator::~Communicator() {
  process_.remove_communicator(this);
  close_device();
  close_staging();
  heartbeat_.reset();
  if (plane_ != nullptr) plane_->close();
  for (const FileDescriptor& life : lives_) process_.control().forget(life.get());
}

}  // namespace tutti
