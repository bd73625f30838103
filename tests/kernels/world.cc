#include "tests/kernels/world.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace tutti::test {
namespace {

constexpr uint32_t kPlainChannels = channels_of_stripes(World::kStripes);
/// Behind the others: one for each stripe and use of multicast memory.
constexpr uint32_t kChannels = kPlainChannels + 3 * World::kStripes;

/// Parts of messages behind the first one.
uint32_t message_channel(uint32_t part) {
  return part == 0 ? kMessageChannel : kPlainChannels + 2 * World::kStripes + part;
}

uint32_t multicast_channel(uint32_t stripe, cuda::Multicast use) {
  return kPlainChannels + 2 * stripe + static_cast<uint32_t>(use);
}

/// With spare ones for slices that begin in the last slot.
uint64_t slots_bytes(const RingShape& shape) {
  return uint64_t{shape.slots + World::kMostSlotsPerSlice} * shape.slot_bytes;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

/// The number of every rank's registered memory, and where the simulated ranks say that theirs begins:
/// somewhere below all buffers, and nowhere the same.
constexpr uint64_t kRegisteredMemory = 7;
uint64_t registered_start(uint32_t rank) {
  return 64 * uint64_t{rank + 1};
}

}  // namespace

struct World::Rank {
  std::vector<cuda::SendLink> sends;
  std::vector<cuda::RecvLink> receives;
  cuda::RankState state{};
  cuda::Signals signals{};
  ExposedBuffer exposed{};
  std::vector<Line> program;
  std::vector<Line> scratch;
  std::vector<Line> mail;       ///< a mailbox a rank
  std::vector<Line> multicast;  ///< its copy of the slots in multicast memory
  std::vector<uint64_t> registered =
      std::vector<uint64_t>(kRegisteredMemory + 1);  ///< where peers find this rank's
  std::unique_ptr<Index> index;
  uint64_t left_seen = 0;
  bool ended = false;

  cuda::Program& packed() { return *reinterpret_cast<cuda::Program*>(program.data()); }
};

/// Makes both ends of a ring when one is asked for.
class World::Index final : public cuda::LinkIndex {
 public:
  Index(World& world, uint32_t rank) : world_(world), rank_(rank) {}

  uint32_t send(uint32_t peer, cuda::LinkName name) override { return send_on(peer, channel_of(name)); }
  uint32_t receive(uint32_t peer, cuda::LinkName name) override { return receive_on(peer, channel_of(name)); }
  uint32_t send_on(uint32_t peer, uint32_t channel) {
    cuda::SendLink& link = world_.ranks_[rank_]->sends[number(peer, channel)];
    if (link.cells != nullptr) return number(peer, channel);
    const RingShape& shape = world_.options_.shape;
    const auto end = SendLink::at(world_.ring_memory(rank_, peer, channel).bytes(), shape);
    link.cells = end.cells;
    link.credit = end.credits;
    link.slots = end.slots;
    link.slot_mask = end.slot_mask;
    link.slot_bytes = end.slot_bytes;
    link.peer = peer;
    link.same_memory = world_.options_.by_location ? 0 : 1;
    link.limit = end.limit;
    return number(peer, channel);
  }
  uint32_t receive_on(uint32_t peer, uint32_t channel) {
    cuda::RecvLink& link = world_.ranks_[rank_]->receives[number(peer, channel)];
    if (link.cells != nullptr) return number(peer, channel);
    const RingShape& shape = world_.options_.shape;
    const auto end = RecvLink::at(world_.ring_memory(peer, rank_, channel).bytes(), shape, 0);
    link.cells = end.cells;
    link.credit = end.credit;
    link.slots = end.slots;
    link.slot_mask = end.slot_mask;
    link.slot_bytes = end.slot_bytes;
    link.peer = peer;
    link.credit_mask = end.credit_mask;
    link.registered = registered(peer);
    return number(peer, channel);
  }
  uint32_t send_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    const uint32_t at = send_on(peer, multicast_channel(stripe, use));
    const bool collected = use == cuda::Multicast::kCollect;
    cuda::SendLink& link = world_.ranks_[rank_]->sends[at];
    link.slots = (collected ? own_copy() : everybody()) + slots_at(collected ? peer : rank_, stripe, use);
    link.by_slot = 1;
    link.comes_back = collected ? 1 : 0;
    return at;
  }
  uint32_t receive_multicast(uint32_t peer, uint32_t stripe, cuda::Multicast use) override {
    const uint32_t at = receive_on(peer, multicast_channel(stripe, use));
    const bool collects = use == cuda::Multicast::kCollect;
    cuda::RecvLink& link = world_.ranks_[rank_]->receives[at];
    link.slots = (collects ? everybody() : own_copy()) + slots_at(collects ? rank_ : peer, stripe, use);
    if (collects) link.credit_mask = 0;
    return at;
  }
  cuda::PeerExposedBuffer exposed_buffer(uint32_t peer) override {
    return {.buffer = &world_.ranks_[peer]->exposed, .registered = registered(peer)};
  }

