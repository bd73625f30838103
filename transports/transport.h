// Transport: one way to move bytes between ranks: shared memory, TCP, RDMA, UCX, a simulator.
//
// This folder owns all that depends on the kind of network. The rest of the library uses four nouns:
//
//   Transport    one rank's part of a network, for all peers: completion queue, worker, devices
//   Connection   carries the links between this rank and one peer (connection.h)
//   PeerRings    the rings of those links, in memory of this rank (peer_rings.h)
//   registry     the list of transports, and the choice between them (registry.h)
//
// Calls, in their order:
//   1. TransportEntry::open makes the transport. It may look at devices. It knows no peer yet.
//   2. address() goes to all ranks unchanged. TransportTraits::has_address says whether there is one.
//   3. reach() gives the cost of joining two ranks. Both ranks compute the same answer.
//   4. register_memory() once for the rings of each peer; later, for buffers of the user.
//   5. connect() once for each peer, with its rings and proved sockets. connect() only begins. complete()
//      waits until all connections are usable.
//   6. progress() moves bytes for all connections. An idle rank calls arm_wait(), then poll(2).
//   7. Connection::finish() ends one connection in good order. The transport's destructor ends the rest.
//
// Ownership. The transport owns its connections and keeps them for its lifetime. The caller owns the rings,
// which must outlive both: after a failure, another connection may use the same rings.
//
// Threads. One thread at a time uses a transport and its connections. Any thread may call
// register_device_memory(), deregister_device_memory(), Connection::unconfirmed_bytes() and detour().
//
// Data path. The engine reads and writes rings directly. It calls this interface once per turn, not per
// message.
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
#include "transports/device_span.h"
#include "transports/socket_renewal.h"

namespace tutti {

/// Needs, limits and tuned constants.
struct TransportTraits {
  /// connect() needs rings in memory that both ranks have mapped.
  bool needs_shared_rings = false;
  /// address() is not empty. Without such a transport, set-up sends no addresses.
  bool has_address = false;
  /// A message may refer to memory that only the sender can read. The transport reads that memory.
  bool reads_references = true;
  /// A message may refer to a buffer that the user has registered: the transport reads that buffer.
  bool reads_registered = false;
  /// The transport may deliver into posted receives.
  bool fills_posted_receives = false;
  /// The transport notices a lost peer and a peer's finish(). Otherwise connections stay kOpen, and the owner
  /// watches the peer's process. Transports between hosts must notice both.
  bool watches_peer = true;
  /// After arm_wait(), arriving data wakes poll(2). Otherwise the rank has to look again after a while.
  /// Transports between hosts must wake it.
  bool wakes_waits = true;
  /// Default slot size, where the user has set none.
  uint32_t slot_bytes = 16384;
  /// Smaller messages are copied into a slot. Others are sent from where they lie.
  uint64_t reference_bytes = 16384;
  /// Slices smaller than a slot cost more than their overlap gains.
  bool prefers_whole_slots = false;
};

/// A setting that must be equal on all ranks of a communicator.
struct AgreedSetting {
  const char* name = nullptr;
  uint64_t value = 0;
};

/// Estimated cost of one message.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
  double microseconds(uint64_t bytes) const { return latency_us + static_cast<double>(bytes) / bytes_per_us; }
};

/// What a rank says about itself.
struct RankDescription {
  uint32_t rank = 0;
  uint64_t host = 0;                        ///< ranks with equal numbers share memory
  uint64_t machine = 0;                     ///< ranks with equal numbers run under one kernel
  uint64_t process = 0;                     ///< ranks with equal numbers share their address space
  std::span<const std::byte> address = {};  ///< Transport::address() of the rank; borrowed
};

class SymmetricHeap;

/// A network card, as a rank should use it.
struct CardUse {
  size_t card = 0;            ///< index
  bool is_near = true;        ///< no card is nearer to the rank
  std::string distance = {};  ///< for people, in the words of nvidia-smi; empty: unknown
};
/// For cards by PCI address (empty: unknown): all of them, in the order in which the rank should use them.
using OrderCards = std::function<std::vector<CardUse>(std::span<const std::string> addresses)>;

/// A key for one purpose: the same for two ranks with the same label, and unknown to other processes.
using DeriveKey = std::function<std::array<std::byte, 32>(const std::string& label)>;

