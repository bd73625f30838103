// Contexts for platforms without a file of their own.
#include <ucontext.h>

#include "tests/simt/context.h"

namespace tutti::simt {

struct Context {
  ucontext_t registers;
  void* stack = nullptr;
  size_t stack_bytes = 0;
  void (*entry)() = nullptr;
};

Context* make_context() {
  return new Context{};
}

Context* make_context(void* stack, size_t stack_bytes, void (*entry)()) {
  auto* context = new Context{{}, stack, stack_bytes, entry};
  reset_context(*context);
  return context;
}

void reset_context(Context& context) {
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = context.stack;
  context.registers.uc_stack.ss_size = context.stack_bytes;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, context.entry, 0);
}

void free_context(Context* context) {
  delete context;
}

SIMT_UNSEEN void switch_context(Context& from, Context& to) {
  swapcontext(&from.registers, &to.registers);
}

}  // namespace tutti::simt