 private:
  const uint64_t* registered(uint32_t peer) const {
    return world_.options_.by_location ? world_.ranks_[peer]->registered.data() : nullptr;
  }
  std::byte* own_copy() const { return world_.ranks_[rank_]->multicast[0].bytes; }
  std::byte* everybody() const { return world_.multicast_->begin(); }
  /// Where the slots begin that rank `owner` collects from or publishes in.
  uint64_t slots_at(uint32_t owner, uint32_t stripe, cuda::Multicast use) const {
    const uint64_t ring = uint64_t{owner} * 2 * kStripes + 2 * stripe + static_cast<uint32_t>(use);
    return ring * slots_bytes(world_.options_.shape);
  }
  static uint32_t channel_of(cuda::LinkName name) {
    if (name.channel == kMessageChannel) return message_channel(name.stripe);
    return channel_of_stripe(name.stripe, name.channel);
  }
  static uint32_t number(uint32_t peer, uint32_t channel) { return peer * kChannels + channel; }

  World& world_;
  uint32_t rank_;
};

World::World(const WorldOptions& options)
    : options_(options), device_(options.device), buffers_(options.ranks) {
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    auto made = std::make_unique<Rank>();
    made->sends.resize(size_t{options.ranks} * kChannels);
    made->receives.resize(size_t{options.ranks} * kChannels);
    made->state.exposed = &made->exposed;
    if (options.short_kernel != nullptr)
      made->mail.resize(size_t{options.ranks} * cuda::kMailboxBytes / sizeof(Line));
    made->registered[kRegisteredMemory] = registered_start(rank);
    made->index = std::make_unique<Index>(*this, rank);
    ranks_.push_back(std::move(made));
  }
  if (options.multicast) make_multicast_memory();
}

void World::make_multicast_memory() {
  const size_t bytes = size_t{options_.ranks} * 2 * kStripes * slots_bytes(options_.shape);
  std::vector<std::byte*> copies;
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    rank->multicast.resize(bytes / sizeof(Line));
    copies.push_back(rank->multicast[0].bytes);
  }
  multicast_ = std::make_unique<simt::MulticastMemory>(std::move(copies), bytes);
}

World::~World() = default;

RingMemory& World::ring_memory(uint32_t writer, uint32_t reader, uint32_t channel) {
  std::unique_ptr<RingMemory>& ring = rings_[{writer, reader, channel}];
  if (ring == nullptr) {
    RingShape with_spare = options_.shape;
    with_spare.slots += kMostSlotsPerSlice;
    ring = std::make_unique<RingMemory>(with_spare);
  }
  return *ring;
}

void World::begin_at(uint64_t number) {
  const RingShape& shape = options_.shape;
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    for (cuda::SendLink& link : rank->sends) {
      if (link.cells == nullptr) continue;
      link.next = number;
      link.limit = number + shape.slots;
      link.credit->released = number;
      for (uint64_t past = number - shape.slots; past < number; ++past)
        link.cells[past & link.slot_mask].word = flag::make(past, 0, 0);
    }
    for (cuda::RecvLink& link : rank->receives) link.next = number;
  }
}

