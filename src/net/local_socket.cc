#include "net/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/clock.h"

namespace tutti {
namespace {

constexpr timespec kConnectPause{.tv_sec = 0, .tv_nsec = 2'000'000};
// Other users' connections closed in one turn: the control thread has other work.
constexpr int kStrangersPerTurn = 64;

/// The abstract address of `name`: its path begins with a zero byte.
socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

FileDescriptor open_socket(LocalKind kind) {
  const int type = kind == LocalKind::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
  return FileDescriptor(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Every user of the host can use the name space.
bool is_trusted(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

Status nobody_listens() {
  return {Code::kPeerLost,
          "nobody listens for this unique id: its set-up is over or has failed on an earlier rank, or the "
          "process that made it has ended, or is on another host or in another network name space"};
}

}  // namespace

Result<FileDescriptor> local_listen(const std::string& name, LocalKind kind) {
  FileDescriptor listener = open_socket(kind);
  if (!listener.is_open()) return system_error("opening a Unix socket", errno);
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), 4096) != 0) {
    if (errno == EADDRINUSE)
      return Status(Code::kInvalidUsage, "another process listens on Unix socket @" + name);
    return system_error("listening on Unix socket @" + name, errno);
  }
  return listener;
}

Result<FileDescriptor> local_connect(const std::string& name, uint64_t deadline_ns,
                                     const std::function<Status()>& check, LocalKind kind) {
  FileDescriptor connection = open_socket(kind);
  if (!connection.is_open()) return system_error("opening a Unix socket", errno);
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  while (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return nobody_listens();
    if (errno == EPROTOTYPE)
      return Status(Code::kInvalidUsage, "something else than tutti listens on Unix socket @" + name);
    if (errno != EAGAIN) return system_error("connecting to Unix socket @" + name, errno);
    // The queue is full, and no event tells when it has room.
    if (now_ns() >= deadline_ns)
      return Status(Code::kTimeout, "the queue of Unix socket @" + name +
                                        " is full: its listener (see ss -xlp) accepts no connections, or "
                                        "other processes of this host flood it");
    if (check) TUTTI_TRY(check());
    nanosleep(&kConnectPause, nullptr);
  }
  // Another user may have taken the name after its owner. This rank would show the key there.
  if (!is_trusted(connection.get()))
    return Status(Code::kInvalidUsage, "a process of another user listens on Unix socket @" + name);
  return connection;
}

bool wait_ready(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    const uint64_t left_ms = std::min<uint64_t>((deadline_ns - now) / 1'000'000 + 1, 60'000);
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, static_cast<int>(left_ms)) > 0) return true;
  }
}

int local_peer(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.pid : 0;
}

FileDescriptor local_accept(const FileDescriptor& listener) {
  for (int strangers = 0; strangers < kStrangersPerTurn;) {
    FileDescriptor connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return connection;
    }
    if (is_trusted(connection.get())) return connection;
    ++strangers;
  }
  errno = EAGAIN;
  return {};
}

Status local_send(int fd, std::span<const std::byte> bytes, std::span<const int> files,
                  uint64_t deadline_ns) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxMessageFiles * sizeof(int))> control{};
  if (!files.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  for (;;) {
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Status::ok();
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      if (!wait_ready(fd, POLLOUT, deadline_ns))
        return {Code::kTimeout, "a peer does not read its set-up messages"};
      continue;
    }
    if (errno == EPIPE || errno == ECONNRESET)
      return {Code::kPeerLost, "a peer closed its set-up connection"};
    return system_error("sending on a Unix socket", errno);
  }
}

Result<LocalMessage> local_receive(int fd, uint64_t deadline_ns) {
  LocalMessage result;
  result.bytes.resize(kMaxMessageBytes);
  // Files that have come must not be lost because the list cannot grow.
  result.files.reserve(kMaxMessageFiles);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxMessageFiles * sizeof(int))> control{};
  bool was_reset = false;
  for (;;) {
    iovec part{result.bytes.data(), result.bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        if (!wait_ready(fd, POLLIN, deadline_ns))
          return Status(Code::kTimeout, "no message before the deadline");
        continue;
      }
      // After a peer closes with unread data, the kernel reports the reset before the peer's last message,
      // which often has the reason.
      if (errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
      if (errno == ECONNRESET) return Status(Code::kPeerLost, "a peer closed its set-up connection");
      return system_error("receiving from a Unix socket", errno);
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int file = -1;
        std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        result.files.emplace_back(file);
        if (!result.files.back().is_open()) return system_error("keeping a peer's descriptor", errno);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return system_error("receiving the descriptors of a peer", EMFILE);
    }
    result.bytes.resize(static_cast<size_t>(got));
    return result;
  }
}

}  // namespace tutti
