// Bootstrap: a rank's part in the meeting of a new communicator, wherever its peers are: at the server of
// this host while all come there, else over the network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/data_port.h"
#include "bootstrap/network_meeting.h"
#include "bootstrap/server.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/result.h"

namespace tutti {

class Bootstrap {
 public:
  /// What a rank says of itself; its data sockets are found by those that it meets over the network.
  using Announce = std::function<std::vector<std::byte>(const PackedEndpoints& data_endpoints)>;

  /// Blocks until the meeting knows this rank. Errors: as BootstrapClient::join and NetworkBootstrap::join.
  static Result<Bootstrap> join(const BootstrapOptions& options, const Config& config);

  /// For a rank that cannot take part: joins only to tell the meeting `why`, which keeps that for those that
  /// come later. Blocks until it knows, for some seconds at most.
  static void decline(const BootstrapOptions& options, const Config& config, const Status& why);

  /// What every rank says of itself, by rank: `announce` makes this rank's words, once or, when it turns out
  /// that the ranks are on several hosts, twice. Errors: as BootstrapClient::all_gather.
  Result<Blobs> introduce(const Announce& announce);

  /// Every rank's blob, by rank, once all have introduced themselves. Equal sizes, at most 512 bytes. Errors:
  /// as introduce().
  Result<Blobs> share(std::span<const std::byte> blob);

  /// Whether it met over the network; known after introduce().
  bool is_network() const { return network_.has_value(); }
  uint64_t deadline_ns() const { return options_.deadline_ns; }
  const UniqueId& id() const { return options_.id; }

  /// Connects to peers that were met over the network. Errors: as DataPort::connect, and what `fail` said on
  /// another rank meanwhile.
  Result<std::vector<FileDescriptor>> connect(std::span<const DataRequest> requests);

  /// For who waits for something else meanwhile: readable when check() has something to do, which says what
  /// has ended the set-up.
  int descriptor() const { return local_ ? local_->descriptor() : network_->descriptor(); }
  Status check() { return local_ ? local_->check() : network_->check(); }

  /// All ranks are ready. Ends the meeting.
  Status finish();

  /// What has ended the set-up, where this rank failed by `own`: that a peer has gone is often how one learns
  /// of a failure that its meeting is about to tell. Blocks for that, a second at most.
  Status find_cause(const Status& own);

  /// Tells all ranks that this one gives up, and why.
  void fail(const Status& why);

 private:
  explicit Bootstrap(const BootstrapOptions& options, const Config& config)
      : options_(options), listen_{config.socket_ifname, config.port_first, config.port_last} {}
  Status join_network();
  Result<NetworkBootstrap> join_bootstrap(uint64_t deadline_ns, BootstrapStop* stop) const;

  BootstrapOptions options_;
  ListenOptions listen_;
  std::optional<BootstrapClient> local_;
  std::optional<NetworkBootstrap> network_;
  std::unique_ptr<DataPort> port_;
};

}  // namespace tutti
