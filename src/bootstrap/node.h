// BootstrapNode: one rank in a bootstrap, as a state machine on an event loop. In a star the rendezvous is
// its parent. In a tree the node finds its parent through the rendezvous and lets its children in. Then the
// node takes part in all-gathers: blobs go up to the root, and the table of all blobs comes down. What fails
// anywhere reaches every rank with its text.
//
// Nothing here blocks; client.h wraps it for a caller that does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/shape.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"

namespace tutti {

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
  /// All ranks' packed blobs (blobs.h).
  using Table = FrameSocket::Body;
  using OnTable = std::function<void(Result<Table>)>;

  /// Begins to connect; or, where `local` is a connection to the rendezvous over a Unix socket, uses that.
  /// Errors: kInvalidArgument, kSystemError (no socket to listen at).
  static Result<std::unique_ptr<BootstrapNode>> start(EventLoop& loop, NodeOptions options,
                                                      FileDescriptor local = {});
  ~BootstrapNode();
  BootstrapNode(const BootstrapNode&) = delete;
  BootstrapNode& operator=(const BootstrapNode&) = delete;

  /// Gives this rank's blob, of any length, to the next all-gather. After the `last` one ranks may go without
  /// a word. `on_table` is called once, here or from the loop. Errors: kTimeout naming absent ranks,
  /// kPeerLost, kInvalidUsage (all blobs together have more than kBlobsBytesMax bytes; or, without a failure
  /// of the bootstrap, the shape has become a tree: then the caller gathers again), whatever `fail` said on
  /// another rank.
  void all_gather(std::span<const std::byte> blob, bool last, OnTable on_table);

  /// Tells all ranks that this one gives up, and why. The first failure that the ranks hear of is
  /// everybody's.
  void fail(const Status& why) { report(why); }

  /// After a failure: closes all connections; what has been said is with the kernel.
  void close();

  /// kTree once a rank has come over the network.
  BootstrapShape shape() const { return shape_; }
  /// It has introduced itself to the rendezvous.
  bool is_known() const { return point_ != nullptr || exchange_ > 0; }
  /// The rendezvous has told it its parent.
  bool has_joined() const { return acknowledged_; }
  /// Its parent and all its children in the tree are connected.
  bool is_linked() const;
  /// ok until the bootstrap has failed.
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
  Status enter_tree();
  void dial_point();
  void join(FileDescriptor socket);
  void send_join();
  void turn_to_tree();
  void from_point(Frame frame);
  void point_lost(const Status& why);
  void dial_parent(uint32_t parent, const std::vector<std::byte>& packed);
  void link_parent(FileDescriptor socket);
  void from_parent(Frame frame);
  void take_down(const char* sender, Frame frame);
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
  /// The failure of the bootstrap: tells all neighbours and whoever waits for a table.
  void conclude(const Status& why);
  void complete(Result<Table> result);

  EventLoop& loop_;
  NodeOptions options_;
  BootstrapShape shape_ = BootstrapShape::kTree;
  int maker_ = 0;  ///< of a star: the process that serves the rendezvous
  PackedEndpoints own_endpoints_{};
  std::unique_ptr<Acceptor> acceptor_;  ///< only of ranks that have children
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<FrameSocket> point_;
  std::unique_ptr<FrameSocket> parent_;
  std::map<uint32_t, Child> children_;  ///< by rank; all that there will be in the tree

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
