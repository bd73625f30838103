// Rendezvous: where the ranks of a bootstrap find each other, on the event loop of one process.
//
// While all ranks come over the Unix socket, the shape is a star: the rendezvous gathers the blobs. When a
// rank comes over the network, the shape becomes a tree: each rank joins once, says where it listens, and
// learns where its parent listens. Blobs then go through the tree.
//
// A rank stays connected until its first all-gather in a tree, or its last one in a star. Until then the
// rendezvous tells all ranks the same first failure, and names the missing ranks at the deadline. It keeps a
// failure for late ranks until all have heard it. A lack of memory here is such a failure.
//
// In a tree each rank needs one connection here and three small frames. docs/decisions/0004-bootstrap.md
// tells why one process serves.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/shape.h"
#include "core/fork_guard.h"
#include "net/acceptor.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"

namespace tutti {

inline constexpr uint32_t kBootstrapRanksMax = 1u << 16;

/// How long a process with a failed bootstrap stays for late ranks. Processes of one launcher start within
/// seconds, and some ranks may never come.
inline constexpr uint64_t kStayMs = 5000;

/// Counts the ranks that have come, to know how long to keep a failure for late ones.
class JoinTracker {
 public:
  /// A rank has stated the number of ranks. The smallest number counts: others may not exist.
  void expect(uint32_t rank_count) {
    expected_ = expected_ == 0 ? rank_count : std::min(expected_, rank_count);
  }
  /// The rank has heard how the bootstrap ended, or has ended itself.
  void gone(uint32_t rank) { gone_.insert(rank); }
  /// The same for a rank under another rank's number.
  void gone_under_another_name() { ++nameless_; }
  /// No rank is left that could still come.
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
  /// Called once, with the failure; may be empty.
  std::function<void(const Status&)> on_fail;
  /// Called once when no rank needs service any more: all have finished, or have heard of a failure, or
  /// `remember_ms` have passed since. May destroy the rendezvous; may be empty.
  std::function<void()> on_end;
  /// How long to keep a failure for late ranks.
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

  /// Ends the bootstrap for all ranks, late ones too, unless it has failed before.
  void fail(Code code, const std::string& text);
  /// The same, for a rank that is no longer connected and knows the failure.
  void give_up(uint32_t rank_count, uint32_t rank, const Status& why);
  /// Stops serving, even if some ranks have not heard the failure. Calls `on_end`.
  void end();

  const AcceptorCounts& acceptor_counts() const { return acceptor_->counts(); }
  size_t pending_count() const { return acceptor_->pending_count(); }
  uint64_t sent_count() const { return sent_count_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    uint32_t rank = 0;
    bool is_local = false;
    bool is_refused = false;  ///< stays open until it hangs up, so that it can read why
    bool joined = false;
    bool left = false;
    bool is_second = false;  ///< its rank had joined already
    bool has_blob = false;   ///< in a star
    std::vector<std::byte> blob{};
  };

  Rendezvous(EventLoop& loop, RendezvousOptions& options)
      : loop_(loop),
        credentials_(options.credentials),
        on_fail_(std::move(options.on_fail)),
        on_end_(std::move(options.on_end)),
        remember_ms_(options.remember_ms) {}
  template <class Step>
  void run(const Step& step) noexcept;
  Status listen_locally(FileDescriptor listener);
  Status listen_to_network(RendezvousOptions& options);
  void accept_local();
  /// This process has no descriptors for other ranks.
  void starve(const Status& why);
  void admit(uint32_t rank, bool is_local, FileDescriptor socket);
  void handle(uint64_t number, Frame frame);
  void join(uint64_t number, const Frame& frame);
  /// Why a proved rank cannot take part, or ok.
  Status objection(Visitor& visitor, const Frame& frame);
  void give_up_damaged();
  void turn_to_tree();
  void join(Visitor& visitor, const Frame& frame);
  void introduce(uint32_t rank);
  void gather(Visitor& visitor, Frame frame);
  void spread();
  void answer_absent(Visitor& visitor, uint32_t exchange);
  void lose(uint64_t number);
  void send(Visitor& visitor, FrameHeader header, FrameSocket::Body body = nullptr);
  void tell(Visitor& visitor, Code code, std::string_view text);
  void tell_all();
  void tell_unread();
  void stop_serving();
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
  ForkGuard local_guard_;
  EventLoop::Timer resume_;  ///< when accepting on `local_` resumes
  uint64_t starved_ns_ = 0;  ///< since when `local_` finds no descriptor; 0: it finds some
  BootstrapShape shape_ = BootstrapShape::kTree;
  uint32_t rank_count_ = 0;               ///< 0 until the first rank has joined
  std::map<uint64_t, Visitor> visitors_;  ///< in order of arrival
  uint64_t arrivals_ = 0;
  std::vector<bool> joined_;  ///< by rank
  std::set<uint32_t>
      damaged_;  ///< ranks that have shown a wrong key over the Unix socket, and have not joined
  std::map<uint32_t, uint64_t> visitor_of_rank_;  ///< of joined ranks that are still connected
  std::vector<FrameSocket::Body> endpoints_;      ///< in a tree, by rank; null: not yet there
  uint32_t exchange_ = 0;                         ///< in a star: number of the current exchange
  uint32_t blob_count_ = 0;                       ///< ranks whose blob is here
  size_t blob_bytes_ = 0;
  Status failure_;
  EventLoop::Timer memory_;  ///< when the failure is forgotten
  uint64_t sent_count_ = 0;
};

}  // namespace tutti
