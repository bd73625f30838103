// A memory barrier in all threads of the process, at one thread's request. For handshakes with one frequent
// side, which then needs only plain loads and stores, and one rare side.
#pragma once

namespace tutti {

/// Tells the kernel that barriers will follow. Call before the first store of a handshake.
void prepare_process_barrier() noexcept;

/// There is a moment during this call for which both hold. What a thread stored before this moment, the
/// caller sees afterwards. What a thread loads after this moment is no older than the caller's stores before
/// the call.
///
/// Linux interrupts each running thread (membarrier, since 4.14). If Linux refuses, the caller yields its
/// core for a while. Stores then leave a core within a microsecond in practice, but no rule of the machine
/// says so.
void process_barrier() noexcept;

}  // namespace tutti
