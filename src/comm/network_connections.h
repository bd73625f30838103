// NetworkConnections: the links of one rank to the ranks of other hosts: for each of them rings in plain
// memory and the connection that carries them.
//
// Used by the thread that drives the rank's operations, but for unsent_bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/secure_streams.h"
#include "core/file_descriptor.h"
#include "core/result.h"
#include "engine/wait.h"
#include "transports/connection.h"
#include "transports/shm/memory.h"

namespace tutti {

/// How the links to remote peers are made.
struct NetworkOptions {
  uint32_t rank_count = 0;
  RingShape shape;                                  ///< of every ring, on all ranks
  uint16_t epoch = 0;                               ///< of the communicator: frames of another are refused
  uint64_t silence_ms = 0;                          ///< Config::heartbeat_ms; 0: a silent host is waited for
  std::optional<SecureOptions> tls = std::nullopt;  ///< empty: what travels is neither encrypted nor signed
};

class NetworkConnections final : public Sleeper {
 public:
  /// A rank on another host, and the connected sockets between it and this rank.
  struct Peer {
    uint32_t rank = 0;
    /// Runs on this machine, though on another (emulated) host.
    bool is_near = false;
    std::vector<FileDescriptor> sockets;
  };

  /// With TLS it blocks until all peers have come to it. Errors: kSystemError, kOutOfMemory, and as
  /// SecureStreams::shake_hands.
  static Result<std::unique_ptr<NetworkConnections>> open(std::vector<Peer> peers,
                                                          const NetworkOptions& options);

  SendLink& send_link(uint32_t peer, uint32_t channel) { return at(peer).send[channel]; }
  RecvLink& recv_link(uint32_t peer, uint32_t channel) { return at(peer).recv[channel]; }

  /// Moves what can be moved without blocking; true when anything moved.
  bool advance();
  /// Moves all that has reached this host from `peer`.
  void advance_fully(uint32_t peer);
  /// A peer to which something is yet to be given to the network; none: an operation may be left.
  std::optional<uint32_t> undrained_peer() const;
  /// How the way to a peer stands (Connection::state, Connection::status).
  PeerState state(uint32_t peer) const { return at(peer).connection->state(); }
  const Status& status(uint32_t peer) const { return at(peer).connection->status(); }
  /// Sleeps until the network has something for this rank, or for so long.
  void sleep(uint64_t ns) override;

  /// After a failure: nothing is written to the buffers of operations any more.
  void withdraw();
  /// Says that nothing more will be sent, and waits until the peers' hosts have what was, until the deadline,
  /// or until `is_in_vain`, as where a peer is lost.
  void finish(uint64_t deadline_ns, const std::function<bool()>& is_in_vain);

  /// What `peer`'s host has not confirmed of what the network was given; any thread.
  uint64_t unsent_bytes(uint32_t peer) const;

 private:
  struct Remote {
    uint32_t rank = 0;
    Mapping memory;  ///< of the rings
    std::vector<SendLink> send;
    std::vector<RecvLink> recv;
    std::vector<PostedReceive> offers;
    std::vector<FileDescriptor>
        watched;  ///< further descriptors of the connection's sockets, for unsent_bytes
    std::unique_ptr<Connection> connection;
  };

  NetworkConnections() = default;
  Remote& at(uint32_t peer) { return *remotes_[place_of_[peer]]; }
  const Remote& at(uint32_t peer) const { return *remotes_[place_of_[peer]]; }
  Result<std::unique_ptr<Remote>> make(Peer peer, const NetworkOptions& options, SecureStreams* secure);
  bool all_received() const;

  uint32_t arrivals_ = 0;  ///< data frames that have come, of all peers
  std::vector<std::unique_ptr<Remote>> remotes_;
  std::vector<size_t> place_of_;  ///< by rank
  std::vector<pollfd> polls_;
};

}  // namespace tutti
