// Creating a communicator, as its phases: meet, describe, choose, connect, allocate.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/communicator.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "transports/shm/pull.h"

namespace tutti {
namespace {

/// What a rank tells the others of itself: facts, never decisions.
struct RankFacts {
  Process::Token process{};
  uint64_t segment_key = 0;    ///< finds the segment inside its process
  uint64_t token_address = 0;  ///< of `process` in its memory, for peers to prove that they can pull
  int64_t pid = 0;
  uint64_t heap_base = 0;
  uint64_t heap_bytes = 0;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;
  CpuSet cpus;  ///< that its thread may use; launchers bind each rank to some
  uint32_t cpu_quota = 0;
  uint32_t reproducible = 0;
  uint32_t threads = 0;
  uint64_t stripe_bytes = 0;
  uint64_t choice = 0;  ///< hash of what chooses algorithms
};

// What is pulled and then reduced: small enough to stay in a core's second cache, large enough that the
// system call's microsecond is a tenth of its copy.
constexpr uint32_t kBounceSlots = 4;

std::span<const std::byte> as_bytes(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

RankFacts facts_of(const Introduction& introduction) {
  RankFacts facts;
  std::memcpy(&facts, introduction.bytes.data(), std::min(sizeof(facts), introduction.bytes.size()));
  return facts;
}

/// Ranks that chose by different tables or names would run parts of different algorithms.
uint64_t hash_of_choice(const Process& process) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  const auto add = [&hash](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3ull;
  };
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

/// Before the first message: cells and credits are touched here, so that the first call does not pay for it.
void prefault_rings(const Segment& segment, const SegmentShape& shape) {
  for (uint32_t i = 0; i < shape.published; ++i) {
    prefault(segment.publish_ring(i), shape.publish_ring().header_bytes());
  }
}

}  // namespace

Communicator::Communicator(Process& process, uint32_t rank_count, uint32_t rank, const CommOptions& options)
    : process_(process), rank_count_(rank_count), rank_(rank), options_(options) {
  const Config& config = process.config();
  shape_ = {.rank_count = rank_count,
            .published = options.threads,
            .channels = channels_of_stripes(options.threads),
            .slots = config.slots,
            .slot_bytes = config.slot_bytes};
}

Result<std::unique_ptr<Communicator>> Communicator::create(Process& process, const UniqueId& id,
                                                           uint32_t rank_count, uint32_t rank,
                                                           const CommOptions& options, SetUpStop* stop) {
  std::unique_ptr<Communicator> comm(new Communicator(process, rank_count, rank, options));
  const uint64_t deadline_ns = deadline_after_ms(options.setup_timeout_ms);

  // Meet: from here on every rank learns of a failure of any other.
  auto meeting = Meeting::join(id, rank_count, rank, deadline_ns, stop);
  TUTTI_TRY(meeting.status());
  const Status hired = comm->start_workers();
  if (!hired) {
    meeting->fail(hired);
    return hired;
  }
  if (rank_count == 1) {
    comm->cores_ = core_count(usable_cpus(), cpu_quota());
    comm->choose_waiting();
    comm->own_header_ = std::make_unique<SegmentHeader>();
    comm->header_ = comm->own_header_.get();
    TUTTI_TRY(meeting->all_gather({}, {}, true).status());
    return comm;
  }

  // Describe: this rank's shared memory exists, empty.
  auto memory = create_memory("tutti-segment", comm->shape_.bytes());
  if (!memory) {
    meeting->fail(memory.status());
    return memory.status();
  }
  auto mapping = map_memory(*memory, comm->shape_.bytes());
  if (!mapping) {
    meeting->fail(mapping.status());
    return mapping.status();
  }
  comm->segment_ = std::make_shared<Segment>(std::move(*mapping), comm->shape_);
  comm->header_ = &comm->segment_->header();
  prefault_rings(*comm->segment_, comm->shape_);
  const auto key = reinterpret_cast<uint64_t>(comm->header_);
  process.add_segment(key, comm->segment_);
  const RankFacts facts{.process = process.token(),
                        .segment_key = key,
                        .token_address = reinterpret_cast<uint64_t>(process.token().data()),
                        .pid = getpid(),
                        .heap_base = reinterpret_cast<uint64_t>(process.heap().base()),
                        .heap_bytes = process.heap().bytes(),
                        .slots = comm->shape_.slots,
                        .slot_bytes = comm->shape_.slot_bytes,
                        .cpus = usable_cpus(),
                        .cpu_quota = cpu_quota(),
                        .reproducible = options.reproducible ? 1u : 0u,
                        .threads = options.threads,
                        .stripe_bytes = process.config().stripe_bytes,
                        .choice = hash_of_choice(process)};
  const std::array<int, 3> files = {memory->get(), process.heap().fd(), process.life_fd()};
  auto introductions = meeting->all_gather(as_bytes(facts), files, false);
  TUTTI_TRY(introductions.status());

  // Choose and connect: nothing that follows depends on when ranks do it.
  const Status connected = comm->connect(*meeting, std::move(*introductions));
  if (!connected) {
    meeting->fail(connected);
    return connected;
  }
  // Every rank has what it needs: from here on a rank that ends is found by its life descriptor.
  TUTTI_TRY(meeting->all_gather({}, {}, true).status());
  return comm;
}

/// The threads that help the caller, and their places for links.
Status Communicator::start_workers() {
  if (options_.threads == 1) return Status::ok();
  auto workers = Workers::start(options_.threads - 1);
  TUTTI_TRY(workers.status());
  workers_ = std::move(*workers);
  for (uint32_t i = 1; i < options_.threads; ++i) stripe_links_.push_back(std::make_unique<SegmentLinks>());
  return Status::ok();
}

Status Communicator::connect(Meeting& /*meeting*/, std::vector<Introduction> introductions) {
  const RankFacts first = facts_of(introductions[0]);
  // All ranks find the same difference, before any looks for what another that has found it may have dropped.
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    TUTTI_TRY(compare(peer, facts_of(introductions[peer]), first));
  }
  std::vector<SegmentLinks::Peer> peers(rank_count_);
  CpuSet cpus;
  uint32_t quota = first.cpu_quota;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    const RankFacts theirs = facts_of(introductions[peer]);
    cpus |= theirs.cpus;
    if (theirs.cpu_quota != 0) quota = quota == 0 ? theirs.cpu_quota : std::min(quota, theirs.cpu_quota);
    if (theirs.process == process_.token()) {
      peers[peer].segment = process_.find_segment(theirs.segment_key);
      peers[peer].same_process = true;
      if (peers[peer].segment == nullptr)
        return {Code::kPeerLost, format("rank %u, a thread of this process, has failed in its set-up", peer)};
      continue;
    }
    one_process_ = false;
    auto mapping = map_memory(introductions[peer].files[0], shape_.bytes());
    TUTTI_TRY(mapping.status());
    auto heap = process_.peer_heap(theirs.process, introductions[peer].files[1], theirs.heap_bytes);
    TUTTI_TRY(heap.status());
    // The links keep the heap mapped: its life is tied to the segment's.
    auto* both =
        new std::pair<Segment, std::shared_ptr<PeerHeap>>(Segment(std::move(*mapping), shape_), *heap);
    const std::shared_ptr<std::pair<Segment, std::shared_ptr<PeerHeap>>> owner(both);
    peers[peer].segment = std::shared_ptr<Segment>(owner, &owner->first);
    peers[peer].pull_pid = pull_pid(theirs);
    peers[peer].reference_offset = reinterpret_cast<uint64_t>((*heap)->mapping.base()) - theirs.heap_base;
  }
  cores_ = core_count(cpus, quota);
  for (uint32_t i = 0; i < stripe_links_.size(); ++i) stripe_links_[i]->connect(shape_, rank_, i + 1, peers);
  links_.connect(shape_, rank_, 0, std::move(peers));
  choose_waiting();
  return watch_life(introductions);
}

