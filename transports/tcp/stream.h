// Stream: the bytes of one connection: a socket, TLS, or a script in a test.
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

/// Completed writes without a copy, by number. Each stream counts from 0 and wraps.
struct Completion {
  uint32_t first = 0;
  uint32_t last = 0;
  bool copied = false;  ///< the kernel copied after all
};

/// One call is about one system call. Nothing here blocks.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Like sendmsg(2): bytes taken, or -errno (-EAGAIN: no room). Without a copy (only if
  /// can_write_in_place()), the pieces must stay unchanged until the write's completion. A failed write has
  /// no number.
  virtual ssize_t write(const iovec* pieces, size_t count, bool without_copy) = 0;
  /// Like recvmsg(2): bytes read, 0 at the end, or -errno (-EAGAIN: nothing has come).
  virtual ssize_t read(const iovec* pieces, size_t count) = 0;
  virtual bool can_write_in_place() const = 0;
  /// Bytes in one burst. A write of a multiple leaves no small remainder with its own packet and
  /// acknowledgement. May change. 0: unknown or irrelevant.
  virtual uint64_t burst_bytes() const = 0;
  /// On: a small write waits in the kernel for the previous acknowledgement, and leaves with later writes
  /// (Nagle). Off by default. No effect between machines and under TLS.
  virtual void hold_small(bool on) = 0;
  /// Acknowledges at once what was read, so that the peer sends what it holds. Works where hold_small() does.
  virtual void acknowledge() = 0;
  /// False: none now.
  virtual bool next_completion(Completion& completion) = 0;
  virtual void finish() = 0;
  /// Ends both directions. What has come can still be read. This host confirms no later byte to the peer.
  virtual void close() = 0;
  /// After close() and the last read: the network forgets unsent bytes. Completions may still come.
  virtual void forget() = 0;
  /// Goes on with what both ends must exchange before the first byte. True: done. Errors: kPeerLost.
  virtual Result<bool> shake_hands() = 0;
  /// During shake_hands(): what poll(2) should wait for.
  virtual short awaited_events() const = 0;
  /// How long the peer's host has owed an answer; 0: it owes none. A host answers even for a peer that does
  /// not read.
  virtual uint64_t silent_ms() const = 0;
  /// Written bytes that the peer's host has not confirmed. Any thread.
  virtual uint64_t unconfirmed_bytes() const = 0;
  /// Of all bytes given to write(): those that the peer's host has confirmed, at least.
  virtual uint64_t confirmed_bytes() = 0;
  /// Whether both ends are this machine, with one address: no device and no other host can tear it.
  virtual bool is_loopback() const = 0;
  virtual int descriptor() const = 0;
  /// The other end, for error messages.
  virtual const std::string& address() const = 0;
  /// This end.
  virtual const std::string& own_address() const = 0;
};

struct SocketOptions {
  uint64_t keepalive_ms = 10'000;  ///< about how soon a vanished host is noticed while idle; 0: never
  uint32_t buffer_bytes = 0;       ///< in each direction; 0: the kernel's default
};

/// Takes over a connected TCP or Unix socket: non-blocking, no delay of small writes (Nagle), keepalive if
/// wanted. Errors: kSystemError.
///
/// Between equal addresses, acknowledgements wait for data, for more than a segment, or for acknowledge():
/// one per message would cost more than a short message.
///
/// TCP_USER_TIMEOUT stays unset: it also breaks the connection to a live peer that does not read (measured:
/// closed window, 2 s set, ETIMEDOUT after 2.6 s), and a rank may compute for minutes. See silent_ms().
Result<std::unique_ptr<Stream>> make_socket_stream(FileDescriptor socket, const SocketOptions& options);

/// An end of the socket, for error messages: "10.0.0.2:4711", "[fe80::1]:4711" or "unix".
std::string peer_address(int socket);
std::string own_address(int socket);

}  // namespace tutti::tcp
