// BootstrapNode: one rank in a meeting, as a state machine on an event loop. It finds its parent through the
// rendezvous, lets its children in, and then takes part in all-gathers: blobs go up the tree to rank 0, the
// table of all comes down. What fails anywhere reaches every rank with its text.
//
// Nothing here blocks; meeting.h wraps it for a caller that does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/connector.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/frame_socket.h"

namespace tutti {

inline constexpr size_t kBootstrapBlobBytesMax = 512;

struct NodeOptions {
  Credentials credentials;
  std::vector<Endpoint> point;  ///< where the rendezvous listens; or
  HostPort point_name;          ///< its name, when `point` is empty
  bool patient = false;         ///< the rendezvous may not listen yet (ConnectorOptions)
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  ListenOptions listen;
  ResolveFunction resolve = tutti::resolve;
};

/// What one rank has done.
struct NodeCounts {
  uint32_t connections = 0;  ///< made or taken, the one to the rendezvous included
  uint64_t frames_sent = 0;
};

class BootstrapNode {
 public:
  /// All ranks' blobs, by rank, one after the other.
  using Table = FrameSocket::Body;
  using OnTable = std::function<void(Result<Table>)>;

  /// Begins to connect. Errors: kInvalidArgument, kSystemError (no socket to listen at).
  static Result<std::unique_ptr<BootstrapNode>> start(EventLoop& loop, NodeOptions options);
  ~BootstrapNode();
  BootstrapNode(const BootstrapNode&) = delete;
  BootstrapNode& operator=(const BootstrapNode&) = delete;

  /// Gives this rank's blob to the next all-gather: at most kBootstrapBlobBytesMax bytes, equally many on all
  /// ranks. After the `last` one ranks may go without a word. `on_table` is called once, here or from the
  /// loop. Errors: kTimeout naming absent ranks, kPeerLost, kVersionMismatch (sizes differ), whatever `fail`
  /// said on another rank.
  void all_gather(std::span<const std::byte> blob, bool last, OnTable on_table);

  /// Tells all ranks that this one gives up, and why. The first failure that the ranks hear of is
  /// everybody's.
  void fail(const Status& why) { report(why); }

  /// After a failure: closes all connections; what has been said is with the kernel.
  void close();

  /// It has introduced itself to the rendezvous.
  bool is_known() const { return point_ != nullptr || exchange_ > 0; }
  /// The rendezvous has told it its parent.
  bool has_joined() const { return acknowledged_; }
  /// Its parent and all its children are connected.
  bool is_linked() const;
  /// ok until the meeting has failed.
  const Status& failure() const { return failure_; }
  /// What has been said is with the kernel: connections may be closed without loss.
  bool is_drained() const;
  NodeCounts counts() const;

 private:
  struct Child {
    std::unique_ptr<FrameSocket> socket;
    std::vector<std::byte> blobs;  ///< of its subtree, for the exchange under way
    bool reported = false;
    std::string missing;  ///< what it said when its deadline had passed
  };

  BootstrapNode(EventLoop& loop, NodeOptions options) : loop_(loop), options_(std::move(options)) {}
  Status listen();
  void dial_point();
  void join(FileDescriptor socket);
  void from_point(const Frame& frame);
  void point_lost();
  void dial_parent(uint32_t parent, const std::vector<std::byte>& packed);
  void link_parent(FileDescriptor socket);
  void from_parent(Frame frame);
  HandshakeResult judge(const Claim& claim) const;
  void link_child(const Claim& claim, FileDescriptor socket);
  void from_child(uint32_t rank, Frame frame);
  void take_up(uint32_t rank, Child& child, Frame frame);
  void go_up();
  void spread(Table table);
  void leave_point();
  void neighbour_lost(uint32_t rank);

  void deadline_passed();
  void ask_children();
  void conclude_missing();

  /// A failure found here: the rendezvous decides whether it is the first, while there is one.
  void report(const Status& why);
  /// The failure of the meeting: tells all neighbours and whoever waits for a table.
  void conclude(const Status& why);
  void complete(Result<Table> result);

  EventLoop& loop_;
  NodeOptions options_;
  PackedEndpoints own_endpoints_{};
  std::unique_ptr<Acceptor> acceptor_;  ///< only of ranks that have children
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<FrameSocket> point_;
  std::unique_ptr<FrameSocket> parent_;
  std::map<uint32_t, Child> children_;  ///< by rank; all that there will be

  uint32_t exchange_ = 0;  ///< number of the all-gather under way, or of the next one
  std::vector<std::byte> blob_;
  OnTable on_table_;  ///< set while an all-gather is under way
  bool acknowledged_ = false;
  bool gone_up_ = false;
  bool last_ = false;      ///< of the all-gather under way
  bool finished_ = false;  ///< the last one is done: neighbours leave in good order
  bool overdue_ = false;   ///< the deadline has passed
  Status failure_;
  Status reported_;  ///< what the rendezvous has been told
  uint32_t connections_ = 0;
  uint64_t frames_of_closed_ = 0;
  EventLoop::Timer deadline_;
  EventLoop::Timer patience_;
};

}  // namespace tutti
