// Inbox: the incoming rings from one peer, filled by its connections.
//
// A message's number gives its destination: slot, cell or posted receive. So frames may come over several
// connections in any order, and the reader restores the order. Numbers, sizes and repetitions are checked
// first.
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
  /// Claims the destinations of a data frame's messages. Returns the first one's full number. Errors:
  /// kPeerLost if a message has no room or has come before.
  Result<uint64_t> claim(const Frame& frame);
  /// Address for a claimed message's payload.
  std::byte* place(uint32_t channel, uint64_t number, uint32_t bytes);
  /// A card has written a claimed message's payload there.
  void put(uint32_t channel, uint64_t number, std::byte* place);
  /// Address for the payload of a message that has not come. Null if it has no room yet.
  std::byte* expected_place(uint32_t channel, uint64_t number, uint32_t bytes) const;
  /// Gives a complete message to the reader.
  void publish(uint32_t channel, uint64_t number, uint32_t signature, uint32_t bytes);
  /// Whether the reader has the message, now or before.
  bool has_come(uint32_t channel, uint64_t number) const;
  /// Continues a claimed message, of which `done` bytes have come, in its slot.
  void move_to_slot(uint32_t channel, uint64_t number, uint32_t bytes, uint64_t done);

  /// Messages that the reader has released, and how many of them the peer does not know of.
  uint64_t given_back(uint32_t channel) const;
  uint64_t unreported(uint32_t channel) const;
  /// given_back(), to be sent as a credit now.
  uint64_t report(uint32_t channel);
  /// Whether half a ring may be unreported on any channel: so much has come. Cheaper than asking each.
  bool may_owe_credit() const { return half_full_ > 0; }

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
    uint64_t come = 0;          ///< messages published, ever
    std::vector<Claim> claims;  ///< by slot
  };
  std::byte* slot(const Channel& channel, uint64_t number) const;
  std::byte* free_place(const Channel& channel, uint64_t number, uint32_t bytes) const;

  bool is_half_full(const Channel& channel) const {
    return 2 * (channel.come - channel.reported) >= uint64_t{mask_} + 1;
  }

  std::vector<Channel> channels_;
  uint32_t mask_;
  uint32_t slot_bytes_;
  uint32_t half_full_ = 0;  ///< channels with half a ring of messages since the last report
};

}  // namespace tutti::tcp
