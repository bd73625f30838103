// Workload: buffers, expectations and checks of one collective. See workload.h.
#include "tests/sim/workload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/result.h"
#include "tests/sim/reference.h"

namespace tutti::test {
namespace {

constexpr size_t kGuardBytes = 128;
constexpr std::byte kGuard{0xa5};
constexpr size_t kGapBytes = 24;  ///< between blocks of variable size

size_t extent_end(const std::vector<Extent>& blocks) {
  size_t end = 0;
  for (const Extent& block : blocks) end = std::max<size_t>(end, block.offset + block.bytes);
  return end;
}

bool has_input(Collective collective, uint32_t rank, uint32_t root) {
  return rank == root || (collective != Collective::kBroadcast && collective != Collective::kScatter);
}

bool has_output(Collective collective, uint32_t rank, uint32_t root) {
  return rank == root || (collective != Collective::kReduce && collective != Collective::kGather);
}

uint64_t mix_seed(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  return SimRandom(seed ^ (a << 40) ^ (b << 20) ^ c).next();
}

/// Operator != compares byte by byte, which took half of the time under ThreadSanitizer.
bool differ(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() != b.size() || (!a.empty() && std::memcmp(a.data(), b.data(), a.size()) != 0);
}

}  // namespace

std::string describe(const RunSpec& spec) {
  const Request& request = spec.request;
  return std::string(collective_name(spec.algorithm->collective)) + " " + std::string(spec.algorithm->name) +
         format(", %u ranks, root %u, %llu bytes of ", request.rank_count, request.root,
                static_cast<unsigned long long>(request.block_bytes)) +
         std::string(type_name(request.type)) + ", " + std::string(op_name(request.op)) +
         (request.in_place ? ", in place" : "") + (request.reproducible ? ", reproducible" : "") +
         (request.variable_counts ? ", variable counts" : "") +
         (spec.carriage == Carriage::kReference ? ", by reference" : "") +
         (spec.carriage == Carriage::kPull ? ", pulled" : "") + (spec.facts.can_publish ? ", publish" : "") +
         (spec.placement ? ", hosts " + spec.placement->name : "") +
         format(", %u slots of %u, seed %llu", spec.sim.slots, spec.sim.slot_bytes,
                static_cast<unsigned long long>(spec.sim.seed));
}

Workload::Workload(const RunSpec& spec) : spec_(spec), ranks_(spec.request.rank_count) {
  spec_.request.collective = spec.algorithm->collective;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) lay_out(rank);
}

size_t Workload::block_bytes(uint32_t block) const {
  if (!spec_.request.variable_counts) return spec_.request.block_bytes;
  return spec_.block_counts[block] * type_bytes(spec_.request.type);
}

/// The blocks of a rank's input or output; of variable size with gaps between them.
std::vector<Extent> Workload::blocks(bool output, uint32_t rank) const {
  const Request& request = spec_.request;
  const uint32_t count = output ? output_blocks(request.collective, request.rank_count)
                                : input_blocks(request.collective, request.rank_count);
  if (count == 1) return {{0, block_bytes(rank)}};
  std::vector<Extent> all;
  size_t offset = 0;
  for (uint32_t block = 0; block < count; ++block) {
    all.push_back({offset, block_bytes(block)});
    offset += block_bytes(block) + (request.variable_counts ? kGapBytes : 0);
  }
  return all;
}

/// Places the buffers: apart, or where tutti.h says that in place is.
void Workload::lay_out(uint32_t rank) {
  const Request& request = spec_.request;
  const bool reads = has_input(request.collective, rank, request.root);
  const bool writes = has_output(request.collective, rank, request.root);
  Rank& here = ranks_[rank];
  if (reads) here.input = blocks(false, rank);
  if (writes) here.output = blocks(true, rank);
  // Any alignment that the element allows.
  const size_t start = kGuardBytes + type_bytes(request.type) * (mix_seed(spec_.sim.seed, rank, 1, 0) % 9);
  here.input_offset = here.output_offset = start;
  size_t end = start + std::max(extent_end(here.input), extent_end(here.output));
  if (!request.in_place || !reads || !writes) {
    here.output_offset = start + extent_end(here.input) + (reads && writes ? kGuardBytes : 0);
    end = here.output_offset + extent_end(here.output);
  } else if (here.output.size() > here.input.size()) {
    here.input_offset = here.output_offset + here.output[rank].offset;
  } else if (here.input.size() > here.output.size()) {
    here.output_offset = here.input_offset + here.input[rank].offset;
  }
  here.memory.resize(end + kGuardBytes);
}

Workload::Bytes Workload::operand(uint32_t iteration, uint32_t rank, uint32_t block, size_t bytes) const {
  Bytes made(bytes);
  make_operands(spec_.request.type, mix_seed(spec_.sim.seed, iteration, rank, block), made);
  return made;
}

const Workload::Bytes& Workload::reduced(uint32_t iteration, uint32_t block, size_t bytes) {
  Bytes& known = reduced_[{iteration, block}];
  if (known.size() == bytes) return known;
  std::vector<Bytes> operands;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
    operands.push_back(operand(iteration, rank, block, bytes));
  known = reduce_all(spec_.request.type, spec_.request.op, operands);
  return known;
}

