#include "tests/kernels/case.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/result.h"
#include "tests/sim/reference.h"

namespace tutti::test {
namespace {

using Bytes = std::vector<std::byte>;

bool reads_input(const Request& request, uint32_t rank) {
  return rank == request.root ||
         (request.collective != Collective::kBroadcast && request.collective != Collective::kScatter);
}
bool writes_output(const Request& request, uint32_t rank) {
  return rank == request.root ||
         (request.collective != Collective::kReduce && request.collective != Collective::kGather);
}

/// Inputs and expectations of one call.
class Work {
 public:
  Work(const Request& request, uint64_t seed) : request_(request) {
    const uint32_t inputs = input_blocks(request.collective, request.rank_count);
    for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
      inputs_.emplace_back(inputs * request.block_bytes);
      make_operands(request.type, seed * 100 + rank, inputs_.back());
    }
    if (!reduces(request.collective)) return;
    for (uint32_t block = 0; block < inputs; ++block) {
      std::vector<Bytes> operands;
      for (uint32_t rank = 0; rank < request.rank_count; ++rank) operands.push_back(input_block(rank, block));
      reduced_.push_back(reduce_all(request.type, request.op, operands));
    }
  }

  const Bytes& input(uint32_t rank) const { return inputs_[rank]; }

  /// What tutti.h says that the rank's output holds.
  Bytes output(uint32_t rank) const {
    const uint32_t blocks = output_blocks(request_.collective, request_.rank_count);
    Bytes all;
    for (uint32_t block = 0; block < blocks; ++block) {
      const Bytes one = output_block(rank, block);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  Bytes input_block(uint32_t rank, uint32_t block) const {
    const auto from = inputs_[rank].begin() + static_cast<ptrdiff_t>(block * request_.block_bytes);
    return {from, from + static_cast<ptrdiff_t>(request_.block_bytes)};
  }
  Bytes output_block(uint32_t rank, uint32_t block) const {
    switch (request_.collective) {
      case Collective::kReduceScatter: return reduced_[rank];
      case Collective::kBroadcast: return input_block(request_.root, 0);
      case Collective::kAllGather:
      case Collective::kGather: return input_block(block, 0);
      case Collective::kAllToAll: return input_block(block, rank);
      case Collective::kScatter: return input_block(request_.root, rank);
      case Collective::kBarrier: return Bytes(request_.block_bytes);  // of its own, read by nobody
      default: return reduced_[0];
    }
  }

  Request request_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> reduced_;
};

/// A rank's buffers between guards, at any alignment that the element allows.
class Memory {
 public:
  Memory(const Request& request, const Work& work, uint32_t rank, uint64_t skew) {
    const Bytes input = reads_input(request, rank) ? work.input(rank) : Bytes();
    const Bytes output = writes_output(request, rank) ? work.output(rank) : Bytes();
    const size_t start = kGuardBytes + skew * type_bytes(request.type);
    input_at_ = output_at_ = start;
    if (!request.in_place || input.empty() || output.empty()) {
      output_at_ = start + input.size() + kGuardBytes;
    } else if (output.size() > input.size()) {
      input_at_ = start + rank * input.size();
    } else {
      output_at_ = start + rank * output.size() * (input.size() > output.size() ? 1 : 0);
    }
    output_bytes_ = output.size();
    const size_t end = std::max(input_at_ + input.size(), output_at_ + output.size());
    bytes_.assign(end + kGuardBytes, std::byte{0xa5});
    std::copy(input.begin(), input.end(), bytes_.begin() + static_cast<ptrdiff_t>(input_at_));
    expected_ = bytes_;
    std::copy(output.begin(), output.end(), expected_.begin() + static_cast<ptrdiff_t>(output_at_));
  }
  CallBuffers buffers() { return {.input = bytes_.data() + input_at_, .output = bytes_.data() + output_at_}; }
  /// The first byte outside of the output that is not as it was, or -1.
  ptrdiff_t spoilt() const {
    for (size_t at = 0; at < bytes_.size(); ++at) {
      if (at >= output_at_ && at < output_at_ + output_bytes_) continue;
      if (bytes_[at] != expected_[at]) return static_cast<ptrdiff_t>(at);
    }
    return -1;
  }
  void overwrite() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0xee}); }
  std::string wrong() const {
    if (bytes_ == expected_) return {};
    const auto at = std::mismatch(bytes_.begin(), bytes_.end(), expected_.begin()).first - bytes_.begin();
    return format("byte %td is wrong (input at %zu, output at %zu, end %zu)", at, input_at_, output_at_,
                  bytes_.size());
  }

