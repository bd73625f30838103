// Local sockets: Unix sockets in the abstract name space, so that no file is left behind. Those that keep
// messages apart carry file descriptors too; streams carry the frames of the bootstrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

/// What one receive brought.
struct LocalMessage {
  std::vector<std::byte> bytes;  ///< empty: the other side has closed
  std::vector<FileDescriptor> files;
};

/// Most descriptors in one message (the kernel's limit is 253).
inline constexpr size_t kMaxMessageFiles = 240;
inline constexpr size_t kMaxMessageBytes = 65536;

enum class LocalKind : uint8_t { kMessages, kStream };

/// Listens on the abstract name. Non-blocking. Errors: kInvalidUsage: another process does; kSystemError.
Result<FileDescriptor> local_listen(const std::string& name, LocalKind kind = LocalKind::kMessages);
/// Non-blocking. Errors: kPeerLost: nobody listens; kInvalidUsage: the listener belongs to another user, or
/// is of another kind; kTimeout: the listener takes no connections until `deadline_ns`; kSystemError; the
/// errors of `check`, which is called while the listener takes none.
Result<FileDescriptor> local_connect(const std::string& name, uint64_t deadline_ns,
                                     const std::function<Status()>& check = {},
                                     LocalKind kind = LocalKind::kMessages);
/// The next connection of a user with our rights; closed descriptor, and errno, when none is waiting, or many
/// of other users were in front of it: then the listener is still ready.
FileDescriptor local_accept(const FileDescriptor& listener);
/// Waits until `fd` is ready for `events` of poll(2); false when the deadline has passed.
bool wait_ready(int fd, short events, uint64_t deadline_ns);

/// The process at the other end, which listens or has listened there.
int local_peer(int fd);

/// Sends one message, never blocks longer than `deadline_ns`. Errors: kPeerLost, kTimeout, kSystemError.
Status local_send(int fd, std::span<const std::byte> bytes, std::span<const int> files, uint64_t deadline_ns);
/// Receives one message, waiting until `deadline_ns` (0: not at all; then kTimeout means none is there).
Result<LocalMessage> local_receive(int fd, uint64_t deadline_ns);

}  // namespace tutti
