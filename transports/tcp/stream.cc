#include "transports/tcp/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/tcp_socket.h"

namespace tutti::tcp {
namespace {

/// Silence begins with so many unanswered repetitions of data or probes of a closed window. Data sent just
/// now is unanswered too.
constexpr uint32_t kUnanswered = 2;

/// Values of TCP_QUICKACK. Later: acknowledgements wait for data, or for more than a segment. Now: a waiting
/// one is sent, and the next ones do not wait.
constexpr int kAcknowledgeLater = 0;
constexpr int kAcknowledgeNow = 1;

std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return format("%s:%u", text, ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    return format("[%s]:%u", text, ntohs(v6.sin6_port));
  }
  return "unix";
}

class SocketStream final : public Stream {
 public:
  SocketStream(FileDescriptor socket, bool is_tcp, bool is_loopback, bool in_place)
      : socket_(std::move(socket)),
        address_(peer_address(socket_.get())),
        own_address_(tcp::own_address(socket_.get())),
        is_tcp_(is_tcp),
        is_loopback_(is_loopback),
        in_place_(in_place) {}

  ssize_t write(const iovec* pieces, size_t count, bool without_copy) override {
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (without_copy ? MSG_ZEROCOPY : 0);
    ssize_t done = 0;
    if (count == 1) {
      done = ::send(socket_.get(), pieces->iov_base, pieces->iov_len, flags);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces);  // the kernel only reads them
      message.msg_iovlen = count;
      done = ::sendmsg(socket_.get(), &message, flags);
    }
    if (done < 0) return -errno;
    written_bytes_ += static_cast<uint64_t>(done);
    return done;
  }

  ssize_t read(const iovec* pieces, size_t count) override {
    ssize_t done = 0;
    if (count == 1) {
      done = ::recv(socket_.get(), pieces->iov_base, pieces->iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces);
      message.msg_iovlen = count;
      done = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }
    return done >= 0 ? done : -errno;
  }

  bool can_write_in_place() const override { return in_place_; }
  /// The whole segments in one packet of the kernel (GSO), at most 64 KiB with headers. They grow with the
  /// window (measured on loopback: 32,741 bytes at first, 65,483 after 1 MiB).
  uint64_t burst_bytes() const override {
    constexpr uint64_t kPacketBytes = 65536 - 512;
    int segment_bytes = 0;
    socklen_t bytes = sizeof(segment_bytes);
    if (!is_tcp_ || ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, &bytes) != 0)
      return 0;
    const uint64_t segment = static_cast<uint64_t>(std::max(segment_bytes, 1));
    return std::max<uint64_t>(1, kPacketBytes / segment) * segment;
  }

  void hold_small(bool on) override {
    if (is_loopback_) set_option(socket_.get(), IPPROTO_TCP, TCP_NODELAY, on ? 0 : 1);
  }
  void acknowledge() override {
    if (!is_loopback_) return;
    set_option(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, kAcknowledgeNow);
    set_option(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, kAcknowledgeLater);
  }

  bool next_completion(Completion& completion) override {
    alignas(cmsghdr) char control[256];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(socket_.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return false;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      sock_extended_err report{};
      if (part->cmsg_len < CMSG_LEN(sizeof(report))) continue;
      std::memcpy(&report, CMSG_DATA(part), sizeof(report));
      if (report.ee_errno != 0 || report.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      completion = {.first = report.ee_info,
                    .last = report.ee_data,
                    .copied = (report.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0};
      return true;
    }
    return false;
  }

  void finish() override { ::shutdown(socket_.get(), SHUT_WR); }
  /// The kernel answers later data with a reset, as RFC 1122 demands.
  void close() override { ::shutdown(socket_.get(), SHUT_RDWR); }
  void forget() override {
    const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (is_tcp_) (void)::connect(socket_.get(), &none, sizeof(none));
  }
  Result<bool> shake_hands() override { return true; }
  short awaited_events() const override { return POLLIN; }

  uint64_t silent_ms() const override {
    if (!is_tcp_) return 0;
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
    const bool owed = info.tcpi_retransmits >= kUnanswered || info.tcpi_probes >= kUnanswered;
    return owed ? info.tcpi_last_ack_recv : 0;
  }

  uint64_t unconfirmed_bytes() const override {
    int bytes = 0;
    return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
  }
  /// A Unix socket's answer counts its buffers, which hold more than the bytes.
  uint64_t confirmed_bytes() override {
    return written_bytes_ - std::min(written_bytes_, unconfirmed_bytes());
  }
  bool is_loopback() const override { return is_loopback_ || !is_tcp_; }
  int descriptor() const override { return socket_.get(); }
  const std::string& address() const override { return address_; }
  const std::string& own_address() const override { return own_address_; }

 private:
  FileDescriptor socket_;
  std::string address_;
  std::string own_address_;
  uint64_t written_bytes_ = 0;
  bool is_tcp_;
  bool is_loopback_;  ///< equal addresses: the peer is on this machine
  bool in_place_;
};

}  // namespace

Result<std::unique_ptr<Stream>> make_socket_stream(FileDescriptor socket, const SocketOptions& options) {
  const int fd = socket.get();
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) {
    return system_error("connection to " + peer_address(fd) + ": not a socket", errno);
  }
  const bool is_tcp = domain == AF_INET || domain == AF_INET6;
  const int flags = ::fcntl(fd, F_GETFL);
  bool set_up = flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
  if (options.buffer_bytes != 0) {
    const int buffer_bytes = static_cast<int>(std::min<uint32_t>(options.buffer_bytes, INT32_MAX));
    set_up = set_up && set_option(fd, SOL_SOCKET, SO_SNDBUF, buffer_bytes) &&
             set_option(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
  }
  if (is_tcp) {
    set_up = set_up && set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) && set_keepalive(fd, options.keepalive_ms);
  }
  if (!set_up) return system_error("setting up the connection to " + peer_address(fd), errno);
  const bool is_loopback = is_tcp && loops_back(fd);
  if (is_loopback) set_option(fd, IPPROTO_TCP, TCP_QUICKACK, kAcknowledgeLater);
  // A kernel without SO_ZEROCOPY copies, which only costs time.
  const bool in_place = is_tcp && set_option(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
  return std::unique_ptr<Stream>(
      std::make_unique<SocketStream>(std::move(socket), is_tcp, is_loopback, in_place));
}

std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "unknown address";
  return text_of(address);
}

std::string own_address(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "unknown address";
  return text_of(address);
}

}  // namespace tutti::tcp
