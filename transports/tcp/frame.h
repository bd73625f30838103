// Frames: what the connections of two ranks say to each other on a connection.
//
// A frame is a header of 16 bytes and, for data, the payloads of a run of messages: consecutive messages of
// one channel with one signature and one size. So a stream of large slices costs one header, and the
// reader knows from it where all of them go. Every header also says how many messages of its channel the
// sender's engine has given back (the credit); a frame without messages says only that.
//
//   bits of word 0   0-23 number of the first message, plus 1   24-39 signature   40-61 bytes of each   62-63
//   kind bits of word 1   0-23 credit   24-31 channel   32-39 messages   40-55 epoch   56-63 zero
//
// Words are little-endian; word 0 is the message's flag word (transports/link.h) but for the kind.
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

enum class FrameKind : uint8_t { kData = 0, kCredit = 1 };

struct Frame {
  FrameKind kind = FrameKind::kData;
  uint32_t channel = 0;
  uint32_t count = 0;   ///< messages; 0 for a credit
  uint64_t number = 0;  ///< of the first message, its low 24 bits
  uint16_t signature = 0;
  uint32_t bytes = 0;   ///< of each message
  uint32_t credit = 0;  ///< messages that the engine has given back, the low 24 bits
  uint16_t epoch = 0;   ///< of the communicator

  friend bool operator==(const Frame&, const Frame&) = default;
};

/// What a frame may say here.
struct FrameLimits {
  uint32_t channels = 1;
  uint32_t slots = 16;
  uint32_t slot_bytes = 32768;
  uint16_t epoch = 0;
};

/// The low 24 bits of `to` - `from`: how far a counter has come since.
inline uint64_t distance(uint64_t from, uint64_t to) {
  return (to - from) & flag::kNumberMask;
}

/// Writes kHeaderBytes.
void encode(const Frame& frame, std::byte* header);

/// Reads kHeaderBytes that anybody may have sent. What comes back keeps to the limits; whether numbers and
/// credits fit the links is for those to say who know them. Errors: kPeerLost, with what is wrong.
Result<Frame> decode(const std::byte* header, const FrameLimits& limits);

}  // namespace tutti::tcp
