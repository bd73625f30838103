// Connection: carries the links between this rank and one peer.
//
// Both rings of a link to another host are memory of this rank. The engine writes one and reads the other.
// Between two turns of the engine, in the same thread, the connection moves messages between rings and
// network. It releases a slot to the engine when the network no longer needs the message. It tells the peer
// when the engine has released a received message. So no ring overflows.
//
// The caller owns the rings. A Transport owns the connection (transport.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "transports/link.h"

namespace tutti {

/// The rings of one channel to the peer (peer_rings.h). Each ring has one reader, starts zeroed and outlives
/// the connection.
struct ChannelRings {
  std::byte* outgoing = nullptr;
  std::byte* incoming = nullptr;
  const PostedReceive* offer = nullptr;  ///< posted by the reader of `incoming`; may be null
};

enum class PeerState : uint8_t {
  kOpen = 0,
  kEnded = 1,  ///< the peer has finished, and all its messages have been delivered
  kTorn = 2,   ///< the connection is broken, or the peer broke the protocol
};

/// One thread at a time, except for unconfirmed_bytes() and detour(). A blocking call advances its operation
/// and the transport in turn, and then waits until all connections are drained().
class Connection {
 public:
  virtual ~Connection() = default;

  /// Moves what it can without blocking. Returns whether anything moved. May serve other connections of the
  /// transport too. Never fails: see state().
  virtual bool advance() = 0;
  /// Moves all that has reached this host. Does not block.
  virtual void advance_fully() = 0;
  /// Whether the network has taken all committed messages. If so, they arrive without another advance(). In
  /// any state but kOpen the network takes nothing more.
  virtual bool drained() const = 0;
  /// Bytes given to the network that the peer's host has not confirmed. Any thread.
  virtual uint64_t unconfirmed_bytes() const = 0;

  virtual PeerState state() const = 0;
  /// Ok while kOpen. Else kPeerLost, with the rank, its address and what happened.
  virtual const Status& status() const = 0;
  /// What carries the messages now, for people: devices and ports, and what is out of order. Empty: nothing
  /// beyond the transport's name.
  virtual std::string route() const { return {}; }
  /// The part of route() that is out of order, or was; empty: none. Any thread.
  virtual std::string detour() const { return {}; }

  /// Withdraws all posted receives: nobody writes to their memory any more. A partly received message
  /// continues in its slot.
  virtual void withdraw() = 0;
  /// Ends sending. Call it when drained(). The peer sees kEnded after it has read everything. Destroying a
  /// connection without finish() may lose messages. After finish(), keep advancing until unconfirmed_bytes()
  /// is 0 or state() is not kOpen.
  virtual void finish() = 0;
};

}  // namespace tutti