 private:
  static constexpr size_t kGuardBytes = 128;
  size_t input_at_ = 0;
  size_t output_at_ = 0;
  size_t output_bytes_ = 0;
  Bytes bytes_;
  Bytes expected_;
};

}  // namespace

Facts facts_of(const Case& c) {
  return {.can_publish = false,
          .can_multicast = c.world.multicast,
          .can_reference = c.refers,
          .slots = std::max(1u, c.world.shape.slots / c.slots_per_slice / 2),
          .slot_bytes = c.world.shape.slot_bytes};
}

std::string describe(const Case& c) {
  return format(
             "%s %s, %u ranks, root %u, %llu bytes of %s, %s%s%s%s%s, %u stripes, %u slots of %u, slices "
             "of %u, %u threads, keeps %x, ",
             std::string(collective_name(c.algorithm->collective)).c_str(),
             std::string(c.algorithm->name).c_str(), c.request.rank_count, c.request.root,
             static_cast<unsigned long long>(c.request.block_bytes),
             std::string(type_name(c.request.type)).c_str(), std::string(op_name(c.request.op)).c_str(),
             c.request.in_place ? ", in place" : "", c.request.reproducible ? ", reproducible" : "",
             c.refers ? (c.world.by_location ? ", by location" : ", by reference") : "",
             c.by_packets ? ", by packets" : "", c.stripes, c.world.shape.slots, c.world.shape.slot_bytes,
             c.slots_per_slice, c.world.threads, c.keeps) +
         (c.world.by_location
              ? format("ranks %x, %lld bytes of each buffer in registered memory, ", c.world.registered_ranks,
                       static_cast<long long>(c.world.registered_bytes))
              : std::string()) +
         format("poll limit %lld, %u block slots, %u of them kept, seed %llu",
                static_cast<long long>(c.world.poll_limit), c.world.device.block_slots, c.world.stay_blocks,
                static_cast<unsigned long long>(c.world.device.seed));
}

bool is_served(const Case& c) {
  const Facts facts = facts_of(c);
  if (!c.algorithm->supports(c.request, facts)) return false;
  for (uint32_t rank = 0; rank < c.request.rank_count; ++rank) {
    if (c.algorithm->make(c.request, facts, rank).slots_needed > c.world.shape.slots / c.slots_per_slice)
      return false;
  }
  return true;
}

namespace {

/// As if the other tables did not fit.
void keep_less(cuda::Image& image, uint32_t keeps) {
  for (cuda::Lane& lane : image.lanes) {
    if ((keeps & kKeepsLinks) == 0) lane.kept_sends = lane.kept_receives = 0;
    if ((keeps & kKeepsEnds) == 0) lane.kept_ends = 0;
    if ((keeps & kKeepsBytes) == 0) lane.kept_chunks = lane.kept_offsets = 0;
    if ((keeps & kKeepsSteps) == 0) lane.kept_steps = 0;
  }
}

}  // namespace

cuda::Image bind_rank(const Case& c, uint32_t rank, World& world) {
  const Plan plan = c.algorithm->make(c.request, facts_of(c), rank);
  std::vector<Geometry> stripes;
  for (uint32_t i = 0; i < c.stripes; ++i)
    stripes.push_back(Geometry::uniform(plan, c.request.block_bytes, {i, c.stripes}));
  const BindOptions options{.type = c.request.type,
                            .op = c.request.op,
                            .premul_scalar_bits = premul_scale_bits(),
                            .reproducible = c.request.reproducible,
                            .message_bytes = c.request.block_bytes,
                            .reference_bytes = c.refers ? 1 : UINT64_MAX,
                            .direct_writes = c.refers,
                            .slots = c.world.shape.slots / c.slots_per_slice,
                            .slot_bytes = c.world.shape.slot_bytes * c.slots_per_slice};
  cuda::Image image = c.by_packets ? cuda::bind_short(plan, stripes, options, world.mail(rank))
                                   : cuda::bind(plan, stripes, options, world.links(rank));
  keep_less(image, c.keeps);
  image.signature_seed = hash_bytes(&c.request.block_bytes, sizeof c.request.block_bytes);
  return image;
}