/// What tutti.h says that a block of the rank's output holds.
Workload::Bytes Workload::result(uint32_t iteration, uint32_t rank, uint32_t block, size_t bytes) {
  const uint32_t root = spec_.request.root;
  switch (spec_.request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBarrier: return reduced(iteration, 0, bytes);
    case Collective::kReduceScatter: return reduced(iteration, rank, bytes);
    case Collective::kBroadcast: return operand(iteration, root, 0, bytes);
    case Collective::kAllGather:
    case Collective::kGather: return operand(iteration, block, 0, bytes);
    case Collective::kAllToAll: return operand(iteration, block, rank, bytes);
    case Collective::kScatter: return operand(iteration, root, rank, bytes);
    case Collective::kSendRecv: break;
  }
  return {};
}

void Workload::start(RankSet& cluster) {
  const Request& request = spec_.request;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Plan plan = spec_.algorithm->make(request, spec_.facts, rank);
    const Geometry geometry = request.variable_counts
                                  ? Geometry::variable(plan, blocks(false, rank), blocks(true, rank))
                                  : Geometry::uniform(plan, request.block_bytes);
    const BindOptions options{.type = request.type,
                              .op = request.op,
                              .premul_scalar_bits = premul_scale_bits(),
                              .reproducible = request.reproducible,
                              .message_bytes = request.block_bytes,
                              .streaming_bytes = spec_.streaming ? 1 : UINT64_MAX,
                              .long_call_bytes = 1,
                              .reference_bytes = spec_.carriage == Carriage::kReference ? 1 : UINT64_MAX,
                              .pull_bytes = spec_.carriage == Carriage::kPull ? 1 : UINT64_MAX,
                              .slots = spec_.sim.slots,
                              .slot_bytes = spec_.sim.slot_bytes};
    cluster.set_operation(rank, Operation::bind(plan, geometry, options, cluster.links(rank)));
    begin(cluster, rank);
  }
}

/// Fills the rank's memory for its current iteration and starts the operation.
void Workload::begin(RankSet& cluster, uint32_t rank) {
  Rank& here = ranks_[rank];
  std::fill(here.memory.begin(), here.memory.end(), kGuard);
  for (uint32_t block = 0; block < here.input.size(); ++block) {
    const Bytes made = operand(here.iteration, rank, block, here.input[block].bytes);
    std::copy(made.begin(), made.end(), here.memory.begin() + here.input_offset + here.input[block].offset);
  }
  here.expected = here.memory;
  for (uint32_t block = 0; block < here.output.size(); ++block) {
    const Bytes made = result(here.iteration, rank, block, here.output[block].bytes);
    std::copy(made.begin(), made.end(),
              here.expected.begin() + here.output_offset + here.output[block].offset);
  }
  const auto signature = static_cast<uint16_t>(mix_seed(spec_.sim.seed, here.iteration, 7, 7));
  const Buffers buffers{.input = here.input.empty() ? nullptr : here.memory.data() + here.input_offset,
                        .output = here.output.empty() ? nullptr : here.memory.data() + here.output_offset};
  cluster.operation(rank).start(
      buffers, rank == disagreeing_rank_ ? static_cast<uint16_t>(signature ^ 0x5a5a) : signature);
}

void Workload::on_done(RankSet& cluster, uint32_t rank) {
  Rank& here = ranks_[rank];
  if (spec_.request.collective == Collective::kBarrier) {
    for (uint32_t other = 0; other < ranks_.size(); ++other) {
      if (!cluster.has_begun(other))
        failure_ = format("rank %u left the barrier before rank %u came", rank, other);
    }
  } else if (failure_.empty() && differ(here.memory, here.expected)) {
    const auto at = std::mismatch(here.memory.begin(), here.memory.end(), here.expected.begin()).first;
    failure_ = format(
        "rank %u, run %u: byte %td of the memory is wrong (input at %zu, output at %zu, end %zu)", rank,
        here.iteration, at - here.memory.begin(), here.input_offset, here.output_offset, here.memory.size());
  }
  if (cluster.operation(rank).holds_references())
    failure_ = format("rank %u is done with references out", rank);
  here.last_output.clear();
  if (!here.output.empty()) {
    const auto from = here.memory.begin() + static_cast<ptrdiff_t>(here.output_offset);
    here.last_output.assign(from, from + static_cast<ptrdiff_t>(extent_end(here.output)));
  }
  std::fill(here.memory.begin(), here.memory.end(), std::byte{0xee});
  if (++here.iteration == spec_.iterations) return;
  begin(cluster, rank);
  cluster.restart(rank);
}

bool Workload::complete() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [this](const Rank& rank) { return rank.iteration == spec_.iterations; });
}

std::string run_to_the_end(const RunSpec& spec) {
  SimCluster cluster(spec.sim);
  Workload workload(spec);
  workload.start(cluster);
  const std::vector<Outcome> outcomes = cluster.run([&](uint32_t rank) { workload.on_done(cluster, rank); });
  if (!workload.failure().empty()) return describe(spec) + ": " + workload.failure();
  if (!workload.complete()) return describe(spec) + ": nothing can happen any more: " + describe(outcomes);
  return {};
}

}  // namespace tutti::test
