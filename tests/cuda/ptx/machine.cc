#include "tests/cuda/ptx/machine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fake_cuda::ptx {
namespace {

constexpr unsigned char kGarbage = 0xa5;
/// Instructions of a warp before the next one has its turn.
constexpr uint64_t kBudget = 20000;
/// Every so many turns of a diverged warp another group than the earliest has one.
constexpr uint64_t kOtherTurn = 64;

uint32_t rounded_up(uint32_t value, uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

void fail(const Warp& warp, const Instruction& instruction, const std::string& what) {
  auto& block = const_cast<Warp&>(warp).block();
  std::fprintf(stderr, "fake GPU: kernel %s, block %u, warp %u, line %d of its PTX (function %s): %s\n",
               block.grid().entry->name.c_str(), block.number(), warp.index(), instruction.line,
               warp.frame().function->name.c_str(), what.c_str());
  std::abort();
}

// ---- Block --------------------------------------------------------------------------------------

Block::Block(const GridFacts& grid, uint32_t index)
    : grid_(grid), number_(index), live_(static_cast<uint32_t>(grid.threads.count())) {
  index_ = {index % grid.blocks.x, index / grid.blocks.x % grid.blocks.y,
            index / grid.blocks.x / grid.blocks.y};
  shared_.assign(grid.entry->shared_bytes + grid.dynamic_shared_bytes, kGarbage);
  parameters_.assign(grid.parameters, grid.parameters + grid.entry->parameter_bytes);
  parameters_.resize(parameters_.size() + 16);
  for (uint32_t first = 0; first < live_; first += kLanes) {
    const uint32_t count = std::min(kLanes, live_ - first);
    warps_.push_back(
        std::make_unique<Warp>(*this, first / kLanes, count == kLanes ? kAll : (1u << count) - 1));
  }
}

bool Block::run(uint64_t budget) {
  bool moved = false;
  for (const auto& warp : warps_) moved |= !warp->is_done() && warp->run(budget);
  return moved;
}

void Block::arrive(uint32_t id, uint32_t threads, uint32_t expected, uint32_t holds) {
  Barrier& barrier = barriers_[id];
  barrier.arrived += threads;
  barrier.holds += holds;
  barrier.expected = expected;
  check(id);
}

void Block::check(uint32_t id) {
  Barrier& barrier = barriers_[id];
  const uint32_t expected = barrier.expected == 0 ? live_ : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  const std::array<uint32_t, 3> outcome = {barrier.holds, barrier.holds == barrier.arrived ? 1u : 0u,
                                           barrier.holds > 0 ? 1u : 0u};
  barrier = {};
  for (const auto& warp : warps_) warp->release(id, outcome);
}

void Block::exited(uint32_t threads) {
  live_ -= threads;
  for (uint32_t id = 0; id < barriers_.size() && live_ > 0; ++id) check(id);
}

void run_block(const GridFacts& grid, uint32_t index, void (*yield)(bool moved)) {
  Block block(grid, index);
  while (!block.is_done()) {
    const bool moved = block.run(kBudget);
    if (!moved) {
      std::fprintf(stderr, "fake GPU: kernel %s, block %u: all threads wait at barriers, not at the same\n",
                   grid.entry->name.c_str(), index);
      std::abort();
    }
    if (!block.is_done()) yield(moved);
  }
}

// ---- Warp ---------------------------------------------------------------------------------------

Warp::Warp(Block& block, uint32_t index, uint32_t lanes) : block_(block), index_(index), alive_(lanes) {
  Frame* first = make_frame(*block.grid().entry);
  first->lanes = lanes;
  frames_.fill(first);
}

uint64_t Warp::special(Special which, uint32_t lane) const {
  const GridFacts& grid = block_.grid();
  const uint32_t thread = index_ * kLanes + lane;
  const uint32_t below = (1u << lane) - 1;
  switch (which) {
    case Special::kTidX: return thread % grid.threads.x;
    case Special::kTidY: return thread / grid.threads.x % grid.threads.y;
    case Special::kTidZ: return thread / grid.threads.x / grid.threads.y;
    case Special::kNtidX: return grid.threads.x;
    case Special::kNtidY: return grid.threads.y;
    case Special::kNtidZ: return grid.threads.z;
    case Special::kCtaidX: return block_.index().x;
    case Special::kCtaidY: return block_.index().y;
    case Special::kCtaidZ: return block_.index().z;
    case Special::kNctaidX: return grid.blocks.x;
    case Special::kNctaidY: return grid.blocks.y;
    case Special::kNctaidZ: return grid.blocks.z;
    case Special::kLane: return lane;
    case Special::kWarp: return index_;
    case Special::kWarps: return (grid.threads.count() + kLanes - 1) / kLanes;
    case Special::kMultiprocessor: return block_.number() % grid.multiprocessors;
    case Special::kMultiprocessors: return grid.multiprocessors;
    case Special::kGrid: return 1;
    case Special::kMaskEq: return 1u << lane;
    case Special::kMaskLt: return below;
    case Special::kMaskLe: return below | 1u << lane;
    case Special::kMaskGt: return ~(below | 1u << lane);
    case Special::kMaskGe: return ~below;
    case Special::kDynamicShared: return grid.dynamic_shared_bytes;
    case Special::kDynamicStart: return kSharedStart + grid.entry->shared_bytes;
    case Special::kTotalShared: return block_.shared_bytes();
    case Special::kWorkspaceLow: return grid.workspace & 0xffffffffu;
    case Special::kWorkspaceHigh: return grid.workspace >> 32;
    case Special::kZero: return 0;
    case Special::kOne: return 1;
  }
  return 0;
}

void Warp::fill_fixed(Frame& frame, const Fixed& fixed) const {
  unsigned char* at = frame.registers + fixed.offset;
  if (fixed.bits == 1) {
    const auto whole = static_cast<uint32_t>(fixed.value);
    std::memcpy(at, &whole, sizeof whole);
    return;
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t value = fixed.is_special ? special(fixed.special, lane) : fixed.value;
    std::memcpy(at + size_t{lane} * (fixed.bits / 8), &value, fixed.bits / 8);
  }
}

Frame* Warp::make_frame(const Function& function) {
  std::vector<Frame*>& free = free_frames_[&function];
  if (!free.empty()) {
    Frame* const frame = free.back();
    free.pop_back();
    return frame;
  }
  Frame* const frame = all_frames_.emplace_back(std::make_unique<Frame>()).get();
  frame->function = &function;
  const size_t register_bytes = rounded_up(function.register_bytes, 64);
  frame->memory.resize(register_bytes + size_t{function.lane_bytes} * kLanes + 64);
  const auto start = reinterpret_cast<uintptr_t>(frame->memory.data());
  frame->registers = frame->memory.data() + (64 - start % 64) % 64;
  frame->lane_memory = frame->registers + register_bytes;
  for (const Fixed& fixed : function.fixed) fill_fixed(*frame, fixed);
  return frame;
}

bool Warp::run(uint64_t budget) {
  bool moved = false;
  while (budget > 0 && alive_ != 0) {
    const uint32_t ready = alive_ & ~syncing_ & ~at_barrier_;
    if (ready == 0) {
      if (!complete_syncs()) break;
      moved = true;
      continue;
    }
    moved = true;
    if (!run_group(ready, budget)) break;
  }
  return moved;
}

/// The lane whose group has the next turn.
uint32_t Warp::pick(uint32_t ready) {
  auto best = static_cast<uint32_t>(std::countr_zero(ready));
  const bool other = ++turns_ % kOtherTurn == 0;
  if (other) {
    // Any lane: a different one each time.
    const auto skip = static_cast<uint32_t>(turns_ / kOtherTurn % kLanes);
    const uint32_t turned = std::rotr(ready, static_cast<int>(skip));
    return (static_cast<uint32_t>(std::countr_zero(turned)) + skip) % kLanes;
  }
  for (uint32_t rest = ready & (ready - 1); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint32_t depth = frames_[lane]->depth;
    const uint32_t best_depth = frames_[best]->depth;
    if (depth > best_depth || (depth == best_depth && pcs_[lane] < pcs_[best])) best = lane;
  }
  return best;
}

void Warp::move_lanes(uint32_t lanes, uint32_t pc) {
  for (; lanes != 0; lanes &= lanes - 1) pcs_[static_cast<size_t>(std::countr_zero(lanes))] = pc;
}

/// Runs one group until it waits, leaves, splits or may meet another; false: others should run now.
bool Warp::run_group(uint32_t ready, uint64_t& budget) {
  const uint32_t leader = pick(ready);
  frame_ = frames_[leader];
  uint32_t pc = pcs_[leader];
  uint32_t meets = kNone;
  group_ = 0;
  for (uint32_t rest = ready; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (frames_[lane] == frame_ && pcs_[lane] == pc) {
      group_ |= 1u << lane;
    } else if (frames_[lane] == frame_ && pcs_[lane] > pc) {
      meets = std::min(meets, pcs_[lane]);
    }
  }
  const bool alone = group_ == ready;
  const Instruction* const code = frame_->function->code.data();
  for (;;) {
    const Instruction& instruction = code[pc];
    uint32_t active = group_;
    if (instruction.guard != kNone) {
      const uint32_t holds = predicate(instruction.guard);
      active &= instruction.negated ? ~holds : holds;
    }
    if (budget > 0) --budget;
    if (instruction.flow == Flow::kNext) {
      if (active != 0) instruction.run(*this, instruction, active);
      if (++pc != meets) continue;
      move_lanes(group_, pc);
      return true;
    }
    if (instruction.flow == Flow::kBranch && (active == group_ || active == 0)) {
      pc = active == 0 ? pc + 1 : instruction.target;
      if (alone && budget > 0) continue;
      move_lanes(group_, pc);
      return true;
    }
    if (!step(instruction, active, pc)) return instruction.flow != Flow::kYield;
  }
}

/// An instruction after which the group may not be the same; true: it is, and goes on at `pc`.
bool Warp::step(const Instruction& instruction, uint32_t active, uint32_t& pc) {
  move_lanes(group_ & ~active, pc + 1);
  if (active == 0) return ++pc, true;
  switch (instruction.flow) {
    case Flow::kNext: break;
    case Flow::kBranch: move_lanes(active, instruction.target); return false;
    case Flow::kTable: {
      const uint32_t* index = at<uint32_t>(instruction.a);
      const auto& targets = instruction.extra->targets;
      for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<size_t>(std::countr_zero(rest));
        if (index[lane] >= targets.size()) fail(*this, instruction, "brx.idx beyond its targets");
        pcs_[lane] = targets[index[lane]];
      }
      return false;
    }
    case Flow::kCall:
      if (instruction.extra->callee == nullptr && !instruction.extra->is_indirect) {
        instruction.run(*this, instruction, active);
        ++pc;
        return true;
      }
      call(instruction, active, pc);
      return false;
    case Flow::kReturn: leave(active); return false;
    case Flow::kExit: exit(active); return false;
    case Flow::kWarpSync:
      if (!sync(instruction, active, pc)) return false;
      ++pc;
      return true;
    case Flow::kBarrier: arrive(instruction, active, pc); return false;
    case Flow::kYield:
      if (instruction.run != nullptr) instruction.run(*this, instruction, active);
      move_lanes(active, pc + 1);
      return false;
  }
  return false;
}

void Warp::call(const Instruction& instruction, uint32_t active, uint32_t pc) {
  const Extra& extra = *instruction.extra;
  const Function* callee = extra.callee;
  if (extra.is_indirect) {
    const auto* pointers = at<uint64_t>(instruction.a);
    const uint64_t pointer = pointers[std::countr_zero(active)];
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      // Those with another function call it later.
      if (pointers[std::countr_zero(rest)] == pointer) continue;
      const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      pcs_[lane] = pc;
      active &= ~(1u << lane);
    }
    callee = reinterpret_cast<const Function*>(pointer);
    if (callee == nullptr) fail(*this, instruction, "a call through a null pointer");
  }
  if (callee->parameters.size() != extra.arguments.size() || callee->results.size() < extra.results.size())
    fail(*this, instruction, "a call of " + callee->name + " with other parameters than it has");
  Frame* const frame = make_frame(*callee);
  frame->parent = frame_;
  frame->call = &instruction;
  frame->return_to = pc + 1;
  frame->depth = frame_->depth + 1;
  frame->lanes = active;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    for (size_t i = 0; i < extra.arguments.size(); ++i) {
      std::memcpy(frame->of_lane(lane) + callee->parameters[i].first,
                  frame_->of_lane(lane) + extra.arguments[i].first, extra.arguments[i].second);
    }
    frames_[lane] = frame;
    pcs_[lane] = 0;
  }
}

