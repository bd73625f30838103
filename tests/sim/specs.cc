// The runs of the sim suites. See specs.h.
#include "tests/sim/specs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "core/config.h"
#include "core/result.h"
#include "transports/shm/pull.h"

namespace tutti::test {
namespace {

uint64_t element_count(Size size, uint64_t slot_elements, uint32_t slots) {
  switch (size) {
    case Size::kEmpty: return 0;
    case Size::kOne: return 1;
    case Size::kFew: return 7;
    case Size::kOdd: return slot_elements + 3;
    case Size::kSlot: return slot_elements;
    case Size::kAllSlots: return slot_elements * slots;
    case Size::kManyRounds: return slot_elements * 50 + 5;
    case Size::kCount: break;
  }
  return 0;
}

/// Some sandboxes forbid the system call.
bool can_pull() {
  const char from = 'x';
  char to = 0;
  return pull(getpid(), reinterpret_cast<uint64_t>(&from), &to, 1) == 0 && to == from;
}

void draw_type(SimRandom& random, Request& request) {
  struct Choice {
    DataType type;
    ReduceOp op;
  };
  constexpr std::array<Choice, 5> kChoices = {{{DataType::kUint32, ReduceOp::kSum},
                                               {DataType::kUint8, ReduceOp::kBitXor},
                                               {DataType::kFloat64, ReduceOp::kSum},
                                               {DataType::kFloat64, ReduceOp::kAvg},
                                               {DataType::kFloat64, ReduceOp::kPremulSum}}};
  const Choice& choice = kChoices[random.below(kChoices.size())];
  request.type = choice.type;
  request.op = choice.op;
}

void draw_links(SimRandom& random, SimOptions& sim) {
  sim.slots = 2u << random.below(4);
  sim.slot_bytes = 128u << random.below(3);
  // Half of the runs have links that can wrap the 24-bit number; every cell has been written by then.
  sim.first_number = random.one_in(2) ? (1u << 24) - 2 * sim.slots - random.below(8) : 0;
  sim.turn_ticks = 1 + static_cast<uint32_t>(random.below(30));
  sim.delay_ticks = 1 + static_cast<uint32_t>(random.below(60));
  sim.stall_ticks = random.one_in(2) ? 500 : 0;
}

/// Ranks on one to as many hosts as there are ranks: in blocks, in turns or anywhere.
void draw_hosts(SimRandom& random, RunSpec& spec) {
  const uint32_t ranks = spec.sim.rank_count;
  const auto hosts = static_cast<uint32_t>(1 + random.below(ranks));
  const uint64_t order = random.below(3);
  std::vector<uint64_t> labels;
  std::string name;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t anywhere = random.below(hosts);
    labels.push_back(order == 0 ? rank * hosts / ranks : order == 1 ? rank % hosts : anywhere);
    name += (rank == 0 ? "" : ",") + std::to_string(labels.back());
  }
  Placement drawn = place(name, labels);
  if (random.one_in(2)) drawn = by_hosts(std::move(drawn));
  const auto placement = std::make_shared<const Placement>(std::move(drawn));
  spec.placement = placement;
  spec.facts.order = placement->order;
  spec.facts.host_count = placement->host_count;
  spec.facts.host_of = placement->host_of;
  if (placement->host_count > 1) spec.facts.can_publish = spec.facts.can_reference = false;
}

}  // namespace

uint64_t base_seed() {
  const char* text = process_environment()("TUTTI_SIM_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

std::string replay_command() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return format("replay: TUTTI_SIM_SEED=%llu tests/test_sim --gtest_filter=%s.%s",
                static_cast<unsigned long long>(base_seed()), info->test_suite_name(), info->name());
}

uint64_t run_seed(uint64_t base, const Algorithm& algorithm, uint64_t a, uint64_t b) {
  uint64_t seed = base;
  for (const char c : std::string(collective_name(algorithm.collective)) + std::string(algorithm.name)) {
    seed = SimRandom(seed ^ static_cast<uint64_t>(c)).next();
  }
  return SimRandom(SimRandom(seed ^ a).next() ^ b).next();
}

RunSpec make_spec(const Algorithm& algorithm, const SpecOptions& options) {
  SimRandom random(options.seed);
  RunSpec spec;
  spec.algorithm = &algorithm;
  spec.iterations = options.iterations;
  spec.sim.rank_count = options.rank_count;
  spec.sim.seed = random.next();
  draw_links(random, spec.sim);
  constexpr std::array kCarriages = {Carriage::kSlot, Carriage::kReference, Carriage::kPull};
  spec.carriage = kCarriages[random.below(kCarriages.size())];
  if (spec.carriage == Carriage::kPull && !can_pull()) spec.carriage = Carriage::kReference;
  spec.sim.pull = spec.carriage == Carriage::kPull;
  spec.streaming = random.one_in(4);
  spec.facts.can_publish = random.one_in(2);
  spec.facts.can_reference = spec.carriage == Carriage::kReference;
  spec.facts.slots = spec.sim.slots / 2;
  spec.facts.slot_bytes = spec.sim.slot_bytes;
  if (is_hierarchical(algorithm) || follows_order(algorithm)) draw_hosts(random, spec);
  Request& request = spec.request;
  request.collective = algorithm.collective;
  request.rank_count = options.rank_count;
  request.root = has_root(algorithm.collective) ? static_cast<uint32_t>(random.below(options.rank_count)) : 0;
  request.in_place = random.one_in(2);
  draw_type(random, request);
  if (algorithm.collective == Collective::kBarrier) {
    request.type = DataType::kUint8;
    request.op = ReduceOp::kBitOr;
    request.in_place = false;
    request.block_bytes = 1;
    return spec;
  }
  const uint64_t element_bytes = type_bytes(request.type);
  const uint64_t elements = element_count(options.size, spec.sim.slot_bytes / element_bytes, spec.sim.slots);
  request.block_bytes = elements * element_bytes;
  return spec;
}

bool supported(const RunSpec& spec) {
  return spec.algorithm->supports(spec.request, spec.facts);
}

std::string test_name(const Algorithm& algorithm) {
  return std::string(collective_name(algorithm.collective)) + "_" + std::string(algorithm.name);
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) {
    if (runs_on_hosts(algorithm)) all.push_back(&algorithm);
  }
  return all;
}

}  // namespace tutti::test
