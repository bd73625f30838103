// Context: the registers and stack of an execution that is not running now. One source file a platform.
#pragma once

#include <cstddef>

/// Code that runs between the fibers, which the thread sanitizer must not take for a part of one of them.
#define SIMT_UNSEEN __attribute__((no_sanitize("thread")))

namespace tutti::simt {

struct Context;

/// A context for the caller's own stack, filled when it is left. The caller owns it.
Context* make_context();
/// A context that will run `entry`, which must not return, on `stack`. The caller owns it and keeps the
/// stack.
Context* make_context(void* stack, size_t stack_bytes, void (*entry)());
/// As new from make_context. The context must not be running.
void reset_context(Context& context);
void free_context(Context* context);
void switch_context(Context& from, Context& to);

}  // namespace tutti::simt
