// PeerRings: the rings between this rank and one peer, in plain memory, and their link ends. They outlive the
// connection that carries them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "transports/shm/memory.h"
#include "transports/transport.h"

namespace tutti {

class PeerRings {
 public:
  /// `traits`: of the transport that will carry the rings. Errors: kSystemError, kOutOfMemory.
  static Result<PeerRings> make(uint32_t peer, const RingShape& shape, uint32_t channels,
                                const TransportTraits& traits);

  SendLink& send(uint32_t channel) { return send_[channel]; }
  RecvLink& recv(uint32_t channel) { return recv_[channel]; }
  PostedReceive& posted_receive(uint32_t channel) { return posted_[channel]; }
  /// Call it before Connection::withdraw().
  void clear_posted_receives();

  std::vector<ChannelRings> channels() const;
  std::byte* base() const { return memory_.base(); }
  size_t bytes() const { return memory_.bytes(); }

 private:
  Mapping memory_;
  size_t ring_bytes_ = 0;
  std::vector<SendLink> send_;
  std::vector<RecvLink> recv_;
  std::vector<PostedReceive> posted_;  ///< never resized: links and connections point into it
};

}  // namespace tutti
