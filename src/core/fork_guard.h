// ForkGuard: descriptors that a forked child must not keep: their hang-up is how peers learn that this
// process has ended, and a child that lives on would hide it.
#pragma once

namespace tutti {

/// From now on a child closes its copy of `fd` at once. Any thread. Beyond 4096 descriptors nothing is done:
/// then peers learn of the death by the heartbeat.
void close_in_child(int fd);
/// Before `fd` is closed here. Any thread.
void keep_in_child(int fd);

}  // namespace tutti
