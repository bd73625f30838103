// Stream: the bytes of one connection, the seam between the state machine and what carries them: a
// socket, TLS over one, a script in a test.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "transports/shm/memory.h"

namespace tutti::tcp {

/// Writes without copy that the network is done with: their numbers, counted from 0 per stream, wrapping.
struct Completion {
  uint32_t first = 0;
  uint32_t last = 0;
  bool copied = false;  ///< the kernel copied after all: there is nothing to gain here
};

/// One call of this interface is about one system call. Nothing here blocks.
class Stream {
 public:
  virtual ~Stream() = default;

  /// As sendmsg(2): how many bytes of the pieces were taken, or -errno (-EAGAIN: no room). Without copy
  /// (only where can_write_in_place()): the pieces must stay as they are until the write's completion. A
  /// write without copy that fails has no number.
  virtual ssize_t write(const iovec* pieces, size_t count, bool without_copy) = 0;
  /// As recvmsg(2): bytes read, 0 at the end, or -errno (-EAGAIN: nothing is there).
  virtual ssize_t read(const iovec* pieces, size_t count) = 0;
  virtual bool can_write_in_place() const = 0;
  /// How many bytes travel as one: a write of a multiple of it leaves no small remainder to be carried and
  /// acknowledged on its own. It may change. 0: not known, or of no account here.
  virtual uint64_t burst_bytes() const = 0;
  /// On: a small write waits in the kernel while an earlier one has not been acknowledged, and leaves with
  /// those behind it (Nagle). Off, as at first: nothing waits, and what waited leaves. Without effect where
  /// the peer is on another machine, and under TLS.
  virtual void hold_small(bool on) = 0;
  /// Acknowledges at once what has been read: what the peer holds may leave. Effect as hold_small().
  virtual void acknowledge() = 0;
  /// The next range of completed writes without copy; false: none is known now.
  virtual bool next_completion(Completion& completion) = 0;
  /// Says that no more will be written.
  virtual void finish() = 0;
  /// How long the peer's host has not answered what it owes an answer to; 0: nothing is owed. A peer
  /// that does not read is not silent: its host answers.
  virtual uint64_t silent_ms() const = 0;
  /// Written bytes that the peer's host has not confirmed. Any thread may ask.
  virtual uint64_t unconfirmed_bytes() const = 0;
  virtual int descriptor() const = 0;
  /// The other end, for messages.
  virtual const std::string& address() const = 0;
};

/// How a socket is set up.
struct SocketOptions {
  uint64_t keepalive_ms = 10'000;  ///< about how soon an idle peer whose host is gone is found; 0: never
  uint32_t buffer_bytes = 0;       ///< of the kernel, each direction; 0: what the kernel chooses
};

/// Takes over a connected stream socket (TCP over IPv4 or IPv6, or a Unix socket): makes it
/// non-blocking, without delay for small writes (Nagle), with keepalive if wanted. Errors: kSystemError.
///
/// Between two ends on one machine (the same address) an acknowledgement a message would cost more than a
/// short message does: there they wait for data, for more than a segment, or for acknowledge().
///
/// TCP_USER_TIMEOUT is left alone: it also tears a connection whose peer lives but has not read for that long
/// (measured: closed window, 2 s set, ETIMEDOUT after 2.6 s), and a rank may compute for minutes.
/// silent_ms() tells the two apart.
Result<std::unique_ptr<Stream>> make_socket_stream(FileDescriptor socket, const SocketOptions& options);

/// "10.0.0.2:4711", "[fe80::1]:4711", "unix": the other end of a socket, for messages.
std::string peer_address(int socket);

}  // namespace tutti::tcp
