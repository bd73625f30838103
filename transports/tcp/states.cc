#include "transports/tcp/states.h"

#include <array>

namespace tutti::tcp {
namespace {

using S = SendState;
using R = ReceiveState;
using SA = SendAction;
using RA = ReceiveAction;

/// Rows: SendState. Columns: SendEvent.
constexpr std::array<std::array<SendMove, kSendEvents>, kSendStates> kSendMoves = {{
    // kTookAll, kTookSome, kNoRoom, kInterrupted, kNoBuffers, kPeerClosed, kFailed, kFinish
    {{{S::kReady, SA::kGoOn},
      {S::kFull, SA::kWait},
      {S::kFull, SA::kWait},
      {S::kReady, SA::kRetry},
      {S::kReady, SA::kRetryCopied},
      {S::kFinished, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kFinished, SA::kSayEnd}}},
    {{{S::kReady, SA::kGoOn},
      {S::kFull, SA::kWait},
      {S::kFull, SA::kWait},
      {S::kFull, SA::kRetry},
      {S::kFull, SA::kRetryCopied},
      {S::kFinished, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kFinished, SA::kSayEnd}}},
    {{{S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop},
      {S::kFinished, SA::kDrop}}},
    {{{S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop},
      {S::kBroken, SA::kDrop}}},
}};

/// Rows: ReceiveState. Columns: ReceiveEvent.
constexpr std::array<std::array<ReceiveMove, kReceiveEvents>, kReceiveStates> kReceiveMoves = {{
    // kWhole, kPart, kNothing, kInterrupted, kEnd, kFailed, kMalformed
    {{{R::kBetween, RA::kGoOn},
      {R::kInside, RA::kGoOn},
      {R::kBetween, RA::kWait},
      {R::kBetween, RA::kRetry},
      {R::kEnded, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait}}},
    {{{R::kBetween, RA::kGoOn},
      {R::kInside, RA::kGoOn},
      {R::kInside, RA::kWait},
      {R::kInside, RA::kRetry},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait}}},
    {{{R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait},
      {R::kEnded, RA::kWait}}},
    {{{R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait},
      {R::kTorn, RA::kWait}}},
}};

using W = WayState;
/// Rows: WayState. Columns: WayEvent.
constexpr std::array<std::array<WayState, kWayEvents>, kWayStates> kWayMoves = {{
    // kBroke, kSocket, kResumed, kGivenUp
    {{W::kTorn, W::kGreeting, W::kOpen, W::kClosed}},
    {{W::kTorn, W::kGreeting, W::kTorn, W::kClosed}},
    {{W::kTorn, W::kGreeting, W::kOpen, W::kClosed}},
    {{W::kClosed, W::kClosed, W::kClosed, W::kClosed}},
}};

}  // namespace

WayState on_event(WayState state, WayEvent event) {
  return kWayMoves[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

SendMove on_event(SendState state, SendEvent event) {
  return kSendMoves[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

ReceiveMove on_event(ReceiveState state, ReceiveEvent event) {
  return kReceiveMoves[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

PeerState combined_state(SendState send, ReceiveState receive) {
  if (receive == ReceiveState::kTorn || send == SendState::kBroken) return PeerState::kTorn;
  return receive == ReceiveState::kEnded ? PeerState::kEnded : PeerState::kOpen;
}

}  // namespace tutti::tcp
