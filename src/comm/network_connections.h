// NetworkConnections: the rings and the connection to each rank of other hosts. It sees only the Transport
// interface. One thread at a time, except for unconfirmed_bytes() and detour().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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

  struct Peer {
    uint32_t rank = 0;
    size_t transport = 0;                      ///< index
    bool is_near = false;                      ///< on this machine, though on another (emulated) host
    std::vector<FileDescriptor> sockets = {};  ///< as many as its transport needs
    std::vector<std::byte> address = {};       ///< of its transport
    const char* transport_name = "";           ///< static
  };

  /// Connects all peers. Blocks until all connections are usable. All ranks pass the same `shape`. Errors: as
  /// Transport::register_memory, connect and complete.
  static Result<std::unique_ptr<NetworkConnections>> open(Transports transports, std::vector<Peer> peers,
                                                          const RingShape& shape, uint32_t rank_count,
                                                          const SetUpWatch& watch);
  ~NetworkConnections() override;

  SendLink& send_link(uint32_t peer, uint32_t channel) { return at(peer).rings.send(channel); }
  RecvLink& recv_link(uint32_t peer, uint32_t channel) { return at(peer).rings.recv(channel); }

  /// Moves what it can without blocking. True if anything moved.
  bool advance() { return only_ != nullptr ? only_->progress() : advance_all(); }
  void advance_fully(uint32_t peer) { at(peer).connection->advance_fully(); }
  /// A peer whose messages the network has not all taken. None: an operation may end.
  std::optional<uint32_t> undrained_peer() const;
  /// A peer whose connection is torn, of those that `counts`.
  std::optional<uint32_t> torn_peer(const std::function<bool(uint32_t peer)>& counts) const;
  /// A peer whose message has come, and has not been received.
  std::optional<uint32_t> unread() const;
  PeerState state(uint32_t peer) const { return at(peer).connection->state(); }
  const Status& status(uint32_t peer) const { return at(peer).connection->status(); }
  /// Sleeps until something arrives, or for `ns`.
  void sleep(uint64_t ns) override;

  /// Registers a buffer with the transports that read registered memory. Returns a number; 0: there is no
  /// such transport. Between two operations. Errors: kSystemError, kOutOfMemory.
  Result<uint32_t> register_buffer(std::byte* address, uint64_t bytes);
  void deregister_buffer(uint32_t number);
  /// Whether the bytes lie in one registered buffer.
  bool is_registered(const void* address, uint64_t bytes) const;

  /// As the Transport's functions. Errors also: kUnsupported, where several transports join the ranks.
  Result<MemoryHandle> register_device_memory(const DeviceSpan& span);
  void deregister_device_memory(MemoryHandle handle) { transports_[0]->deregister_device_memory(handle); }
  void use_device_memory(DeviceCopier& copier) { transports_[0]->use_device_memory(copier); }
  /// Whether the ranks of other hosts are joined by cards that could access memory of devices.
  bool reads_registered() const;

  /// After an error: nobody writes to the operations' buffers any more.
  void withdraw();
  /// Ends sending. Waits until all peers' hosts have confirmed everything, until the deadline, or until
  /// `is_in_vain` (for example because a peer is lost).
  void finish(uint64_t deadline_ns, const std::function<bool()>& is_in_vain);

  /// For people: the transports of the first few peers, with what each connection says of itself.
  std::string explain() const;

  /// Bytes that the peer's host has not confirmed. Any thread.
  uint64_t unconfirmed_bytes(uint32_t peer) const { return at(peer).connection->unconfirmed_bytes(); }
  /// As Connection::detour. Any thread.
  std::string detour(uint32_t peer) const { return at(peer).connection->detour(); }

 private:
  struct Remote {
    uint32_t rank = 0;
    size_t transport = 0;
    const char* transport_name = "";
    PeerRings rings = {};
    MemoryHandle memory = {};
    Connection* connection = nullptr;  ///< owned by the transport
  };

  struct Buffer {
    const std::byte* address = nullptr;  ///< null: the number is free
    uint64_t bytes = 0;
    std::vector<MemoryHandle> handles = {};  ///< by transport
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
  std::vector<Buffer> buffers_;  ///< by number - 1
  Transport* only_ = nullptr;    ///< null if there are several
  Transports transports_;        ///< destroyed before the rings
};

}  // namespace tutti
