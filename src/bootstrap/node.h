// BootstrapNode: one rank in a bootstrap, as a state machine on an event loop. Its parent is the rendezvous
// (star), or a rank that it finds through the rendezvous (tree). In an all-gather, blobs go up to the root,
// and the table of all blobs comes down. A failure anywhere reaches all ranks with its text. Nothing here
// blocks; see client.h.
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
  std::vector<Endpoint> rendezvous;  ///< where the rendezvous listens
  HostPort rendezvous_name;          ///< or its name, if `rendezvous` is empty
  bool patient = false;              ///< as in ConnectorOptions
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  ListenOptions listen;
  ResolveFunction resolve = tutti::resolve;
};

/// Tests check a rank's cost with these counts.
struct NodeCounts {
  uint32_t connections = 0;  ///< made or accepted, also to the rendezvous
  uint64_t frames_sent = 0;
};

class BootstrapNode {
 public:
  /// All ranks' packed blobs (blobs.h).
  using Table = FrameSocket::Body;
  using OnTable = std::function<void(Result<Table>)>;

  /// Starts to connect, or uses `local`, a Unix socket to the rendezvous. Errors: kInvalidArgument,
  /// kSystemError (no socket to listen on).
  static Result<std::unique_ptr<BootstrapNode>> start(EventLoop& loop, NodeOptions options,
                                                      FileDescriptor local = {});
  ~BootstrapNode();
  BootstrapNode(const BootstrapNode&) = delete;
  BootstrapNode& operator=(const BootstrapNode&) = delete;

  /// Gives this rank's blob to the next all-gather. After the `last` one, ranks may leave silently. Calls
  /// `on_table` once, here or from the loop. Errors: kTimeout, with the missing ranks; kPeerLost;
  /// kInvalidUsage (more than kBlobsBytesMax together); the error of another rank's fail(). kInvalidUsage
  /// without a failure(): the shape has become a tree, so gather again.
  void all_gather(std::span<const std::byte> blob, bool last, OnTable on_table);

  /// Tells all ranks. The first failure that reaches them counts.
  void fail(const Status& why) { report(why); }

  /// Closes all connections after a failure. The kernel still sends what was written.
  void close();

  /// kTree once a rank has come over the network.
  BootstrapShape shape() const { return shape_; }
  bool is_known() const { return rendezvous_ != nullptr || exchange_ > 0; }
  /// The rendezvous has told this rank its parent.
  bool has_joined() const { return acknowledged_; }
  /// The parent and all children in the tree are connected.
  bool is_linked() const;
  const Status& failure() const { return failure_; }
  /// The kernel has everything: closing loses nothing.
  bool is_drained() const;
  NodeCounts counts() const;

 private:
  struct Child {
    std::unique_ptr<FrameSocket> socket;
    std::vector<std::byte> blobs;  ///< of its subtree
    bool reported = false;
    std::string missing;  ///< its list, after its deadline
  };

  BootstrapNode(EventLoop& loop, NodeOptions options) : loop_(loop), options_(std::move(options)) {}
  Status listen();
  Status enter_tree();
  void dial_rendezvous();
  void join(FileDescriptor socket);
  void send_join();
  void turn_to_tree();
  void from_rendezvous(Frame frame);
  void rendezvous_lost(const Status& why);
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
  void leave_rendezvous();
  void neighbour_lost(uint32_t rank);

  void deadline_passed();
  void rendezvous_silent();
  void ask_children();
  void conclude_missing();

  /// A failure found here. The rendezvous, if any, decides whether it is the first.
  void report(const Status& why);
  /// Ends the bootstrap: tells all neighbours, and the caller that waits for a table.
  void conclude(const Status& why);
  void complete(Result<Table> result);

  EventLoop& loop_;
  NodeOptions options_;
  BootstrapShape shape_ = BootstrapShape::kTree;
  int maker_ = 0;  ///< in a star: the rendezvous's process
  PackedEndpoints own_endpoints_{};
  std::unique_ptr<Acceptor> acceptor_;  ///< only if this rank has children
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<FrameSocket> rendezvous_;
  std::unique_ptr<FrameSocket> parent_;
  std::map<uint32_t, Child> children_;  ///< by rank; all children in the tree

  uint32_t exchange_ = 0;  ///< of the current or next all-gather
  std::vector<std::byte> blob_;
  OnTable on_table_;  ///< set during an all-gather
  bool acknowledged_ = false;
  bool gone_up_ = false;
  bool last_ = false;      ///< the current all-gather is the last one
  bool finished_ = false;  ///< neighbours may leave
  bool overdue_ = false;
  Status failure_;
  Status reported_;  ///< told to the rendezvous
  uint32_t connections_ = 0;
  uint64_t frames_of_closed_ = 0;
  EventLoop::Timer deadline_;
  EventLoop::Timer patience_;
};

}  // namespace tutti
