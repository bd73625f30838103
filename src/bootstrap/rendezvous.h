// Rendezvous: the meeting point. Every rank comes once, says where it listens, and is told where its parent
// in the tree (tree.h) listens as soon as that has come; what the ranks then have to say goes through the
// tree. Until a rank has its first all-gather behind it, it stays connected here, and the rendezvous is the
// judge of what went wrong: all ranks read about the same, first failure; at the deadline the ranks that have
// not come are named. A failure is kept for ranks that come late, until all have heard of it.
//
// Per rank: one connection, three small frames. docs/decisions/0004-meeting.md tells why one process
// serves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/frame_socket.h"
#include "bootstrap/join_tracker.h"

namespace tutti {

inline constexpr uint32_t kBootstrapRanksMax = 1u << 16;

struct RendezvousOptions {
  Credentials credentials;
  Listener listener;
  /// Called when the first rank has come. May be empty.
  std::function<void()> on_begin;
  /// Called with the failure of the meeting, once. May be empty.
  std::function<void(const Status&)> on_fail;
  /// Called once when nobody has to be served any more: all ranks have met and left, or all have heard of a
  /// failure, or `remember_ms` have passed since. May destroy the rendezvous. May be empty.
  std::function<void()> on_end;
  /// How long a failure is kept for ranks that have not come yet.
  uint64_t remember_ms = 120'000;
  /// Of who lets ranks in by another way, too; null: the rendezvous keeps its own. Outlives it.
  JoinTracker* joins = nullptr;
  /// See AcceptorOptions.
  std::function<void(const std::string&)> on_stranger = log_line;
  uint32_t pending_max = 1024;
  uint64_t proof_timeout_ms = 5000;
};

class Rendezvous {
 public:
  static Result<std::unique_ptr<Rendezvous>> open(EventLoop& loop, RendezvousOptions options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Ends the meeting: all ranks, those that come later too, get this failure, unless there was one before.
  void fail(Code code, const std::string& text);
  /// Looks whether it is over: for who has changed the `joins`.
  void settle();

  const AcceptorCounts& acceptor_counts() const { return acceptor_->counts(); }
  size_t pending_count() const { return acceptor_->pending_count(); }
  /// Frames sent to ranks.
  uint64_t sent_count() const { return sent_count_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    uint32_t rank = 0;
    bool joined = false;
    bool left = false;
    bool is_second = false;  ///< of its rank
  };

  Rendezvous(EventLoop& loop, RendezvousOptions& options)
      : loop_(loop),
        on_begin_(std::move(options.on_begin)),
        on_fail_(std::move(options.on_fail)),
        on_end_(std::move(options.on_end)),
        remember_ms_(options.remember_ms),
        joins_(options.joins != nullptr ? options.joins : &own_joins_) {}
  void admit(const Claim& claim, FileDescriptor socket);
  void handle(uint64_t number, const Frame& frame);
  void join(Visitor& visitor, const Frame& frame);
  void introduce(uint32_t rank);
  void answer_absent(Visitor& visitor);
  void lose(uint64_t number);
  void send(Visitor& visitor, FrameHeader header, FrameSocket::Body body = nullptr);
  void tell_failure(Visitor& visitor);
  void end();
  std::string absent() const;

  EventLoop& loop_;
  std::function<void()> on_begin_;
  std::function<void(const Status&)> on_fail_;
  std::function<void()> on_end_;
  uint64_t remember_ms_;
  JoinTracker own_joins_;
  JoinTracker* joins_;
  std::unique_ptr<Acceptor> acceptor_;
  uint32_t rank_count_ = 0;               ///< 0 until the first rank has joined
  std::map<uint64_t, Visitor> visitors_;  ///< by order of arrival
  uint64_t arrivals_ = 0;
  std::map<uint32_t, uint64_t> visitor_of_rank_;  ///< of joined ranks that are still connected
  std::vector<FrameSocket::Body> endpoints_;      ///< by rank; empty: has not come
  Status failure_;
  EventLoop::Timer memory_;  ///< until when a failure is kept
  uint64_t sent_count_ = 0;
};

}  // namespace tutti
