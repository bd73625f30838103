// SocketRenewal: new sockets to a peer after set-up, in place of torn ones, while both processes live.
#pragma once

#include <cstdint>

#include "core/file_descriptor.h"

namespace tutti {

/// Sockets have the numbers of PeerHandover::sockets. The calls do not block. Any thread.
class SocketRenewal {
 public:
  virtual ~SocketRenewal() = default;

  /// Asks for a new socket, which comes to both ranks by take(). Repeat it while none comes.
  virtual void request(uint32_t peer, uint32_t index) = 0;
  /// How many sockets have come, from all peers; wraps. Unchanged: take() has nothing new.
  virtual uint32_t arrivals() const = 0;
  /// The newest socket that has come: connected, and the peer is proved. Closed: there is none.
  virtual FileDescriptor take(uint32_t peer, uint32_t index) = 0;
  /// The peer has left, or its process has ended: no socket will come.
  virtual bool is_in_vain(uint32_t peer) const = 0;
};

}  // namespace tutti