namespace {

/// The buffers of all ranks in one call.
std::vector<Memory> make_memory(const Case& c, uint32_t call) {
  const Work work(c.request, c.world.device.seed * 10 + call);
  std::vector<Memory> memory;
  for (uint32_t rank = 0; rank < c.request.rank_count; ++rank)
    memory.emplace_back(c.request, work, rank, (c.world.device.seed + rank * call) % 5);
  return memory;
}

/// What is wrong with a rank whose call number `call` has just ended. Its memory is overwritten.
std::string check_rank(const Case& c, World& world, uint32_t rank, uint32_t call, Memory& memory) {
  // A barrier moves nothing that anybody reads.
  const bool moves = c.request.collective != Collective::kBarrier;
  const std::string bytes = moves ? memory.wrong() : "";
  memory.overwrite();
  if (world.launch_end(rank) != cuda::LaunchEnd::kDone || world.state(rank).sequence != call)
    return format("call %u, rank %u is not done", call, rank);
  const cuda::LaunchReport report = world.report(rank);
  if (report.sequence != call || report.ended != call)
    return format("call %u, rank %u does not tell its host so", call, rank);
  return bytes.empty() ? bytes : format("call %u, rank %u: ", call, rank) + bytes;
}

}  // namespace

std::string run(const Case& c) {
  WorldOptions options = c.world;
  options.ranks = c.request.rank_count;
  World world(options);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) world.set_program(rank, bind_rank(c, rank, world));
  std::string wrong;
  std::vector<Memory> memory;
  uint32_t call = 1;
  world.on_ended = [&](uint32_t rank) {
    const std::string defect = check_rank(c, world, rank, call, memory[rank]);
    if (!defect.empty()) wrong = defect;
  };
  for (; call <= c.calls && wrong.empty(); ++call) {
    memory = make_memory(c, call);
    std::vector<CallBuffers> buffers;
    for (Memory& of : memory) buffers.push_back(of.buffers());
    const std::string wait = world.call(buffers);
    if (wrong.empty()) wrong = wait;
  }
  return wrong.empty() ? wrong : describe(c) + ": " + wrong;
}

std::string run_in_sequence(const std::vector<Case>& cases) {
  WorldOptions options = cases[0].world;
  options.ranks = cases[0].request.rank_count;
  World world(options);
  std::vector<std::vector<Memory>> memory;
  for (const Case& c : cases) memory.push_back(make_memory(c, static_cast<uint32_t>(memory.size()) + 1));
  std::vector<uint32_t> ended(options.ranks, 0);
  std::string wrong;
  world.on_ended = [&](uint32_t rank) {
    const uint32_t call = ended[rank]++;
    const std::string defect = check_rank(cases[call], world, rank, call + 1, memory[call][rank]);
    if (wrong.empty() && !defect.empty()) wrong = describe(cases[call]) + ": " + defect;
  };
  const auto prepare = [&](uint32_t rank, uint32_t call) {
    world.set_program(rank, bind_rank(cases[call], rank, world));
    return memory[call][rank].buffers();
  };
  const std::string wait = world.calls(static_cast<uint32_t>(cases.size()), prepare);
  return wrong.empty() ? wait : wrong;
}

namespace {

/// The hosts of ranks in trouble: who asks for an end, and when.
class Hosts {
 public:
  Hosts(World& world, const Case& c, const Trouble& trouble) : world_(world), case_(c), trouble_(trouble) {
    if (!trouble.makes_another_call) all_ask_at_ = trouble.turn + trouble.delay;
    world.on_turn = [this] { take_turn(); };
    world.on_stuck = [this] {
      all_ask_at_ = std::min(all_ask_at_, turns_);
      return ++stuck_ < kMostStuck;
    };
    world.on_ended = [this](uint32_t rank) {
      if (world_.launch_end(rank) == cuda::LaunchEnd::kMismatch)
        all_ask_at_ = std::min(all_ask_at_, turns_ + trouble_.delay);
    };
  }

 private:
  /// So many polls until a wait looks around, and more.
  static constexpr uint64_t kMostStuck = 10'000;

  void ask(uint32_t rank) { __atomic_store_n(&world_.signals(rank).abort, 1, __ATOMIC_RELEASE); }
  void take_turn() {
    if (!trouble_.makes_another_call && turns_ == trouble_.turn) ask(trouble_.rank);
    if (turns_ >= all_ask_at_) {
      for (uint32_t rank = 0; rank < case_.request.rank_count; ++rank) ask(rank);
    }
    ++turns_;
  }

  World& world_;
  const Case& case_;
  const Trouble& trouble_;
  uint64_t turns_ = 0;
  uint64_t all_ask_at_ = UINT64_MAX;
  uint64_t stuck_ = 0;
};

/// Whether a mismatch is due to the rank that makes another call, and shows the message that came.
bool is_true_mismatch(World& world, uint32_t rank, const Trouble& trouble) {
  const cuda::Obstacle obstacle = world.report(rank).obstacle;
  if (!trouble.makes_another_call || (rank != trouble.rank && obstacle.peer != trouble.rank)) return false;
  const bool is_due = ((obstacle.word ^ obstacle.expected) & flag::kNumberMask) == 0;
  return is_due && flag::signature(obstacle.word) != flag::signature(obstacle.expected);
}

bool all_are_done(World& world, uint32_t ranks) {
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (world.launch_end(rank) != cuda::LaunchEnd::kDone) return false;
  }
  return true;
}

