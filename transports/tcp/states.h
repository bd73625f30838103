// The states of a stream, as three tables: sending, receiving, and the socket below (docs/tcp.md). Every
// answer of a socket is an event.
#pragma once

#include <cstdint>

#include "transports/connection.h"

namespace tutti::tcp {

enum class SendState : uint8_t {
  kReady,
  kFull,  ///< the socket has refused bytes; try again at the next advance
  kFinished,
  kBroken,
};
inline constexpr uint32_t kSendStates = 4;

enum class SendEvent : uint8_t {
  kTookAll,
  kTookSome,
  kNoRoom,       ///< EAGAIN
  kInterrupted,  ///< EINTR
  kNoBuffers,    ///< ENOBUFS to a write without a copy: too many pages are pending
  kPeerClosed,   ///< EPIPE or ECONNRESET while only credits were unsent
  kFailed,       ///< any other error, or these with messages unsent
  kFinish,       ///< FrameStream::finish, with an empty queue
};
inline constexpr uint32_t kSendEvents = 8;

enum class SendAction : uint8_t {
  kGoOn,
  kRetry,        ///< the same bytes, at once
  kRetryCopied,  ///< the same bytes, at once, with a copy
  kWait,         ///< try again at the next advance
  kDrop,
  kSayEnd,
};

enum class ReceiveState : uint8_t {
  kBetween,  ///< no incomplete frame
  kInside,   ///< part of a frame has come
  kEnded,    ///< closed between two frames
  kTorn,
};
inline constexpr uint32_t kReceiveStates = 4;

enum class ReceiveEvent : uint8_t {
  kWhole,
  kPart,  ///< the last frame is incomplete
  kNothing,
  kInterrupted,
  kEnd,  ///< of the stream
  kFailed,
  kMalformed,
};
inline constexpr uint32_t kReceiveEvents = 7;

enum class ReceiveAction : uint8_t {
  kGoOn,
  kRetry,  ///< at once
  kWait,   ///< try again at the next advance
};

/// The socket under a stream that is replaced when it is torn.
enum class WayState : uint8_t {
  kOpen,
  kTorn,      ///< another socket is awaited
  kGreeting,  ///< both ends tell each other where they stand (Resume)
  kClosed,    ///< for good
};
inline constexpr uint32_t kWayStates = 4;

enum class WayEvent : uint8_t { kBroke, kSocket, kResumed, kGivenUp };
inline constexpr uint32_t kWayEvents = 4;

WayState on_event(WayState state, WayEvent event);

struct SendMove {
  SendState state;
  SendAction action;
};
struct ReceiveMove {
  ReceiveState state;
  ReceiveAction action;
};

SendMove on_event(SendState state, SendEvent event);
ReceiveMove on_event(ReceiveState state, ReceiveEvent event);

PeerState combined_state(SendState send, ReceiveState receive);

}  // namespace tutti::tcp
