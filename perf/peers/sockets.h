// The speed of plain sockets between ranks 0 and 1, over loopback: the floor for any library's TCP.
//
// exchange: both ranks send and receive `bytes` at once, over as many connections as the library has. The
// loop takes what is there, sends what fits, and sleeps in poll(2) only when neither is possible. round_trip:
// a message to the peer and back; the reader polls without sleeping.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "board.h"

namespace peers {

/// Connections between ranks 0 and 1 (other ranks: none). Both ranks construct at once; destruction closes.
/// Throws if the kernel refuses.
class Sockets {
 public:
  Sockets(Board& board, size_t count) : reader_(board.rank() == 1) {
    const int listener = board.rank() == 0 ? listen_at(board) : -1;
    board.barrier();
    for (size_t i = 0; i < count && board.rank() < 2; ++i) add(listener, board);
    if (listener >= 0) close(listener);
    board.barrier();
  }
  ~Sockets() {
    for (const int descriptor : descriptors_) close(descriptor);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  size_t count() const { return descriptors_.size(); }

  void exchange(const char* from, char* to, size_t bytes) {
    const size_t count = descriptors_.size();
    struct Part {
      size_t sent = 0;
      size_t received = 0;
      size_t end = 0;
    };
    std::vector<Part> parts(count);
    for (size_t i = 0; i < count; ++i) {
      parts[i] = {.sent = bytes * i / count, .received = bytes * i / count, .end = bytes * (i + 1) / count};
    }
    for (bool done = false; !done;) {
      bool moved = false;
      done = true;
      for (size_t i = 0; i < count; ++i) {
        Part& part = parts[i];
        const size_t got =
            take(descriptors_[i], to + part.received, std::min(kPiece, part.end - part.received));
        const size_t given = give(descriptors_[i], from + part.sent, std::min(kPiece, part.end - part.sent));
        part.received += got;
        part.sent += given;
        moved = moved || got + given > 0;
        done = done && part.sent == part.end && part.received == part.end;
      }
      if (moved || done) continue;
      std::vector<pollfd> polls;
      for (size_t i = 0; i < count; ++i) {
        const int events =
            (parts[i].received < parts[i].end ? POLLIN : 0) | (parts[i].sent < parts[i].end ? POLLOUT : 0);
        polls.push_back({.fd = descriptors_[i], .events = static_cast<short>(events), .revents = 0});
      }
      poll(polls.data(), polls.size(), -1);
    }
  }

  /// A message from rank 0 to rank 1 and one back, on the first connection. Does not sleep, like a rank that
  /// has its own core.
  void round_trip(char* buffer, size_t bytes) {
    if (descriptors_.empty()) return;
    if (reader_) take_all(buffer, bytes);
    for (size_t sent = 0; sent < bytes;) sent += give(descriptors_[0], buffer + sent, bytes - sent);
    if (!reader_) take_all(buffer, bytes);
  }

 private:
  /// Bytes of one read or write: about a quarter of the second-level cache, so that received bytes are still
  /// cached for the next step. Whole segments of the loopback device, because a short segment costs as much
  /// as a long one.
  static constexpr size_t kPiece = size_t{4} * 65'483;

  [[noreturn]] static void fail(const char* what) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  }

  /// Selects Reno before listening or connecting, as tutti does, so that nothing is paced
  /// (core/tcp_socket.h).
  static void begin_unpaced(int descriptor) {
    setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }

  static int listen_at(Board& board) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    begin_unpaced(listener);
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener, 64) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      fail("listening on loopback");
    }
    std::memcpy(board.page().blob, &address, sizeof(address));
    return listener;
  }

  void add(int listener, Board& board) {
    int descriptor = -1;
    if (listener >= 0) {
      descriptor = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    } else {
      sockaddr_in address{};
      std::memcpy(&address, board.page().blob, sizeof(address));
      descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      begin_unpaced(descriptor);
      if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        fail("connecting");
    }
    const int on = 1;
    if (descriptor < 0 || setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
      fail("a connection");
    descriptors_.push_back(descriptor);
  }

  static size_t moved_bytes(ssize_t done, const char* what) {
    if (done > 0) return static_cast<size_t>(done);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    fail(what);
  }
  static size_t take(int descriptor, char* to, size_t bytes) {
    return bytes == 0 ? 0 : moved_bytes(recv(descriptor, to, bytes, MSG_DONTWAIT), "receiving");
  }
  static size_t give(int descriptor, const char* from, size_t bytes) {
    return bytes == 0 ? 0
                      : moved_bytes(send(descriptor, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), "sending");
  }
  void take_all(char* to, size_t bytes) {
    for (size_t got = 0; got < bytes;) got += take(descriptors_[0], to + got, bytes - got);
  }

  bool reader_;
  std::vector<int> descriptors_;
};

}  // namespace peers
