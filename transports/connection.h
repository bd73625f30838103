// Connection: carries the links between this rank and one peer.
//
// A link is a ring in memory (link.h). For a peer on another host, both rings are memory of this rank. The
// engine writes the outgoing ring with a SendLink and reads the incoming ring with a RecvLink. The connection
// moves messages between the rings and the network. It works in the rank's own thread, between two turns of
// the engine. When the network needs a sent message no more, the connection releases the slot to the engine.
// When the engine releases a received message, the connection tells the peer. So no ring is ever overrun.
//
// The caller owns the rings, and a Transport owns the connection (transport.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "transports/link.h"

namespace tutti {

/// The rings of one channel to the peer. Each ring has one reader and is zeroed before its first use. The
/// rings outlive the connection. PeerRings (peer_rings.h) makes such rings.
struct ChannelRings {
  std::byte* outgoing = nullptr;
  std::byte* incoming = nullptr;
  const PostedReceive* offer = nullptr;  ///< of the reader of the incoming ring; may be null
};

/// How the way to the peer stands.
enum class PeerState : uint8_t {
  kOpen = 0,
  kEnded = 1,  ///< the peer has closed in good order; all that it sent has been delivered
  kTorn = 2,   ///< the connection is broken, or the peer sent what no connection sends
};

/// Used by one thread at a time, but for unconfirmed_bytes(). A blocking call lets its operation advance, and
/// then the transport. When the operation is done, the call goes on until all connections are drained().
class Connection {
 public:
  virtual ~Connection() = default;

  /// Moves what can be moved without blocking. Returns whether anything moved. May also move what belongs to
  /// other connections of the transport. Never fails: state() tells.
  virtual bool advance() = 0;
  /// Moves all that has reached this host. Does not block.
  virtual void advance_fully() = 0;
  /// Whether the network has taken all that the engine has committed. If true, the caller may leave its
  /// operation: what was sent arrives without another advance(). Once state() is not kOpen, nothing more is
  /// taken.
  virtual bool drained() const = 0;
  /// Bytes that the network was given and that the peer's host has not confirmed. 0: all has arrived. Any
  /// thread may ask while the connection exists.
  virtual uint64_t unconfirmed_bytes() const = 0;

  virtual PeerState state() const = 0;
  /// Ok while the state is kOpen. Else kPeerLost, which names the rank, its address and what happened.
  virtual const Status& status() const = 0;

  /// Withdraws all posted receives: nothing is written to their memory after the call. A message of which a
  /// part has arrived goes on in its slot.
  virtual void withdraw() = 0;
  /// Says that nothing more will be sent. Call it when drained(). The peer sees kEnded once it has read
  /// everything. Destroying a connection without finish() may cost the peer messages that are on their way.
  /// After finish(), keep advancing until unconfirmed_bytes() is 0 or state() is not kOpen.
  virtual void finish() = 0;
};

}  // namespace tutti
