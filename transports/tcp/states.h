// The states of a connection: what may happen to it, and what is done about it, as two tables (sending,
// receiving) and a verdict on both. Everything that a socket can answer is one of the events; docs/tcp.md
// shows the tables.
#pragma once

#include <cstdint>

#include "transports/connection.h"

namespace tutti::tcp {

enum class SendState : uint8_t {
  kReady,     ///< the socket may have room
  kFull,      ///< it has refused bytes; tried again by the next advance
  kFinished,  ///< nothing will be sent any more, in good order
  kBroken,    ///< messages cannot be sent any more
};
inline constexpr uint32_t kSendStates = 4;

enum class SendEvent : uint8_t {
  kTookAll,
  kTookSome,
  kNoRoom,       ///< EAGAIN
  kInterrupted,  ///< EINTR
  kNoBuffers,    ///< ENOBUFS to a write without copy: too many pages wait for the network
  kPeerClosed,   ///< EPIPE or ECONNRESET, and nothing but credits was to be sent
  kFailed,       ///< any other error, or the same with messages to be sent
  kFinish,       ///< FrameStream::finish, when nothing is queued
};
inline constexpr uint32_t kSendEvents = 8;

enum class SendAction : uint8_t {
  kGoOn,         ///< write what else is queued
  kRetry,        ///< the same bytes again, at once
  kRetryCopied,  ///< the same bytes again, at once, as copies
  kWait,         ///< leave it for the next advance
  kDrop,         ///< forget what is queued
  kSayEnd,       ///< tell the peer that nothing more will come
};

enum class ReceiveState : uint8_t {
  kBetween,  ///< all frames that have begun are whole
  kInside,   ///< a part of a frame has come
  kEnded,    ///< the peer has closed between two frames
  kTorn,
};
inline constexpr uint32_t kReceiveStates = 4;

enum class ReceiveEvent : uint8_t {
  kWhole,  ///< bytes came, and the last frame is whole now
  kPart,   ///< bytes came, and the last frame is not whole
  kNothing,
  kInterrupted,
  kEnd,  ///< of the stream
  kFailed,
  kMalformed,
};
inline constexpr uint32_t kReceiveEvents = 7;

enum class ReceiveAction : uint8_t {
  kGoOn,   ///< read more
  kRetry,  ///< at once, the same
  kWait,   ///< leave it for the next advance
};

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

/// What both directions say about the connection.
PeerState combined_state(SendState send, ReceiveState receive);

}  // namespace tutti::tcp