/// Spins only where every thread that may be at work has a core.
void Communicator::choose_waiting() {
  const auto mode_of = [this](uint32_t threads) {
    const WaitMode wanted = process_.config().wait;
    if (wanted != WaitMode::kAuto) return wanted;
    return rank_count_ * threads <= cores_ ? WaitMode::kSpin : WaitMode::kYield;
  };
  wait_mode_ = mode_of(1);
  striped_wait_mode_ = mode_of(options_.threads);
  waiter_ = Waiter(wait_mode_);
}

/// Watches one life descriptor of every other process.
Status Communicator::watch_life(std::vector<Introduction>& introductions) {
  std::vector<Process::Token> seen = {process_.token()};
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    const Process::Token token = facts_of(introductions[peer]).process;
    if (std::find(seen.begin(), seen.end(), token) != seen.end()) continue;
    seen.push_back(token);
    std::vector<uint32_t> ranks;
    for (uint32_t other = peer; other < rank_count_; ++other) {
      if (facts_of(introductions[other]).process == token) ranks.push_back(other);
    }
    FileDescriptor life = std::move(introductions[peer].files[2]);
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
  for (const FileDescriptor& life : lives_) process_.control().forget(life.get());
}

void SegmentLinks::connect(const SegmentShape& shape, uint32_t rank, uint32_t stripe,
                           std::vector<Peer> peers) {
  shape_ = shape;
  rank_ = rank;
  stripe_ = stripe;
  peers_ = std::move(peers);
}

