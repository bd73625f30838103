// Frames: what two ranks send each other over a TCP connection.
//
// A frame is a header of 16 bytes. A data frame adds the payloads of a run: consecutive messages of one
// channel with equal signature and size. So one header tells where many payloads go. Each header carries the
// channel's credit: how many messages the sender's engine has released. A credit frame carries nothing else.
// An end frame is the last one of a stream that would be replaced if it were torn.
//
//   word 0: bits 0-11 number of the first message, plus 1; 12-39 signature; 40-61 bytes of each; 62-63 kind
//   word 1: bits 0-23 credit; 24-31 channel; 32-39 messages; 40-55 epoch; 56-63 zero
//
// Words are little-endian. Word 0 without the kind is the message's flag word (transports/ring.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "transports/link.h"

namespace tutti::tcp {

inline constexpr size_t kHeaderBytes = 16;
inline constexpr uint32_t kMaxRun = 255;  ///< messages in one frame
inline constexpr uint32_t kMaxChannels = 256;

enum class FrameKind : uint8_t { kData = 0, kCredit = 1, kEnd = 2 };

struct Frame {
  FrameKind kind = FrameKind::kData;
  uint32_t channel = 0;
  uint32_t count = 0;   ///< messages; 0 in a credit or end frame
  uint64_t number = 0;  ///< of the first message; its low 12 bits
  uint32_t signature = 0;
  uint32_t bytes = 0;   ///< of each message
  uint32_t credit = 0;  ///< messages that the engine has released; the low 24 bits
  uint16_t epoch = 0;   ///< of the communicator

  friend bool operator==(const Frame&, const Frame&) = default;
};

struct FrameLimits {
  uint32_t channels = 1;
  uint32_t slots = 16;
  uint32_t slot_bytes = 32768;
  uint16_t epoch = 0;
  bool may_end = false;  ///< end frames are legal
};

/// Wider than a number: a late frame of a slow stream may carry an old credit.
inline constexpr uint64_t kCreditMask = (1ull << 24) - 1;

/// How far a counter has moved from `from` to `to`, of which only the bits of `mask` are known.
inline uint64_t distance(uint64_t from, uint64_t to, uint64_t mask) {
  return (to - from) & mask;
}

/// Writes kHeaderBytes.
void encode(const Frame& frame, std::byte* header);

/// Reads kHeaderBytes from an untrusted sender, within the limits. The caller checks numbers and credits
/// against its links. Errors: kPeerLost, with what is wrong.
Result<Frame> decode(const std::byte* header, const FrameLimits& limits);

}  // namespace tutti::tcp
