// Receiver: the bytes of one connection become messages in the inbox.
//
// Says where the next bytes shall be read to (the rest of the current frame's payloads, then a small buffer
// for what follows), so that large payloads lie in their places when the read returns, and many small frames
// come with one read. Where frames have continued each other, the next one is expected to do so, too: its
// header and its first message are read to where they belong, before it is known that they are these.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"

namespace tutti::tcp {

class Receiver {
 public:
  /// `may_be_late`: other connections carry frames of the same channels.
  Receiver(Inbox& inbox, Outbox& outbox, const FrameLimits& limits, bool may_be_late)
      : inbox_(inbox), outbox_(outbox), limits_(limits), may_be_late_(may_be_late) {}

  /// Where to read to; how many of `room` (at least 4) pieces. Valid until the next call of any function.
  size_t gather(iovec* pieces, size_t room);
  /// The first `bytes` bytes of those pieces have come. Errors: kPeerLost, when they are no frames that may
  /// come here.
  Status take(size_t bytes);
  /// Whether a frame has come in part.
  bool inside() const { return messages_left_ > 0 || end_ > 0; }
  /// Data frames that have begun so far, wrapping.
  uint32_t frame_count() const { return frame_count_; }
  /// Forgets what was offered: the current frame goes on in slots.
  void withdraw();

 private:
  /// A message of 8 KiB and its header come with one read: copying them costs less than a second one (8 KiB:
  /// 0.2 us, a read: 0.5 us).
  static constexpr size_t kBufferBytes = 8192 + 4 * kHeaderBytes;

  std::byte* expected_place() const;
  bool continues(const Frame& frame) const;
  Status take_expected(size_t bytes);
  Status parse(const std::byte* bytes, size_t count);
  Status begin_frame(const std::byte* header);
  void pass(uint64_t bytes);
  void publish_one();

  Inbox& inbox_;
  Outbox& outbox_;
  FrameLimits limits_;
  bool may_be_late_;
  Frame frame_;                 ///< the current one
  uint32_t messages_left_ = 0;  ///< of it, with the one that is coming
  uint64_t number_ = 0;         ///< of the message that is coming
  uint64_t done_ = 0;           ///< bytes of it in their place
  uint64_t straight_ = 0;       ///< payload bytes that the last gather() asked for
  bool steady_ = false;         ///< the current frame continued the one before
  /// Where the last gather() expects the next frame's first message, or null.
  std::byte* expected_ = nullptr;
  uint32_t frame_count_ = 0;
  size_t end_ = 0;  ///< of what is in the buffer: less than a header, between two reads
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace tutti::tcp
