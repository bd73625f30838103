// Bootstrap: how the ranks of a new communicator find each other and tell each other what they are.
//
// What the room owns. The unique id and the process that serves it; the protocol by which ranks prove that
// they belong to the id, and exchange short texts of bytes (blobs); authenticated sockets between ranks of
// different hosts; what launchers tell of ranks, and how an id gets from rank 0 to the others. The room knows
// nothing of plans, transports or devices. It sees src/core and src/net only.
//
// Its parts, from the outside in:
//   Bootstrap          one rank's part in the bootstrap of an id (this file)
//   BootstrapServers   the ids that this process has made and serves (servers.h)
//   share, launcher    how rank 0 hands the id to the others (share.h), who started the ranks (launcher.h)
//   BootstrapClient    join, all_gather and fail, for a caller that waits (client.h)
//   DataPort           sockets between two ranks, for a transport (data_port.h)
//   BootstrapNode      a rank as a state machine (node.h)
//   Rendezvous         where ranks find each other, as a state machine (rendezvous.h)
//   blobs, shape       what ranks say in an exchange, and to whom (blobs.h, shape.h)
// Connections, their proofs and frames are in src/net.
//
// The life of one bootstrap:
//   1. One process makes the id. Its control thread serves a rendezvous for it: at a Unix socket that has the
//      id's name, and at the network addresses in the id.
//   2. Every rank connects to the Unix socket; where no process listens, to the network addresses. Over the
//      Unix socket both ends check the other's user, and the rank shows the key. Over the network both ends
//      prove that they know the key.
//   3. While all ranks come over the Unix socket the shape is a star. Every rank sends its blob to the
//      rendezvous, which sends all blobs to every rank. As soon as a rank comes over the network the shape is
//      a tree, and ranks at the Unix socket are told so: each rank says where it listens, is told where its
//      parent listens, and connects to the parent. Blobs go up to rank 0 and all of them come down.
//   4. introduce() is the first exchange, share() another one, finish() the last one.
//   5. Any rank may fail() in between, end, or not come by the deadline. The rendezvous, and later the tree,
//      tells every rank the first failure with its text. The rendezvous of a failed bootstrap goes on until
//      ranks that come late have heard of the failure, too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/client.h"
#include "bootstrap/data_port.h"
#include "bootstrap/servers.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/result.h"

namespace tutti {

class Bootstrap {
 public:
  /// What a rank says of itself. Its data sockets are found by ranks that it meets over the network.
  using Announce = std::function<std::vector<std::byte>(const PackedEndpoints& data_endpoints)>;

  /// Blocks until this rank has introduced itself to the rendezvous. Errors: those of BootstrapClient::join;
  /// and kPeerLost: nobody serves the id; kTimeout: the queue of the id's Unix socket is kept full.
  static Result<Bootstrap> join(const BootstrapOptions& options, const Config& config);

  /// For a rank that cannot take part: joins only to tell all ranks `why`, also those that come later. Blocks
  /// until the rendezvous knows it, for some seconds at most.
  static void decline(const BootstrapOptions& options, const Config& config, const Status& why);

  /// What every rank says of itself, by rank: `announce` makes this rank's words, once or, when it turns out
  /// that the ranks are on several hosts, twice. The words of the ranks may differ in length; all together
  /// have at most kBlobsBytesMax bytes. Errors: as BootstrapClient::all_gather.
  Result<Blobs> introduce(const Announce& announce);

  /// Every rank's blob, by rank, once all have introduced themselves. Sizes and errors: as introduce().
  Result<Blobs> share(std::span<const std::byte> blob);

  /// Whether the ranks met over the network; known after introduce().
  bool is_network() const { return client_->is_network(); }
  uint64_t deadline_ns() const { return options_.deadline_ns; }
  const UniqueId& id() const { return options_.id; }

  /// Connects to peers that were met over the network. Errors: as DataPort::connect, and what `fail` said on
  /// another rank meanwhile.
  Result<std::vector<FileDescriptor>> connect(std::span<const DataRequest> requests);

  /// For a caller that waits for something else meanwhile: the descriptor is readable when check() has
  /// something to do. check() says what has ended the bootstrap.
  int descriptor() const { return client_->descriptor(); }
  Status check() { return client_->check(); }

  /// All ranks are ready. Ends the bootstrap.
  Status finish();

  /// What has ended the bootstrap, where this rank failed by `own`: that a peer has gone is often how a rank
  /// learns of a failure that the bootstrap is about to tell. Blocks for that, a second at most.
  Status find_cause(const Status& own);

  /// Tells all ranks that this one gives up, and why.
  void fail(const Status& why) { client_->fail(why); }

 private:
  explicit Bootstrap(const BootstrapOptions& options, const Config& config)
      : options_(options), listen_{config.socket_ifname, config.port_first, config.port_last} {}
  Status join_locally(uint64_t connect_deadline_ns);
  Status join_network();
  Status open_port();
  Result<BootstrapClient> join_at(BootstrapAddress address, uint64_t deadline_ns, BootstrapStop* stop) const;

  BootstrapOptions options_;
  ListenOptions listen_;
  std::optional<BootstrapClient> client_;  ///< always there once join() has returned
  std::unique_ptr<DataPort> port_;         ///< where the ranks meet over the network
};

}  // namespace tutti
