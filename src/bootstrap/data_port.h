// DataPort: authenticated sockets between the ranks of a communicator, for a transport. Each rank opens a
// port, sends its endpoints in the first all-gather, and then asks for its connections. The lower rank
// connects. All requests of a call run at once, so no order of calls can deadlock.
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

/// One connection to a peer. Both ranks ask with the same channel. A new connection needs another channel.
struct DataRequest {
  uint32_t peer = 0;
  uint32_t channel = 0;
  PackedEndpoints endpoints{};  ///< of the peer's DataPort
};

class DataPort {
 public:
  /// Errors: kInvalidArgument (interfaces), kSystemError.
  static Result<std::unique_ptr<DataPort>> open(uint32_t rank, const Credentials& credentials,
                                                const ListenOptions& listen);
  ~DataPort();
  DataPort(const DataPort&) = delete;
  DataPort& operator=(const DataPort&) = delete;

  /// For the peers' requests.
  const PackedEndpoints& endpoints() const { return endpoints_; }

  /// One connected socket per request, in order: non-blocking, TCP_NODELAY set, both sides proved, unread
  /// beyond the handshake. Blocks until all are there. Not thread-safe. An error closes all connections of
  /// the call. Errors: kTimeout, with the missing peers; kPeerLost, with the reason of each address;
  /// kInvalidArgument (a request twice, or for this rank); errors of `client` (may be null), which also end
  /// this call.
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
  std::map<Name, FileDescriptor> arrived_;  ///< perhaps before this rank asks for them
  std::set<Name> served_;                   ///< handed out: later connections of these names are stale
  Status failure_;                          ///< of the current call
};

}  // namespace tutti
