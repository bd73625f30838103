// A memory barrier that one thread has all threads of the process make. Where one side of a handshake comes
// by at every call and the other once in a life, the first stores and loads plainly, and the second pays.
#pragma once

namespace tutti {

/// Before the first store of a handshake: tells the kernel that there will be barriers.
void prepare_process_barrier() noexcept;

/// What any thread had stored before some moment of this call is seen by the caller afterwards; what any
/// thread loads after that moment is no older than what the caller had stored before the call.
///
/// Linux makes it with an interrupt of each running thread (membarrier, since 4.14). Where it refuses, the
/// caller gives its core away for a while instead: stores leave a core within a microsecond by themselves,
/// though no rule of the machine says so.
void process_barrier() noexcept;

}  // namespace tutti
