// Local sockets: Unix sockets in the abstract name space, which leave no file behind. Message sockets carry
// descriptors too; stream sockets carry the frames of the bootstrap.
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

struct LocalMessage {
  std::vector<std::byte> bytes;  ///< empty: the other side has closed
  std::vector<FileDescriptor> files;
};

/// Descriptors in one message (the kernel's limit is 253).
inline constexpr size_t kMaxMessageFiles = 240;
inline constexpr size_t kMaxMessageBytes = 65536;

enum class LocalKind : uint8_t { kMessages, kStream };

/// Non-blocking. Errors: kInvalidUsage (another process listens there), kSystemError.
Result<FileDescriptor> local_listen(const std::string& name, LocalKind kind = LocalKind::kMessages);
/// Non-blocking. Errors: kPeerLost (nobody listens); kInvalidUsage (another user's listener, or another
/// kind); kTimeout (its queue stays full); kSystemError; errors of `check`, which is called while the queue
/// is full.
Result<FileDescriptor> local_connect(const std::string& name, uint64_t deadline_ns,
                                     const std::function<Status()>& check = {},
                                     LocalKind kind = LocalKind::kMessages);
/// The next connection of the same user. Closed, with errno, if none is waiting, or after many connections of
/// other users: then the listener is still ready.
FileDescriptor local_accept(const FileDescriptor& listener);
/// False if the deadline has passed.
bool wait_ready(int fd, short events, uint64_t deadline_ns);

/// The process at the other end, which listens or has listened there.
int local_peer(int fd);

/// Errors: kPeerLost, kTimeout, kSystemError.
Status local_send(int fd, std::span<const std::byte> bytes, std::span<const int> files, uint64_t deadline_ns);
/// Waits until `deadline_ns`; 0: kTimeout if no message is there.
Result<LocalMessage> local_receive(int fd, uint64_t deadline_ns);

}  // namespace tutti