/// What is wrong with a rank that has ended its call number `call` in trouble.
std::string check_end(const Case& c, World& world, uint32_t rank, uint32_t call, const Trouble& trouble,
                      const Memory& memory) {
  if (world.report(rank).ended != call || world.signals(rank).done != 1) return "has not ended";
  const bool moves = c.request.collective != Collective::kBarrier;
  if (moves && memory.spoilt() >= 0)
    return format("byte %td outside of its output is spoilt", memory.spoilt());
  switch (world.launch_end(rank)) {
    case cuda::LaunchEnd::kDone: return moves ? memory.wrong() : "";
    case cuda::LaunchEnd::kAborted: return {};
    case cuda::LaunchEnd::kMismatch:
      return is_true_mismatch(world, rank, trouble) ? "" : "blames the wrong rank";
    default: return "has left for no reason";
  }
}

}  // namespace

std::string run_into_trouble(const Case& c, const Trouble& trouble) {
  WorldOptions options = c.world;
  options.ranks = c.request.rank_count;
  World world(options);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) world.set_program(rank, bind_rank(c, rank, world));
  if (trouble.makes_another_call) world.program(trouble.rank).signature_seed ^= 0x1234567;
  const Hosts hosts(world, c, trouble);
  std::string wrong;
  std::vector<std::vector<Memory>> memory;
  for (uint32_t call = 1; call <= 2 && wrong.empty(); ++call) {
    memory.push_back(make_memory(c, call));
    std::vector<CallBuffers> buffers;
    for (Memory& of : memory.back()) buffers.push_back(of.buffers());
    wrong = world.call(buffers);
    for (uint32_t rank = 0; rank < options.ranks && wrong.empty(); ++rank) {
      const std::string defect = check_end(c, world, rank, call, trouble, memory.back()[rank]);
      if (!defect.empty()) wrong = format("call %u, rank %u: ", call, rank) + defect;
    }
    if (wrong.empty() && trouble.makes_another_call && c.request.block_bytes > 0 &&
        all_are_done(world, options.ranks))
      wrong = "nobody notices that the calls differ";
  }
  if (wrong.empty()) return wrong;
  return describe(c) +
         format(", rank %u %s, turn %llu, %llu later: ", trouble.rank,
                trouble.makes_another_call ? "makes another call" : "is ended",
                static_cast<unsigned long long>(trouble.turn),
                static_cast<unsigned long long>(trouble.delay)) +
         wrong;
}

std::string run_through_numbers(Kernel short_kernel) {
  constexpr uint64_t kNumbers = cuda::kEpochMask + 1;
  Case c;
  c.algorithm = find_algorithm(Collective::kAllReduce, "direct_one_shot");
  c.request = {.collective = Collective::kAllReduce, .rank_count = 2, .type = DataType::kUint32};
  c.by_packets = true;
  // One block at a time: the first one polls before the other has pushed.
  World world({.threads = 4, .poll_limit = 3, .device = {.block_slots = 1}, .short_kernel = short_kernel});
  // The calls that are skipped are as if each had sent one packet to each rank.
  const auto make_calls = [&](uint64_t numbers_before, uint32_t count, uint64_t bytes) {
    c.request.block_bytes = bytes;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      world.set_program(rank, bind_rank(c, rank, world));
      world.state(rank).short_calls = numbers_before;
    }
    for (uint32_t call = 0; call < count; ++call) {
      std::vector<Memory> memory = make_memory(c, call);
      std::string wrong = world.call({memory[0].buffers(), memory[1].buffers()});
      for (uint32_t rank = 0; rank < 2 && wrong.empty(); ++rank) wrong = memory[rank].wrong();
      if (!wrong.empty())
        return format("call %llu: ", static_cast<unsigned long long>(numbers_before) + call + 1) + wrong;
    }
    return std::string();
  };
  std::string wrong;
  for (uint64_t turn = 0; turn < 3 && wrong.empty(); ++turn) {
    const uint64_t first = turn * kNumbers;
    // As many packets as a call renews.
    wrong = make_calls(first, 2, cuda::kRenewedPackets * kFullPacketDataBytes);
    // Small ones, those that renew the flags of these packets among them.
    if (wrong.empty()) wrong = make_calls(first + cuda::kRenewalPeriod - 2, 4, 8);
    if (wrong.empty()) wrong = make_calls(first + kNumbers - 2, 2, 8);
  }
  return wrong;
}

}  // namespace tutti::test