/// `ret`: back to the caller; from the kernel itself it is an exit.
void Warp::leave(uint32_t lanes) {
  Frame* const frame = frame_;
  if (frame->parent == nullptr) {
    exit(lanes);
    return;
  }
  const Extra& extra = *frame->call->extra;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    for (size_t i = 0; i < extra.results.size(); ++i) {
      std::memcpy(frame->parent->of_lane(lane) + extra.results[i].first,
                  frame->of_lane(lane) + frame->function->results[i].first, extra.results[i].second);
    }
    frames_[lane] = frame->parent;
    pcs_[lane] = frame->return_to;
  }
  frame->lanes &= ~lanes;
  if (frame->lanes == 0) free_frames_[frame->function].push_back(frame);
}

void Warp::exit(uint32_t lanes) {
  alive_ &= ~lanes;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    for (Frame* frame = frames_[static_cast<size_t>(std::countr_zero(rest))]; frame != nullptr;
         frame = frame->parent) {
      frame->lanes &= ~(rest & (0u - rest));
    }
  }
  block_.exited(static_cast<uint32_t>(std::popcount(lanes)));
  complete_syncs();
}

/// True: all lanes of the mask are here, and have done it.
bool Warp::sync(const Instruction& instruction, uint32_t active, uint32_t pc) {
  const uint32_t* masks = at<uint32_t>(instruction.e);
  const uint32_t mask = masks[std::countr_zero(active)];
  bool same = (mask & alive_) == active;
  for (uint32_t rest = active; same && rest != 0; rest &= rest - 1)
    same = masks[std::countr_zero(rest)] == mask;
  if (same && active == group_) {
    if (instruction.run != nullptr) instruction.run(*this, instruction, active);
    return true;
  }
  move_lanes(active, pc);
  syncing_ |= active;
  complete_syncs();
  return false;
}

