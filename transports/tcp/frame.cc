#include "transports/tcp/frame.h"

#include <bit>
#include <cstring>

namespace tutti::tcp {

static_assert(std::endian::native == std::endian::little, "words travel as they lie in memory");

void encode(const Frame& frame, std::byte* header) {
  const uint64_t words[2] = {
      flag::make(frame.number, frame.signature, frame.bytes) | static_cast<uint64_t>(frame.kind)
                                                                   << flag::kCarriageShift,
      (frame.credit & kCreditMask) | static_cast<uint64_t>(frame.channel) << 24 |
          static_cast<uint64_t>(frame.count) << 32 | static_cast<uint64_t>(frame.epoch) << 40,
  };
  static_assert(sizeof(words) == kHeaderBytes);
  std::memcpy(header, words, sizeof(words));
}

Result<Frame> decode(const std::byte* header, const FrameLimits& limits) {
  uint64_t words[2];
  std::memcpy(words, header, sizeof(words));
  Frame frame;
  frame.kind = static_cast<FrameKind>(words[0] >> flag::kCarriageShift);
  frame.number = ((words[0] & flag::kNumberMask) - 1) & flag::kNumberMask;
  frame.signature = flag::signature(words[0]);
  frame.bytes = static_cast<uint32_t>(flag::bytes(words[0]));
  frame.credit = static_cast<uint32_t>(words[1] & kCreditMask);
  frame.channel = static_cast<uint32_t>(words[1] >> 24 & 0xff);
  frame.count = static_cast<uint32_t>(words[1] >> 32 & 0xff);
  frame.epoch = static_cast<uint16_t>(words[1] >> 40);
  const auto wrong = [](const char* what, uint64_t value, uint64_t limit) {
    return Status(Code::kPeerLost,
                  format("a frame with %s %llu (here: %llu)", what, static_cast<unsigned long long>(value),
                         static_cast<unsigned long long>(limit)));
  };
  if (words[1] >> 56 != 0) return wrong("reserved bits", words[1] >> 56, 0);
  if (frame.epoch != limits.epoch) return wrong("epoch", frame.epoch, limits.epoch);
  if (frame.channel >= limits.channels) return wrong("channel", frame.channel, limits.channels);
  switch (frame.kind) {
    case FrameKind::kData:
      if (frame.count == 0 || frame.count > limits.slots) return wrong("run", frame.count, limits.slots);
      if (frame.bytes > limits.slot_bytes) return wrong("bytes", frame.bytes, limits.slot_bytes);
      return frame;
    case FrameKind::kEnd:
      if (!limits.may_end) break;
      [[fallthrough]];
    case FrameKind::kCredit:
      if (frame.count != 0) return wrong("a credit for a run of", frame.count, 0);
      if ((words[0] & flag::kAgreedMask) != flag::make(0, 0, 0)) {
        return wrong("a credit and flag word", words[0], 0);
      }
      return frame;
  }
  return wrong("kind", words[0] >> flag::kCarriageShift, 1);
}

}  // namespace tutti::tcp
