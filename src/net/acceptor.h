// Acceptor: the listening side of authenticated connections. It admits connections that prove knowledge of
// the key, and limits the number and time of all others.
//
// Without room it closes the oldest unproved connection. A proof takes one round trip. A flood of n
// connections a second leaves each (pending_max / n) seconds. A rank that was turned away tries again.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/file_descriptor.h"
#include "core/fork_guard.h"
#include "core/log.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/handshake.h"

namespace tutti {

struct AcceptorOptions {
  Credentials credentials;
  AcceptorHandshake::Judge judge;
  /// Called with each admitted connection: non-blocking, TCP_NODELAY set.
  std::function<void(const Claim&, FileDescriptor)> on_peer;
  /// Called at the first stranger of each kind, with its address and behaviour; may be empty. Peers that have
  /// proved the key are told why they are refused.
  std::function<void(const std::string&)> on_stranger = log_line;
  /// Called once, if this process has no descriptor for other ranks for a second, and strangers hold none;
  /// may be empty. May destroy the acceptor.
  std::function<void(const Status&)> on_starved;
  /// Unproved connections; fewer if the process may open few descriptors.
  uint32_t pending_max = 256;
  uint64_t proof_timeout_ms = 5000;
};

enum class Stranger : uint8_t {
  kSilent,   ///< closed without sending anything: a port scanner
  kBroke,    ///< closed during its hello
  kNoProof,  ///< another protocol, a wrong key, a replayed hello
  kStalled,
  kDisplaced  ///< made room for others: a flood
};
inline constexpr size_t kStrangerKinds = 5;

struct AcceptorCounts {
  uint64_t accepted = 0;  ///< proved and expected
  uint64_t refused = 0;   ///< wrong proof, not expected, or closed before the proof
  uint64_t timed_out = 0;
  uint64_t displaced = 0;
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
  /// The address of the last connection that did not know the key; empty: there was none.
  const std::string& last_without_key() const { return last_without_key_; }

 private:
  struct Pending {
    FileDescriptor socket;
    Endpoint peer;  ///< unknown to the socket after a hang-up
    bool spoke = false;
    AcceptorHandshake handshake;
    EventLoop::Timer deadline;
  };
  using PendingEntry = std::list<Pending>::iterator;

  Acceptor(EventLoop& loop, FileDescriptor listener, AcceptorOptions options)
      : loop_(loop), listener_(std::move(listener)), guard_(listener_.get()), options_(std::move(options)) {}
  void accept();
  /// Closes the oldest unproved connection. False if there is none.
  bool displace();
  void pause(int error_number);
  void admit(FileDescriptor socket, const Endpoint& peer);
  void ready(PendingEntry entry);
  /// False if the connection has broken.
  bool write(Pending& pending);
  void end(PendingEntry entry);
  void refuse(PendingEntry entry, uint64_t& count);
  void refuse_stranger(PendingEntry entry, uint64_t& count, Stranger kind);

  EventLoop& loop_;
  FileDescriptor listener_;
  ForkGuard guard_;
  AcceptorOptions options_;
  AcceptorCounts counts_;
  EventLoop::Timer resume_;
  uint64_t starved_ns_ = 0;     ///< since when there is no descriptor; 0: there is one
  std::list<Pending> pending_;  ///< oldest first
  std::array<bool, kStrangerKinds> told_{};
  std::string last_without_key_;
};

}  // namespace tutti
