// Inbox: the incoming rings from one peer, as the connections fill them.
//
// A message's place is known from its number: its slot, its cell, or what the reader has offered for it. So
// frames may come over several connections in any order; the reader looks for one number after the
// other, which restores the order. Numbers, sizes and repetitions are checked before a place is given out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "transports/connection.h"
#include "transports/tcp/frame.h"

namespace tutti::tcp {

class Inbox {
 public:
  Inbox(std::span<const ChannelRings> channels, const RingShape& shape);

  uint32_t channel_count() const { return static_cast<uint32_t>(channels_.size()); }
  /// Claims the places of a decoded data frame's messages: the full number of the first one.
  /// Errors: kPeerLost, when a message has no place or has come before.
  Result<uint64_t> claim(const Frame& frame);
  /// Where a claimed message's payload goes; the same at every call.
  std::byte* place(uint32_t channel, uint64_t number, uint32_t bytes);
  /// Where the payload of a message would go that has not come; null: there is no place yet.
  std::byte* expected_place(uint32_t channel, uint64_t number, uint32_t bytes) const;
  /// The payload of a claimed message is all there: the reader may have it.
  void publish(uint32_t channel, uint64_t number, uint16_t signature, uint32_t bytes);
  /// A claimed message whose first `done` bytes are in place goes on in its slot.
  void move_to_slot(uint32_t channel, uint64_t number, uint32_t bytes, uint64_t done);

  /// Messages that the reader has given back, and how many of them the peer has not been told.
  uint64_t given_back(uint32_t channel) const;
  uint64_t unreported(uint32_t channel) const;
  /// given_back(), which is about to be told.
  uint64_t report(uint32_t channel);

 private:
  struct Claim {
    uint64_t number_plus_1 = 0;
    std::byte* place = nullptr;  ///< null: not chosen yet
  };
  struct Channel {
    Cell* cells = nullptr;
    const Credit* credit = nullptr;
    std::byte* slots = nullptr;
    const PostedReceive* offer = nullptr;
    uint64_t reported = 0;
    std::vector<Claim> claims;  ///< by slot
  };
  std::byte* slot(const Channel& channel, uint64_t number) const;
  std::byte* free_place(const Channel& channel, uint64_t number, uint32_t bytes) const;

  std::vector<Channel> channels_;
  uint32_t mask_;
  uint32_t slot_bytes_;
};

}  // namespace tutti::tcp
