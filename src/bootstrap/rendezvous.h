// Rendezvous: where the ranks of a bootstrap find each other, on the event loop of one process.
//
// Ranks come over a Unix socket or over the network. While all come over the Unix socket the shape is a star:
// the rendezvous itself gathers what they have to say. As soon as one comes over the network the shape is a
// tree: every rank comes once, says where it listens, and is told where its parent listens once the parent
// has come. What the ranks then have to say goes through the tree.
//
// A rank stays connected until the rendezvous is of no use to it: in a tree until its first all-gather, in a
// star until its last one. Until then the rendezvous judges what went wrong: all ranks read about the same,
// first failure, and at the deadline the ranks that have not come are named. A failure is kept for ranks that
// come late, until all have heard of it.
//
// A tree costs a rank one connection here and three small frames. docs/decisions/0004-bootstrap.md tells why
// one process serves.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/shape.h"
#include "net/acceptor.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"

namespace tutti {

inline constexpr uint32_t kBootstrapRanksMax = 1u << 16;

/// How long a process that serves a failed bootstrap stays for ranks that have not heard why. Processes that
/// one launcher starts come within seconds, and a process with an error to report should not wait long for
/// ranks that may never come.
inline constexpr uint64_t kStayMs = 5000;

/// Which ranks have been at a rendezvous, so that a failure is kept for the ranks that come late, and no
/// longer.
class JoinTracker {
 public:
  /// A rank says that so many are to come. Where they differ, the fewest: nobody waits for ranks that may not
  /// be.
  void expect(uint32_t rank_count) {
    expected_ = expected_ == 0 ? rank_count : std::min(expected_, rank_count);
  }
  /// A rank has been here and is gone: the rank has heard how the bootstrap ended, or has ended itself.
  void gone(uint32_t rank) { gone_.insert(rank); }
  /// The same for one that came under the number of another, which is still to come, or has been here, too.
  void gone_under_another_name() { ++nameless_; }
  /// Nobody is left who could come and ask.
  bool is_complete() const { return expected_ > 0 && gone_.size() + nameless_ >= expected_; }

 private:
  uint32_t expected_ = 0;
  std::set<uint32_t> gone_;
  size_t nameless_ = 0;
};

struct RendezvousOptions {
  Credentials credentials;
  Listener listener;     ///< on the network; may be closed
  FileDescriptor local;  ///< a stream of local_listen(); may be closed
  /// Called with the failure of the bootstrap, once. May be empty.
  std::function<void(const Status&)> on_fail;
  /// Called once when no rank has to be served any more: all have met and left, or all have heard of a
  /// failure, or `remember_ms` have passed since. May destroy the rendezvous. May be empty.
  std::function<void()> on_end;
  /// How long a failure is kept for ranks that have not come yet.
  uint64_t remember_ms = 120'000;
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

  /// Ends the bootstrap: all ranks, also those that come later, get this failure, unless there was one
  /// before.
  void fail(Code code, const std::string& text);
  /// The same for a rank that is not connected any more, and has heard of the failure.
  void give_up(uint32_t rank_count, uint32_t rank, const Status& why);
  /// Serves no longer, though some ranks may not have heard of the failure. Calls `on_end`.
  void end();

  const AcceptorCounts& acceptor_counts() const { return acceptor_->counts(); }
  size_t pending_count() const { return acceptor_->pending_count(); }
  /// Frames sent to ranks.
  uint64_t sent_count() const { return sent_count_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    uint32_t rank = 0;
    bool is_local = false;
    bool is_refused = false;  ///< has been told why; stays open until it hangs up, so that it can read that
    bool joined = false;
    bool left = false;
    bool is_second = false;  ///< of its rank
    bool has_blob = false;   ///< of a star, for the exchange under way
    std::vector<std::byte> blob{};
  };

  Rendezvous(EventLoop& loop, RendezvousOptions& options)
      : loop_(loop),
        credentials_(options.credentials),
        on_fail_(std::move(options.on_fail)),
        on_end_(std::move(options.on_end)),
        remember_ms_(options.remember_ms) {}
  Status listen_locally(FileDescriptor listener);
  Status listen_to_network(RendezvousOptions& options);
  void accept_local();
  void admit(uint32_t rank, bool is_local, FileDescriptor socket);
  void handle(uint64_t number, Frame frame);
  void join(uint64_t number, const Frame& frame);
  /// Why a proved rank cannot take part; empty: it can.
  Status objection(Visitor& visitor, const Frame& frame);
  void turn_to_tree();
  void join(Visitor& visitor, const Frame& frame);
  void introduce(uint32_t rank);
  void gather(Visitor& visitor, Frame frame);
  void spread();
  void answer_absent(Visitor& visitor, uint32_t exchange);
  void lose(uint64_t number);
  void send(Visitor& visitor, FrameHeader header, FrameSocket::Body body = nullptr);
  void tell(Visitor& visitor, Code code, std::string_view text);
  void settle();
  std::string list_ranks(const std::function<bool(uint32_t)>& is_listed) const;

  EventLoop& loop_;
  Credentials credentials_;
  std::function<void(const Status&)> on_fail_;
  std::function<void()> on_end_;
  uint64_t remember_ms_;
  JoinTracker joins_;
  std::unique_ptr<Acceptor> acceptor_;  ///< null: no rank may come over the network
  FileDescriptor local_;
  EventLoop::Timer resume_;  ///< when `local_` is looked at again
  BootstrapShape shape_ = BootstrapShape::kTree;
  uint32_t rank_count_ = 0;               ///< 0 until the first rank has joined
  std::map<uint64_t, Visitor> visitors_;  ///< by order of arrival
  uint64_t arrivals_ = 0;
  std::vector<bool> joined_;                      ///< by rank
  std::map<uint32_t, uint64_t> visitor_of_rank_;  ///< of joined ranks that are still connected
  std::vector<FrameSocket::Body> endpoints_;      ///< of a tree, by rank; empty: has not come
  uint32_t exchange_ = 0;                         ///< of a star: number of the exchange under way
  uint32_t blob_count_ = 0;                       ///< of it: ranks whose blob is here
  size_t blob_bytes_ = 0;
  Status failure_;
  EventLoop::Timer memory_;  ///< until when a failure is kept
  uint64_t sent_count_ = 0;
};

}  // namespace tutti