struct TransportOptions {
  uint32_t rank = 0;
  uint32_t rank_count = 0;
  RingShape shape = {};   ///< of every ring on all ranks; one reader
  uint32_t channels = 0;  ///< to each peer
  uint16_t epoch = 0;     ///< of the communicator; data with another epoch is refused
  Config config = {};
  DeriveKey derive_key = nullptr;       ///< set if config.tls is set
  const SymmetricHeap* heap = nullptr;  ///< of the process, for what registers its memory; null: none
  OrderCards order_cards = nullptr;     ///< null: all cards are as near
  /// Outlives the transport. Null: a torn socket ends its connection.
  SocketRenewal* renewal = nullptr;
};

/// Memory that a transport may use without a copy. 0: no handle needed.
struct MemoryHandle {
  uint64_t value = 0;
};

enum class MemoryUse : uint8_t {
  kRings,   ///< of one peer, before connect()
  kBuffer,  ///< of the user, for TransportTraits::reads_registered; at any time between two operations
};

struct PeerHandover {
  uint32_t rank = 0;
  bool is_near = false;                      ///< the peer runs on this machine
  std::span<const ChannelRings> rings = {};  ///< by channel; the array is borrowed for the call
  MemoryHandle memory = {};                  ///< of the rings
  std::vector<FileDescriptor> sockets = {};  ///< Transport::socket_count() of them; the peer is proved
  std::span<const std::byte> address = {};   ///< Transport::address() of the peer; borrowed for the call
};

/// Limits on a transport's waiting during set-up.
struct SetUpWatch {
  uint64_t deadline_ns = UINT64_MAX;  ///< as now_ns()
  int descriptor = -1;                ///< readable when `check` should be called; -1: none
  std::function<Status()> check = [] { return Status::ok(); };  ///< an error ends the set-up
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const TransportTraits& traits() const = 0;
  /// What other ranks need to reach this rank: any length, the same at every call. Empty despite has_address:
  /// no rank can reach it.
  virtual std::vector<std::byte> address() const { return {}; }
  /// Connected sockets that connect() needs per peer.
  virtual uint32_t socket_count() const { return 0; }
  /// The cost of joining two ranks; empty if this transport cannot. Pure and symmetric: reach(a, b) equals
  /// reach(b, a) on every rank.
  virtual std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const = 0;

  /// Lets the network use memory of this rank, which must stay mapped until deregister_memory(). Errors:
  /// kSystemError, kOutOfMemory.
  virtual Result<MemoryHandle> register_memory(std::byte* /*address*/, size_t /*bytes*/, MemoryUse /*use*/) {
    return MemoryHandle();
  }
  /// Rings: connections that use them may still exist, but no longer move bytes. A buffer: no operation uses
  /// it.
  virtual void deregister_memory(MemoryHandle /*handle*/) {}

  /// Lets the network use memory of the rank's device until deregister_device_memory(). Any thread. Errors:
  /// kUnsupported, kSystemError, kOutOfMemory, with what to do.
  virtual Result<MemoryHandle> register_device_memory(const DeviceSpan& /*span*/) {
    return Status(Code::kUnsupported, "only RDMA reaches the memory of GPUs");
  }
  /// Any thread. No operation uses the memory.
  virtual void deregister_device_memory(MemoryHandle /*handle*/) {}
  /// Messages may refer to registered memory of the device from now on, and posted receives may lie there.
  /// All ranks call this, or none, between two operations. `copier` outlives the last one.
  virtual void use_device_memory(DeviceCopier& /*copier*/) {}

  /// Begins a connection without blocking. Use it after complete(). Errors: kSystemError, kOutOfMemory.
  virtual Result<Connection*> connect(PeerHandover peer) = 0;
  /// Blocks until all connections are usable. Errors: kPeerLost and kTimeout, with the peers; errors of
  /// watch.check.
  virtual Status complete(const SetUpWatch& /*watch*/) { return Status::ok(); }

  /// Moves what it can on all connections without blocking. Returns whether anything moved. Never fails: see
  /// Connection::state().
  virtual bool progress() = 0;
  /// Prepares a long wait, after a progress() that moved nothing: appends what poll(2) should wait for. Data
  /// that arrives later wakes the poll. True if data has arrived already: call progress() instead. Also
  /// checks whether hosts still answer.
  virtual bool arm_wait(std::vector<pollfd>& polls) = 0;
};

}  // namespace tutti