/// Lets those go on of which all lanes of a mask have come.
bool Warp::complete_syncs() {
  bool completed = false;
  Frame* const running = frame_;
  for (uint32_t rest = syncing_; rest != 0;) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    rest &= rest - 1;
    frame_ = frames_[lane];
    const Instruction& instruction = frame_->function->code[pcs_[lane]];
    const uint32_t mask = at<uint32_t>(instruction.e)[lane] & alive_;
    if ((mask & ~syncing_) != 0) continue;
    for (uint32_t members = mask; instruction.run != nullptr && members != 0; members &= members - 1) {
      const auto member = static_cast<size_t>(std::countr_zero(members));
      if (frames_[member] != frame_ || pcs_[member] != pcs_[lane])
        fail(*this, instruction, "lanes of one mask are at different instructions");
    }
    const uint32_t group = std::exchange(group_, mask);
    if (instruction.run != nullptr) instruction.run(*this, instruction, mask);
    group_ = group;
    for (uint32_t members = mask; members != 0; members &= members - 1)
      ++pcs_[static_cast<size_t>(std::countr_zero(members))];
    syncing_ &= ~mask;
    rest &= ~mask;
    completed = true;
  }
  frame_ = running;
  return completed;
}

/// `b`: threads expected (kNone: all), `kind`: 1: only arrives; 2 and more: reduces the predicate `c`.
void Warp::arrive(const Instruction& instruction, uint32_t active, uint32_t pc) {
  const auto first = static_cast<size_t>(std::countr_zero(active));
  const uint32_t id = at<uint32_t>(instruction.a)[first];
  const uint32_t expected = instruction.b == kNone ? 0 : at<uint32_t>(instruction.b)[first];
  if (id >= 16) fail(*this, instruction, "barrier " + std::to_string(id));
  move_lanes(active, pc + 1);
  uint32_t holds = 0;
  if (instruction.kind >= 2) {
    holds = predicate(instruction.c) & active;
    if (instruction.is_shared) holds = active & ~holds;  // the predicate is negated
  }
  if (instruction.kind != 1) {
    at_barrier_ |= active;
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      barrier_ids_[static_cast<size_t>(std::countr_zero(rest))] = static_cast<uint8_t>(id);
      barrier_instructions_[static_cast<size_t>(std::countr_zero(rest))] = &instruction;
    }
  }
  block_.arrive(id, static_cast<uint32_t>(std::popcount(active)), expected,
                static_cast<uint32_t>(std::popcount(holds)));
}

