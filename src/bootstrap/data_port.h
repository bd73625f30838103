// DataPort: authenticated sockets between the ranks of a communicator, for a transport. Every rank opens one,
// names its endpoints in the bootstrap's first all-gather, and then asks for the connections it shares with
// peers; of two ranks the lower one connects. All requests of a call are served at once, in whatever order
// the peers make theirs: no order of calls can deadlock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "bootstrap/client.h"
#include "core/file_descriptor.h"
#include "core/result.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/endpoint.h"
#include "net/event_loop.h"

namespace tutti {

/// One connection between this rank and a peer; both ask for it by the same channel. A channel serves once: a
/// broken connection is replaced by one of another channel.
struct DataRequest {
  uint32_t peer = 0;
  uint32_t channel = 0;
  PackedEndpoints endpoints{};  ///< of the peer's DataPort
};

class DataPort {
 public:
  /// Listens. Errors: kInvalidArgument (interfaces), kSystemError.
  static Result<std::unique_ptr<DataPort>> open(uint32_t rank, const Credentials& credentials,
                                                const ListenOptions& listen);
  ~DataPort();
  DataPort(const DataPort&) = delete;
  DataPort& operator=(const DataPort&) = delete;

  /// What peers put into their requests.
  const PackedEndpoints& endpoints() const { return endpoints_; }

  /// One connected socket per request, in the order of the requests: non-blocking, TCP_NODELAY set, both
  /// sides proved; nothing has been read from it beyond the handshake. Blocks until all are there; peers
  /// whose call comes later are waited for. Not thread-safe. On failure all connections of this call are
  /// closed. Errors: kTimeout naming the peers that did not come, kPeerLost naming every address and why,
  /// kInvalidArgument (a request twice, or for this rank itself), and those of `client` (may be null), whose
  /// failure or stop ends this call too.
  Result<std::vector<FileDescriptor>> connect(std::span<const DataRequest> requests, uint64_t deadline_ns,
                                              BootstrapClient* client);

 private:
  /// (peer, channel)
  using Name = std::pair<uint32_t, uint32_t>;

  DataPort(uint32_t rank, const Credentials& credentials) : rank_(rank), credentials_(credentials) {}
  std::unique_ptr<Connector> dial(const DataRequest& request, uint64_t deadline_ns);
  Status check(std::span<const DataRequest> requests) const;
  Status absent(std::span<const DataRequest> requests) const;

  uint32_t rank_;
  Credentials credentials_;
  PackedEndpoints endpoints_{};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Acceptor> acceptor_;
  std::map<Name, FileDescriptor> arrived_;  ///< also before they are asked for
  std::set<Name> served_;                   ///< handed out: what comes later in their name is stale
  Status failure_;                          ///< of the call under way
};

}  // namespace tutti
