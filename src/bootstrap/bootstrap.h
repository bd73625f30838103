// Bootstrap: how the ranks of a new communicator find each other and exchange facts.
//
// This folder owns the unique id and its server; the protocol by which ranks prove that they belong to the id
// and exchange bytes (blobs); authenticated sockets between hosts; what launchers tell; and the ways of an id
// from rank 0 to the others. It sees src/core and src/net only.
//
// Its parts, from the outside in:
//   Bootstrap          one rank's part in the bootstrap of an id (this file)
//   BootstrapServers   the ids that this process has made and serves (servers.h)
//   share, launcher    how rank 0 hands the id to the others (share.h), what started the ranks (launcher.h)
//   BootstrapClient    join, all_gather and fail, for a blocking caller (client.h)
//   DataPort           sockets between two ranks, for a transport (data_port.h)
//   BootstrapNode      a rank as a state machine (node.h)
//   Rendezvous         where ranks find each other, as a state machine (rendezvous.h)
//   blobs, shape       the data of an exchange, and its paths (blobs.h, shape.h)
//
// One bootstrap:
//   1. One process makes the id. Its control thread serves a rendezvous, at a Unix socket named after the id
//      and at the network addresses in the id.
//   2. Each rank connects to the Unix socket, or, if no process listens there, to the network addresses. Over
//      the Unix socket both ends check the other's user, and the rank shows the key. Over the network both
//      ends prove that they know the key.
//   3. While all ranks come over the Unix socket, the shape is a star: each rank sends its blob to the
//      rendezvous, which sends all blobs to each rank. When a rank comes over the network, the shape becomes
//      a tree: each rank says where it listens, learns where its parent listens, and connects to the parent.
//      Blobs go up to rank 0, and all blobs come down.
//   4. introduce() is the first exchange, share() another one, finish() the last one.
//   5. A rank may call fail(), end, or miss the deadline. The rendezvous, and later the tree, tells all ranks
//      the first failure with its text. The rendezvous then stays for late ranks.
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
  /// What a rank says about itself. Only ranks that use the network need its data sockets.
  using Announce = std::function<std::vector<std::byte>(const PackedEndpoints& data_endpoints)>;

  /// Blocks until the rendezvous knows this rank. Errors: as BootstrapClient::join; kPeerLost (nobody serves
  /// the id); kTimeout (the queue of the id's Unix socket stays full).
  static Result<Bootstrap> join(const BootstrapOptions& options, const Config& config);

  /// For a rank that cannot take part: tells all ranks `why`, late ones too. Needs one descriptor. Blocks for
  /// some seconds at most.
  static void decline(const BootstrapOptions& options, const Config& config, const Status& why);
  /// Keeps a descriptor for `decline`, which must not fail for want of one. Call before the process takes
  /// descriptors that it keeps. Any thread.
  static void reserve_descriptor();

  /// All ranks' announcements, by rank. `announce` makes this rank's: once, or twice if the ranks turn out to
  /// be on several hosts. Lengths may differ, up to kBlobsBytesMax together. Errors: as
  /// BootstrapClient::all_gather.
  Result<Blobs> introduce(const Announce& announce);

  /// All ranks' blobs, by rank. After introduce(). Sizes and errors: as there.
  Result<Blobs> share(std::span<const std::byte> blob);

  /// Known after introduce().
  bool is_network() const { return client_->is_network(); }
  uint64_t deadline_ns() const { return options_.deadline_ns; }
  const UniqueId& id() const { return options_.id; }

  /// Connects to peers over the network. Errors: as DataPort::connect; the error of another rank's fail().
  Result<std::vector<FileDescriptor>> connect(std::span<const DataRequest> requests);

  /// Readable when check() has work. check() returns the error that has ended the bootstrap.
  int descriptor() const { return client_->descriptor(); }
  Status check() { return client_->check(); }

  /// This rank is ready. Waits for all, and ends the bootstrap. Returns all blobs, as share().
  Result<Blobs> finish(std::span<const std::byte> blob);

  /// Why the bootstrap ended, where this rank failed with `own`. A rank often notices a lost peer before it
  /// hears the reason. Waits for that, for a second at most.
  Status find_cause(const Status& own);

  /// Tells all ranks that this one gives up, and why.
  void fail(const Status& why) { client_->fail(why); }

 private:
  explicit Bootstrap(const BootstrapOptions& options, const Config& config)
      : options_(options), listen_{config.socket_ifname, config.port_first, config.port_last} {}
  Status join_locally(uint64_t connect_deadline_ns);
  Status join_network();
  /// The server's address, with a connection if it is local.
  using FindAddress = std::function<Result<BootstrapAddress>(uint64_t deadline_ns, BootstrapStop* stop)>;
  /// If the caller stops the set-up before this rank has joined, the other ranks are told.
  Status join_by(const FindAddress& find_address);
  Status open_port();
  Result<BootstrapClient> join_at(BootstrapAddress address, uint64_t deadline_ns, BootstrapStop* stop) const;

  BootstrapOptions options_;
  ListenOptions listen_;
  std::optional<BootstrapClient> client_;  ///< after join()
  std::unique_ptr<DataPort> port_;         ///< if the ranks use the network
};

}  // namespace tutti
