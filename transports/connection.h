// Connection: what carries the links between this rank and one remote peer.
//
// The engine's links are rings in memory. For a peer on another host both rings are local, plain memory: the
// engine writes the outgoing one with a SendLink and reads the incoming one with a RecvLink, and the
// connection moves cells between them and the network, in the rank's own thread: between two looks of the
// engine, without a thread of its own. What has been sent is given back to the engine; what the engine gives
// back is reported to the peer's connection, so that no ring is ever overrun.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "transports/link.h"

namespace tutti {

/// One channel to the peer. The rings have one reader, are zeroed at first, and outlive the connection. An
/// outgoing SendLink has same_process set: what it refers to is sent from where it lies, and given back
/// (SendLink::references_returned) when the network needs it no more.
struct ChannelRings {
  std::byte* outgoing = nullptr;
  std::byte* incoming = nullptr;
  const PostedReceive* offer = nullptr;  ///< of the incoming link's reader; may be null
};

/// How the way to the peer stands.
enum class PeerState : uint8_t {
  kOpen = 0,
  kEnded = 1,  ///< the peer has closed in good order; all that it sent has been delivered
  kTorn = 2,   ///< broken, or the peer sent what no connection sends
};

/// Used by one thread at a time, like the links. The loop of a blocking call: let the operation advance;
/// advance the connections, the one of the peer that it waits for among them; when the operation is done,
/// until all connections are drained(); when nothing moves, wait.
class Connection {
 public:
  virtual ~Connection() = default;

  /// Moves what can be moved without blocking; true when anything moved. Never fails: see state().
  virtual bool advance() = 0;
  /// Whether the network has taken all that the engine has committed. An operation may be left when this is
  /// true: what it sent arrives without another advance(). What is left once state() is not
  /// kOpen stays left.
  virtual bool drained() const = 0;
  /// For a long wait, after an advance() that moved nothing: appends what poll(2) should wait for, and looks
  /// whether the peer's host still answers (state()).
  virtual void prepare_wait(std::vector<pollfd>& polls) = 0;

  virtual PeerState state() const = 0;
  /// Ok while open; else kPeerLost, naming rank, address and what happened.
  virtual const Status& status() const = 0;

  /// Takes back all offers: from here on nothing is written to memory that was offered before. A message that
  /// had begun to arrive there goes on in its slot.
  virtual void withdraw() = 0;
  /// Says that nothing more will be sent; when drained(). The peer's connection sees kEnded once it has read
  /// all. Closing without it may cost the peer messages that are still on their way. Keep advancing until
  /// state() is not kOpen, or for as long as one cares.
  virtual void finish() = 0;
};

}  // namespace tutti