void Warp::release(uint32_t id, const std::array<uint32_t, 3>& red) {
  for (uint32_t rest = at_barrier_; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    if (barrier_ids_[lane] != id) continue;
    at_barrier_ &= ~(1u << lane);
    const Instruction& instruction = *barrier_instructions_[lane];
    if (instruction.kind < 2) continue;
    unsigned char* registers = frames_[lane]->registers + instruction.d;
    const uint32_t value = red[instruction.kind - 2];
    if (instruction.kind == 2) {
      reinterpret_cast<uint32_t*>(registers)[lane] = value;
    } else {
      auto& whole = *reinterpret_cast<uint32_t*>(registers);
      whole = value != 0 ? whole | 1u << lane : whole & ~(1u << lane);
    }
  }
}

void Warp::addresses(const Instruction& instruction, uint32_t lanes, uint32_t bytes,
                     std::array<unsigned char*, kLanes>& into) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = 0;
    switch (instruction.base) {
      case Base::kRegister64: address = at<uint64_t>(instruction.a)[lane]; break;
      case Base::kRegister32: address = at<uint32_t>(instruction.a)[lane]; break;
      case Base::kLocal: address = reinterpret_cast<uint64_t>(frame_->of_lane(lane)); break;
      case Base::kParameter: address = reinterpret_cast<uint64_t>(block_.parameters()); break;
    }
    address += static_cast<uint64_t>(instruction.offset);
    if (address % bytes != 0)
      fail(*this, instruction,
           "an access of " + std::to_string(bytes) + " bytes that is not aligned to its size");
    if (instruction.is_shared) {
      into[lane] = block_.shared_at(address, bytes);
      if (into[lane] == nullptr)
        fail(*this, instruction,
             "address " + std::to_string(address) + " is outside of the block's " +
                 std::to_string(block_.shared_bytes()) + " bytes of shared memory");
    } else {
      into[lane] = reinterpret_cast<unsigned char*>(address);
      if (address < 4096) fail(*this, instruction, "a null pointer, or one near it");
    }
  }
}

}  // namespace fake_cuda::ptx
