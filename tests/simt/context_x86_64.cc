// Contexts in twelve instructions: no system call, as ucontext makes two of.
#include <cstdint>

#include "tests/simt/context.h"

extern "C" void tutti_simt_switch(void** save, void* to);

// System V ABI: what a call must keep is pushed, the stack changed, and popped again.
asm(R"(
.text
.globl tutti_simt_switch
.hidden tutti_simt_switch
.type tutti_simt_switch,@function
tutti_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tutti_simt_switch,.-tutti_simt_switch
)");

namespace tutti::simt {

struct Context {
  void* stack_pointer = nullptr;
  void* stack = nullptr;
  size_t stack_bytes = 0;
  void (*entry)() = nullptr;
};

Context* make_context() {
  return new Context;
}

Context* make_context(void* stack, size_t stack_bytes, void (*entry)()) {
  auto* context = new Context{nullptr, stack, stack_bytes, entry};
  reset_context(*context);
  return context;
}

void reset_context(Context& context) {
  constexpr int kSavedRegisters = 6;
  const auto top = (reinterpret_cast<uintptr_t>(context.stack) + context.stack_bytes) / 64 * 64;
  auto** at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // where the entry would return to; aligns the stack as a call does
  *--at = reinterpret_cast<void*>(context.entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--at = nullptr;
  context.stack_pointer = at;
}

void free_context(Context* context) {
  delete context;
}

SIMT_UNSEEN void switch_context(Context& from, Context& to) {
  tutti_simt_switch(&from.stack_pointer, to.stack_pointer);
}

}  // namespace tutti::simt