SendLink* SegmentLinks::send_link(uint32_t peer, uint32_t channel) {
  auto& link = send_[uint64_t{channel} << 32 | peer];
  if (link == nullptr) {
    link = std::make_unique<SendLink>(SendLink::at(
        peers_[rank_].segment->peer_ring(channel_of_stripe(stripe_, channel), peer), shape_.peer_ring()));
    link->peer = peer;
    link->same_process = peers_[peer].same_process;
  }
  return link.get();
}

RecvLink* SegmentLinks::recv_link(uint32_t peer, uint32_t channel) {
  auto& link = recv_[uint64_t{channel} << 32 | peer];
  if (link == nullptr) {
    std::byte* ring = peers_[peer].segment->peer_ring(channel_of_stripe(stripe_, channel), rank_);
    link = open_recv(peer, RecvLink::at(ring, shape_.peer_ring(), 0));
  }
  return link.get();
}

/// Completes a reading end, and tells the writer what this rank can do.
std::unique_ptr<RecvLink> SegmentLinks::open_recv(uint32_t peer, RecvLink link) {
  link.peer = peer;
  link.reference_offset = peers_[peer].reference_offset;
  if (peers_[peer].pull_pid != 0) {
    link.pull_pid = peers_[peer].pull_pid;
    bounces_.push_back(std::make_unique<Bounce>(size_t{kBounceSlots} * shape_.slot_bytes));
    link.bounce = bounces_.back()->data();
    link.bounce_bytes = bounces_.back()->size();
    link.credit->can_pull.store(1, std::memory_order_relaxed);
  }
  return std::make_unique<RecvLink>(link);
}

SendLink* SegmentLinks::publish_link() {
  if (publish_ == nullptr) {
    publish_ = std::make_unique<SendLink>(
        SendLink::at(peers_[rank_].segment->publish_ring(stripe_), shape_.publish_ring()));
    publish_->peer = rank_;
    publish_->self_reader = rank_;
    publish_->same_process =
        std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.same_process; });
  }
  return publish_.get();
}

RecvLink* SegmentLinks::published_by(uint32_t peer) {
  auto& link = published_[peer];
  if (link == nullptr) {
    std::byte* ring = peers_[peer].segment->publish_ring(stripe_);
    link = open_recv(peer, RecvLink::at(ring, shape_.publish_ring(), rank_));
  }
  return link.get();
}

PeerWindow SegmentLinks::window(uint32_t peer) {
  const Peer& at = peers_[peer];
  return {.window = &at.segment->header().window,
          .reference_offset = at.reference_offset,
          .same_process = at.same_process};
}

}  // namespace tutti
