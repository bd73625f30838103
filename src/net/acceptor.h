// Acceptor: the listening side of authenticated connections. Lets in who proves knowledge of the key, and
// holds off everybody else at a bounded price: so many connections that have proved nothing, each for so
// long.
//
// When there is no room, the stranger that has been here longest goes: a rank of ours needs one round trip,
// and a flood of n connections a second leaves each (pending_max / n) seconds. A rank that was turned away
// tries again.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "core/file_descriptor.h"
#include "core/log.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/handshake.h"

namespace tutti {

struct AcceptorOptions {
  Credentials credentials;
  /// Whether a connection that has proved itself is awaited.
  AcceptorHandshake::Judge judge;
  /// Called with each connection that is let in: non-blocking, TCP_NODELAY set.
  std::function<void(const Claim&, FileDescriptor)> on_peer;
  /// Called at the first connection of each kind (Stranger) that proves nothing, with its address and what it
  /// did; may be empty. What holders of the key are refused for, they are told.
  std::function<void(const std::string&)> on_stranger = log_line;
  /// Connections that have proved nothing yet; less where the process may open few descriptors.
  uint32_t pending_max = 256;
  uint64_t proof_timeout_ms = 5000;
};

/// How a connection that proves nothing ends.
enum class Stranger : uint8_t {
  kSilent,    ///< closed without a word: a port scanner
  kBroke,     ///< closed within its hello
  kNoProof,   ///< another protocol, a wrong key, a replayed hello
  kStalled,   ///< said too little for too long
  kDisplaced  ///< had to make room: a flood
};
inline constexpr size_t kStrangerKinds = 5;

/// What a acceptor has seen.
struct AcceptorCounts {
  uint64_t accepted = 0;   ///< proved and awaited
  uint64_t refused = 0;    ///< wrong proof, not awaited, closed or broke before the proof
  uint64_t timed_out = 0;  ///< said too little for too long
  uint64_t displaced = 0;  ///< had to make room
};

class Acceptor {
 public:
  /// `listener` is non-blocking. Errors: kSystemError.
  static Result<std::unique_ptr<Acceptor>> open(EventLoop& loop, FileDescriptor listener,
                                                AcceptorOptions options);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  const AcceptorCounts& counts() const { return counts_; }
  size_t pending_count() const { return pending_.size(); }

 private:
  struct Pending {
    FileDescriptor socket;
    Endpoint peer;  ///< cannot be asked for once it has gone
    bool spoke = false;
    AcceptorHandshake handshake;
    EventLoop::Timer deadline;
  };
  using PendingEntry = std::list<Pending>::iterator;

  Acceptor(EventLoop& loop, FileDescriptor listener, AcceptorOptions options)
      : loop_(loop), listener_(std::move(listener)), options_(std::move(options)) {}
  void accept();
  /// Gives room by closing the oldest stranger; false when there is none.
  bool displace();
  void pause();
  void admit(FileDescriptor socket, const Endpoint& peer);
  void ready(PendingEntry entry);
  /// False when the connection has broken.
  bool write(Pending& pending);
  void end(PendingEntry entry);
  void refuse(PendingEntry entry, uint64_t& count);
  void refuse_stranger(PendingEntry entry, uint64_t& count, Stranger kind);
  /// Whether a silent connection is one that a rank of ours gave up because another of its own got in first.
  bool is_of_ours(const Endpoint& peer) const { return proved_.contains(peer.address); }

  EventLoop& loop_;
  FileDescriptor listener_;
  AcceptorOptions options_;
  AcceptorCounts counts_;
  EventLoop::Timer resume_;
  std::list<Pending> pending_;  ///< oldest first
  std::array<bool, kStrangerKinds> told_{};
  std::set<std::array<std::byte, 16>> proved_;  ///< addresses of those that were let in
};

}  // namespace tutti
