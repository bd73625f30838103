// Branches, calls, barriers, fences, traps.
#include "tests/cuda/ptx/builtins.h"
#include "tests/cuda/ptx/lanes.h"

namespace fake_cuda::ptx {
namespace {

void decode_bra(Decoder& decoder) {
  decoder.take("uni");
  decoder.emit_branch(decoder.make(nullptr, Flow::kBranch), decoder.operands.at(0));
}

void decode_brx(Decoder& decoder) {
  if (!decoder.take("idx")) decoder.unknown();
  decoder.take("uni");
  Instruction made = decoder.make(nullptr, Flow::kTable);
  made.a = decoder.source(decoder.operands.at(0), 32);
  Extra* extra = decoder.extra();
  made.extra = extra;
  for (const std::string& label : decoder.labels_of(decoder.operands.at(1)))
    decoder.add_label_use(extra, label);
  decoder.emit(made);
}

std::vector<std::pair<uint32_t, uint32_t>> offsets_of(Decoder& decoder, const std::string& list) {
  std::vector<std::pair<uint32_t, uint32_t>> all;
  for (const std::string& name : split_operands(list.substr(1, list.size() - 2))) {
    uint32_t offset = 0;
    uint32_t bytes = 0;
    if (!decoder.local_offset(name, offset, bytes)) decoder.unknown("argument " + name);
    all.emplace_back(offset, bytes);
  }
  return all;
}

/// call (result), name, (arguments), prototype.
void decode_call(Decoder& decoder) {
  decoder.take("uni");
  Extra* extra = decoder.extra();
  size_t at = 0;
  if (decoder.operands.at(0)[0] == '(') extra->results = offsets_of(decoder, decoder.operands[at++]);
  const std::string callee = decoder.operands.at(at++);
  if (decoder.has_operand(at) && decoder.operands[at][0] == '(')
    extra->arguments = offsets_of(decoder, decoder.operands[at++]);
  Instruction made = decoder.make(nullptr, Flow::kCall);
  made.extra = extra;
  extra->callee = decoder.symbols().find_function(callee);
  if (extra->callee == nullptr && callee[0] == '%') {
    extra->is_indirect = true;
    made.a = decoder.source(callee, 64);
  } else if (extra->callee == nullptr) {
    made.run = find_builtin(callee);
    if (made.run == nullptr) decoder.unknown("function " + callee);
  }
  decoder.emit(made);
}

void decode_ret(Decoder& decoder) {
  decoder.take("uni");
  decoder.emit(decoder.make(nullptr, decoder.name() == "exit" ? Flow::kExit : Flow::kReturn));
}

void trap(Warp& warp, const Instruction& instruction, uint32_t /*lanes*/) {
  fail(warp, instruction, "trap");
}

void decode_trap(Decoder& decoder) {
  decoder.emit(decoder.make(trap));
}

void fence(Warp& /*warp*/, const Instruction& /*instruction*/, uint32_t /*lanes*/) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void decode_fence(Decoder& decoder) {
  decoder.modifiers.clear();
  decoder.emit(decoder.make(fence));
}

void decode_yield(Decoder& decoder) {
  decoder.modifiers.clear();
  decoder.emit(decoder.make(nullptr, Flow::kYield));
}

void decode_nothing(Decoder& decoder) {
  decoder.modifiers.clear();
}

/// bar and barrier, of the block or of a warp.
void decode_barrier(Decoder& decoder) {
  if (decoder.take("warp")) {
    decoder.take("sync");
    Instruction made = decoder.make(nullptr, Flow::kWarpSync);
    made.e = decoder.source(decoder.operands.at(0), 32);
    decoder.emit(made);
    return;
  }
  decoder.take("cta");
  decoder.take("aligned");
  if (decoder.take("cluster")) {
    // A block is a cluster of its own: all threads of the cluster are those of the block.
    const bool arrives = decoder.take("arrive");
    decoder.modifiers.clear();
    if (arrives) return;
    Instruction made = decoder.make(nullptr, Flow::kBarrier);
    made.a = decoder.constant(15, 32);
    made.b = kNone;
    decoder.emit(made);
    return;
  }
  Instruction made = decoder.make(nullptr, Flow::kBarrier);
  made.b = kNone;
  if (decoder.take("red")) {
    const std::string how = decoder.take_one({"popc", "and", "or"});
    decoder.take_type();
    made.kind = how == "popc" ? 2 : how == "and" ? 3 : 4;
    made.d = decoder.target(decoder.operands.at(0), how == "popc" ? 32 : 1);
    made.a = decoder.source(decoder.operands.at(1), 32);
    if (decoder.has_operand(3)) made.b = decoder.source(decoder.operands[2], 32);
    made.c = decoder.predicate(decoder.operands.back(), made.is_shared);
  } else {
    made.kind = decoder.take("arrive") ? 1 : 0;
    decoder.take("sync");
    made.a = decoder.source(decoder.operands.at(0), 32);
    if (decoder.has_operand(1)) made.b = decoder.source(decoder.operands[1], 32);
  }
  decoder.emit(made);
}

}  // namespace

void add_control(DecodeTable& table) {
  table["bra"] = decode_bra;
  table["brx"] = decode_brx;
  table["call"] = decode_call;
  table["ret"] = table["exit"] = decode_ret;
  table["trap"] = table["brkpt"] = decode_trap;
  table["membar"] = table["fence"] = decode_fence;
  table["nanosleep"] = decode_yield;
  table["bar"] = table["barrier"] = decode_barrier;
  for (const char* name : {"griddepcontrol", "pmevent", "setmaxnreg"}) table[name] = decode_nothing;
}

}  // namespace fake_cuda::ptx
