// Visitor: a connection from the fuzzer to a acceptor, over loopback.
#pragma once

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "net/endpoint.h"
#include "net/frame.h"
#include "net/handshake.h"

namespace tutti::test {

inline Endpoint loopback_of(uint16_t port) {
  Endpoint endpoint;
  endpoint.address[0] = std::byte{127};
  endpoint.address[3] = std::byte{1};
  endpoint.port = port;
  return endpoint;
}

class Visitor {
 public:
  /// `turn` lets the other side go on where it runs in this thread; else that is waited for.
  Visitor(const Endpoint& where, std::function<void()> turn) : turn_(std::move(turn)) {
    sockaddr_storage storage;
    const socklen_t length = where.to_sockaddr(storage);
    socket_ = FileDescriptor(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect(socket_.get(), reinterpret_cast<const sockaddr*>(&storage), length);
    // Thousands of these a second: none of them stays in the kernel when it is closed.
    const linger at_once{1, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

  /// Proves itself. False when the other side does not want it.
  bool prove(const Credentials& credentials, const Claim& claim) {
    ConnectorHandshake handshake(credentials, claim, Nonce{});
    while (!handshake.is_done()) {
      const auto bytes = receive(handshake.wanted());
      if (bytes.empty() || !handshake.feed(bytes)) return false;
      if (!handshake.output().empty()) {
        send(handshake.output());
        handshake.sent(handshake.output().size());
      }
    }
    return true;
  }

  void send(std::span<const std::byte> bytes) {
    (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // Until the other side's kernel has it, or says that nobody reads any more.
    int under_way = 1;
    for (int turn = 0; turn < kTurnsMost && under_way > 0; ++turn) {
      turn_();
      if (ioctl(socket_.get(), SIOCOUTQ, &under_way) != 0) break;
    }
    turn_();
  }
  void send(FrameHeader header, std::span<const std::byte> body) {
    header.body_bytes = static_cast<uint32_t>(body.size());
    send(encode(header));
    send(body);
  }
  /// Says that nothing more comes.
  void finish() {
    shutdown(socket_.get(), SHUT_WR);
    turn_();
  }
  /// At most so many bytes; none when the other side has closed, or says nothing.
  std::vector<std::byte> receive(size_t most) {
    pollfd entry{socket_.get(), POLLIN, 0};
    std::vector<std::byte> bytes(most);
    bool ready = false;
    for (int turn = 0; turn < kTurnsMost && !ready; ++turn) {
      turn_();
      ready = poll(&entry, 1, 1) > 0;
    }
    const ssize_t got = ready ? recv(socket_.get(), bytes.data(), most, MSG_DONTWAIT) : 0;
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }

 private:
  static constexpr int kTurnsMost = 10'000;

  std::function<void()> turn_;
  FileDescriptor socket_;
};

}  // namespace tutti::test
