// NetworkConnections: the links between one rank and the ranks of other hosts. For each of those ranks: the
// rings, in memory of this rank, and the connection that carries them.
//
// It knows transports, not networks. One thread at a time uses it, but for unsent_bytes().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "engine/wait.h"
#include "transports/peer_rings.h"
#include "transports/transport.h"

namespace tutti {

class NetworkConnections final : public Sleeper {
 public:
  using Transports = std::vector<std::unique_ptr<Transport>>;

  /// A rank on another host.
  struct Peer {
    uint32_t rank = 0;
    size_t transport = 0;                      ///< which transport joins it to this rank
    bool is_near = false;                      ///< it runs on this machine, though on another (emulated) host
    std::vector<FileDescriptor> sockets = {};  ///< as many as its transport needs
    std::vector<std::byte> address = {};       ///< of its transport
  };

  /// Takes the transports over and connects all peers. Blocks until all connections can be used. `shape`: of
  /// every ring, on all ranks. Errors: as Transport::register_memory, connect and complete.
  static Result<std::unique_ptr<NetworkConnections>> open(Transports transports, std::vector<Peer> peers,
                                                          const RingShape& shape, uint32_t rank_count,
                                                          const SetUpWatch& watch);
  ~NetworkConnections() override;

  SendLink& send_link(uint32_t peer, uint32_t channel) { return at(peer).rings.send(channel); }
  RecvLink& recv_link(uint32_t peer, uint32_t channel) { return at(peer).rings.recv(channel); }

  /// Moves what can be moved without blocking; true when anything moved.
  bool advance() { return only_ != nullptr ? only_->progress() : advance_all(); }
  /// Moves all that has reached this host from `peer`.
  void advance_fully(uint32_t peer) { at(peer).connection->advance_fully(); }
  /// A peer to which something is yet to be given to the network; none: an operation may be left.
  std::optional<uint32_t> undrained_peer() const;
  /// How the way to a peer stands (Connection::state, Connection::status).
  PeerState state(uint32_t peer) const { return at(peer).connection->state(); }
  const Status& status(uint32_t peer) const { return at(peer).connection->status(); }
  /// Sleeps until the network has something for this rank, or for so long.
  void sleep(uint64_t ns) override;

  /// After a failure: nothing is written to the buffers of operations any more.
  void withdraw();
  /// Says that nothing more will be sent. Then waits until the peers' hosts have confirmed everything, until
  /// the deadline, or until `is_in_vain`: for example because a peer is lost.
  void finish(uint64_t deadline_ns, const std::function<bool()>& is_in_vain);

  /// What `peer`'s host has not confirmed of what the network was given; any thread.
  uint64_t unsent_bytes(uint32_t peer) const { return at(peer).connection->unconfirmed_bytes(); }

 private:
  struct Remote {
    uint32_t rank = 0;
    size_t transport = 0;
    PeerRings rings = {};
    MemoryHandle memory = {};
    Connection* connection = nullptr;  ///< the transport's
  };

  NetworkConnections() = default;
  Remote& at(uint32_t peer) { return *remotes_[index_of_[peer]]; }
  const Remote& at(uint32_t peer) const { return *remotes_[index_of_[peer]]; }
  Status connect(Peer peer, const RingShape& shape);
  bool advance_all();
  bool all_received() const;

  std::vector<std::unique_ptr<Remote>> remotes_;
  std::vector<size_t> index_of_;  ///< by rank
  std::vector<pollfd> polls_;
  Transport* only_ = nullptr;  ///< the only transport; null where there are several
  Transports transports_;      ///< destroyed before the rings
};

}  // namespace tutti
