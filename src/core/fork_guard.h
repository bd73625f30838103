// ForkGuard: descriptors that a forked child must close. Peers learn from a closed descriptor that this
// process has ended. A child that kept the descriptor would hide the end.
#pragma once

namespace tutti {

/// From now on a child closes its copy of `fd` at once. Any thread. Does nothing beyond 4096 descriptors:
/// then peers learn of the death by the heartbeat.
void close_in_child(int fd);
/// Call before this process closes `fd`. Any thread.
void keep_in_child(int fd);

}  // namespace tutti
