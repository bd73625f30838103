// Transport: one way in which ranks exchange bytes: shared memory, TCP, RDMA, UCX, a simulator.
//
// This room owns everything that depends on the kind of network. The rest of the library uses four nouns:
//
//   Transport    one rank's part of one kind of network, for all its peers: completion queue, worker, devices
//   Connection   carries the links between this rank and one peer (connection.h)
//   PeerRings    the rings of those links, in memory of this rank (peer_rings.h)
//   registry     the list of transports, and the choice between them (registry.h)
//
// Life of a transport, in the order of the calls:
//   1. TransportEntry::open makes the transport. It may look at devices. It knows no peer yet.
//   2. address() is sent to all ranks as it is. A transport without an address says so in its traits.
//   3. reach() gives the cost of joining two ranks. Both ranks compute the same answer and choose by it.
//   4. register_memory() is called for the rings of each peer.
//   5. connect() is called once for each peer, with the rings and the sockets that both ranks have proved.
//      connect() only begins. complete() waits until all connections can be used.
//   6. progress() moves bytes for all connections. A rank without work calls arm_wait() and then poll(2).
//   7. Connection::finish() ends a connection in good order. The destructor of the transport ends the rest.
//
// Ownership. The caller owns the rings, because the rings outlive a connection: after a failure, another
// connection may go on with the same rings. The transport owns its connections. A connection lives as long as
// its transport, and the rings must outlive both.
//
// Threads. One thread at a time uses a transport and its connections. There is one exception: any thread may
// call Connection::unconfirmed_bytes() while the transport lives.
//
// Data path. The engine reads and writes rings without any call of this interface. The interface is called
// once for each turn of the engine, not once for each message.
//
// docs/adding_a_transport.md shows how to add a transport, with an example that is built and tested.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/file_descriptor.h"
#include "core/result.h"
#include "transports/connection.h"

namespace tutti {

/// What is true for every instance of a transport: its needs, its limits and its tuned constants.
struct TransportTraits {
  /// connect() needs the rings of both ranks in memory that both ranks have mapped.
  bool needs_shared_rings = false;
  /// address() is not empty. Set-up sends addresses only where some transport has one.
  bool has_address = false;
  /// A message may be a reference to memory that only the sender can read: the transport reads that memory.
  bool reads_references = true;
  /// Bytes may be delivered into posted receives.
  bool fills_posted_receives = false;
  /// The transport notices that a peer is lost, and that a peer has called finish(). A transport that does
  /// not stays kOpen: its owner has to watch the peer's process.
  bool watches_peer = true;
  /// What arrives wakes a rank that waits in poll(2) after arm_wait(). Else the rank has to look again by
  /// time.
  bool wakes_waits = true;
  /// Slots that suit this transport, where the user has not asked for a size.
  uint32_t slot_bytes = 16384;
  /// Messages of at least this size are sent from where they lie. Smaller messages are copied into a slot.
  uint64_t reference_bytes = 16384;
  /// A slice smaller than a slot costs more than the overlap gains.
  bool prefers_whole_slots = false;
};

/// A setting that must be equal on all ranks of a communicator.
struct AgreedSetting {
  const char* name = nullptr;
  uint64_t value = 0;
};

/// What it costs to send a message from one rank to the other, as far as the transport knows beforehand.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
  double microseconds(uint64_t bytes) const { return latency_us + static_cast<double>(bytes) / bytes_per_us; }
};

/// What a rank has said of itself.
struct RankDescription {
  uint32_t rank = 0;
  uint64_t host = 0;                        ///< ranks with equal numbers share memory
  uint64_t machine = 0;                     ///< ranks with equal numbers run under one kernel
  uint64_t process = 0;                     ///< ranks with equal numbers share their address space
  std::span<const std::byte> address = {};  ///< Transport::address() of that rank; borrowed
};

/// A key for one purpose. Two ranks get the same key for the same label; no other process knows the key.
using DeriveKey = std::function<std::array<std::byte, 32>(const std::string& label)>;

struct TransportOptions {
  uint32_t rank = 0;
  uint32_t rank_count = 0;
  RingShape shape = {};   ///< of every ring, on all ranks; one reader
  uint32_t channels = 0;  ///< between this rank and each peer
  uint16_t epoch = 0;     ///< of the communicator: data that carries another epoch is refused
  Config config = {};
  DeriveKey derive_key = nullptr;  ///< never null where config.tls is set
};

/// Memory that a transport may read and write without a copy. 0: the transport needs no handle.
struct MemoryHandle {
  uint64_t value = 0;
};

/// What the owner gives to the transport for one peer.
struct PeerHandover {
  uint32_t rank = 0;
  bool is_near = false;                      ///< the peer runs on this machine
  std::span<const ChannelRings> rings = {};  ///< by channel; the array is borrowed for the call only
  MemoryHandle memory = {};                  ///< of the rings
  std::vector<FileDescriptor> sockets = {};  ///< Transport::socket_count() of them; the peer is proved
  std::span<const std::byte> address = {};   ///< Transport::address() of the peer; borrowed for the call only
};

/// How long a transport may wait during set-up, and who may end the wait.
struct SetUpWatch {
  uint64_t deadline_ns = UINT64_MAX;  ///< as now_ns()
  int descriptor = -1;                ///< becomes readable when `check` has news; -1: there is none
  std::function<Status()> check = [] { return Status::ok(); };  ///< an error ends the set-up
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const TransportTraits& traits() const = 0;
  /// What other ranks must know to reach this rank. Any length, and the same at every call. May be empty even
  /// where the traits promise an address: then no rank can reach this rank.
  virtual std::vector<std::byte> address() const { return {}; }
  /// Connected sockets that connect() needs for each peer.
  virtual uint32_t socket_count() const { return 0; }
  /// The cost of joining two ranks; empty where this transport cannot join them. A pure function of its
  /// arguments, and symmetric: reach(a, b) equals reach(b, a) on every rank.
  virtual std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const = 0;

  /// Lets the network use memory of this rank. The memory must stay mapped until deregister_memory().
  /// Errors: kSystemError, kOutOfMemory.
  virtual Result<MemoryHandle> register_memory(std::byte* /*address*/, size_t /*bytes*/) {
    return MemoryHandle();
  }
  /// The memory is not used after the call.
  virtual void deregister_memory(MemoryHandle /*handle*/) {}

  /// Begins a connection. Does not block. The transport owns the connection, which may be used after
  /// complete(). Errors: kSystemError, kOutOfMemory.
  virtual Result<Connection*> connect(PeerHandover peer) = 0;
  /// Blocks until all connections can be used. Errors: kPeerLost and kTimeout, which name the peers; and what
  /// watch.check says.
  virtual Status complete(const SetUpWatch& /*watch*/) { return Status::ok(); }

  /// Moves what can be moved for all connections, without blocking. Returns whether anything moved. Never
  /// fails: Connection::state() tells.
  virtual bool progress() = 0;
  /// Prepares a long wait, after a progress() that moved nothing. Appends what poll(2) should wait for.
  /// Returns true where something has arrived meanwhile: the caller then calls progress() instead of waiting.
  /// Whatever arrives after the call wakes the poll. Also checks whether hosts still answer.
  virtual bool arm_wait(std::vector<pollfd>& polls) = 0;
};

}  // namespace tutti