cuda::LinkIndex& World::links(uint32_t rank) {
  return *ranks_[rank]->index;
}
cuda::Signals& World::signals(uint32_t rank) {
  return ranks_[rank]->signals;
}
cuda::LaunchReport World::report(uint32_t rank) {
  cuda::Signals& signals = ranks_[rank]->signals;
  const uint64_t left = __atomic_load_n(&signals.left, __ATOMIC_ACQUIRE);
  std::array<uint64_t, cuda::kReportWords> words{};
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = __atomic_load_n(&signals.report[cuda::report_slot(left)][i], __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < cuda::kReportCounts; ++i) {
    const cuda::StampedCount& count = signals.counts[cuda::report_slot(left)][i];
    // The count belongs to `left`, or to nothing before the first launch.
    words[i] = __atomic_load_n(&count.left, __ATOMIC_ACQUIRE) == left
                   ? __atomic_load_n(&count.count, __ATOMIC_ACQUIRE)
                   : UINT64_MAX;
  }
  return std::bit_cast<cuda::LaunchReport>(words);
}
cuda::RankState& World::state(uint32_t rank) {
  return ranks_[rank]->state;
}
cuda::Program& World::program(uint32_t rank) {
  return ranks_[rank]->packed();
}
cuda::SendLink& World::send_link(uint32_t rank, uint32_t peer, uint32_t channel) {
  return ranks_[rank]->sends[ranks_[rank]->index->send_on(peer, channel)];
}
cuda::RecvLink& World::receive_link(uint32_t rank, uint32_t peer, uint32_t channel) {
  return ranks_[rank]->receives[ranks_[rank]->index->receive_on(peer, channel)];
}
cuda::LaunchEnd World::launch_end(uint32_t rank) const {
  return static_cast<cuda::LaunchEnd>(ranks_[rank]->left_seen & ((1u << cuda::kLaunchEndBits) - 1));
}

std::vector<cuda::MailLink> World::mail(uint32_t rank) const {
  const auto mailbox = [this](uint32_t of, uint32_t from) {
    return reinterpret_cast<uint64_t>(ranks_[of]->mail.data()) + uint64_t{from} * cuda::kMailboxBytes;
  };
  std::vector<cuda::MailLink> links;
  for (uint32_t peer = 0; peer < options_.ranks; ++peer)
    links.push_back({.out = mailbox(peer, rank), .in = mailbox(rank, peer)});
  return links;
}

Kernel World::kernel_of(uint32_t rank) const {
  return ranks_[rank]->packed().short_lanes != nullptr ? options_.short_kernel : options_.kernel;
}

void World::set_program(uint32_t rank, const cuda::Image& image) {
  Rank& here = *ranks_[rank];
  here.scratch.assign(image.scratch_bytes / sizeof(Line) + 1, Line{});
  here.program.assign(cuda::packed_bytes(image) / sizeof(Line) + 1, Line{});
  const cuda::Surroundings around{.sends = here.sends.data(),
                                  .receives = here.receives.data(),
                                  .state = &here.state,
                                  .signals = &here.signals,
                                  .scratch = reinterpret_cast<unsigned char*>(here.scratch.data())};
  cuda::pack(image, around, reinterpret_cast<uint64_t>(here.program.data()), here.program[0].bytes);
}

Reach World::reach(uint32_t rank, const void* buffer) const {
  if (!options_.by_location || (options_.registered_ranks >> rank & 1) == 0) return {};
  return {.location = (kRegisteredMemory << cuda::kLocationShift) + reinterpret_cast<uint64_t>(buffer) -
                      registered_start(rank),
          .bytes = options_.registered_bytes};
}

cuda::Part World::part(uint32_t rank, uint32_t first_block) const {
  const CallBuffers& buffers = buffers_[rank];
  cuda::Program& program = ranks_[rank]->packed();
  return {.program = &program,
          .input = buffers.input,
          .output = buffers.output,
          .scale = buffers.scale,
          .first_block = first_block,
          .block_count = options_.stay_blocks > 0 ? std::min(options_.stay_blocks, program.lane_count)
                                                  : program.lane_count,
          .input_reach = reach(rank, buffers.input),
          .output_reach = reach(rank, buffers.output)};
}

cuda::Launch World::new_launch(uint32_t parts) const {
  cuda::Launch launch{};
  launch.part_count = parts;
  launch.first = 1;
  launch.stays = options_.stay_blocks > 0 ? 1 : 0;
  launch.poll_limit = options_.poll_limit;
  return launch;
}

void World::launch(uint32_t rank, bool first) {
  cuda::Launch launch = new_launch(1);
  launch.parts[0] = first ? part(rank, 0) : report(rank).part;
  launch.parts[0].first_block = 0;
  launch.first = first ? 1 : 0;
  ++launches_;
  device_.launch({.name = "rank " + std::to_string(rank),
                  .stream = rank + 1,
                  .blocks = launch.parts[0].block_count,
                  .threads = options_.threads,
                  .body = [kernel = kernel_of(rank), launch] { kernel(launch); }});
}

void World::launch_together() {
  cuda::Launch launch = new_launch(options_.ranks);
  uint32_t blocks = 0;
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    launch.parts[rank] = part(rank, blocks);
    blocks += launch.parts[rank].block_count;
  }
  ++launches_;
  device_.launch({.name = "all ranks",
                  .blocks = blocks,
                  .threads = options_.threads,
                  .body = [kernel = kernel_of(0), launch] { kernel(launch); }});
}

/// What the host does when a rank's launch has left. Whether the rank's call has ended.
bool World::snapshot_of(uint32_t rank) {
  Rank& here = *ranks_[rank];
  const uint64_t left = __atomic_load_n(&here.signals.left, __ATOMIC_ACQUIRE);
  if (left == here.left_seen) return here.ended;
  here.left_seen = left;
  const cuda::LaunchEnd said = launch_end(rank);
  here.ended = said != cuda::LaunchEnd::kUnfinished && said != cuda::LaunchEnd::kGoesOn;
  if (said == cuda::LaunchEnd::kUnfinished) launch(rank, false);
  if (said == cuda::LaunchEnd::kDone) forget_contributions(rank);
  if (here.ended && on_ended) on_ended(rank);
  return here.ended;
}

/// As if the rank had gone with what it has contributed.
void World::forget_contributions(uint32_t rank) {
  if (multicast_ == nullptr) return;
  const size_t ring_lines = slots_bytes(options_.shape) / sizeof(Line);
  std::vector<Line>& slots = ranks_[rank]->multicast;
  for (size_t ring = 0; ring < slots.size() / ring_lines; ring += 2)
    std::memset(&slots[ring * ring_lines], 0x5a, ring_lines * sizeof(Line));
}

void World::launch_alone(uint32_t rank, const CallBuffers& buffers, bool first) {
  buffers_[rank] = buffers;
  launch(rank, first);
  device_.run([this] {
    if (on_turn) on_turn();
    return on_turn != nullptr;
  });
}

void World::abort_amid(uint32_t rank) {
  on_turn = [this, rank, turns = 0]() mutable {
    if (++turns == 5) __atomic_store_n(&signals(rank).abort, 1, __ATOMIC_RELEASE);
  };
}

cuda::LaunchEnd World::look(uint32_t rank) {
  ranks_[rank]->left_seen = __atomic_load_n(&ranks_[rank]->signals.left, __ATOMIC_ACQUIRE);
  return launch_end(rank);
}

std::string World::call(const std::vector<CallBuffers>& buffers) {
  buffers_ = buffers;
  for (const std::unique_ptr<Rank>& rank : ranks_) rank->ended = false;
  if (options_.together) {
    launch_together();
  } else {
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) launch(rank, true);
  }
  return run_until_all([this] {
    bool all_ended = true;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) all_ended = snapshot_of(rank) && all_ended;
    return all_ended;
  });
}

std::string World::calls(uint32_t count,
                         const std::function<CallBuffers(uint32_t rank, uint32_t call)>& prepare) {
  std::vector<uint32_t> begun(options_.ranks, 0);
  buffers_.resize(options_.ranks);
  for (const std::unique_ptr<Rank>& rank : ranks_) rank->ended = true;
  return run_until_all([&] {
    bool all_ended = true;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const bool goes_on = (begun[rank] == 0 || snapshot_of(rank)) && begun[rank] < count;
      if (goes_on) {
        buffers_[rank] = prepare(rank, begun[rank]++);
        ranks_[rank]->ended = false;
        launch(rank, true);
      }
      all_ended = all_ended && ranks_[rank]->ended;
    }
    return all_ended;
  });
}

/// Runs the device until it is idle and all have ended.
std::string World::run_until_all(const std::function<bool()>& have_ended) {
  for (uint64_t turns = 0; turns < options_.most_turns; ++turns) {
    const simt::Turn turn = device_.turn();
    if (on_turn) on_turn();
    const bool all_ended = have_ended();
    if (turn == simt::Turn::kIdle && all_ended) {
      device_.run();
      return {};
    }
    if (turn == simt::Turn::kStuck && !(on_stuck && on_stuck())) return "stuck: " + device_.report();
  }
  return "no end: " + device_.report();
}

void World::launch_behind(uint32_t rank, std::function<void()> body) {
  device_.launch({.name = "behind", .stream = rank + 1, .threads = 4, .body = std::move(body)});
}

}  // namespace tutti::test
