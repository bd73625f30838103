// Goal: a connection is in the state that the tables of docs/tcp.md say, whatever its stream answers. Method:
// the tables once more, written down by hand; and a connection brought into every state by its stream, where
// every event then happens.
#include "transports/tcp/states.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/tcp/connection_pair.h"
#include "tests/tcp/scripted_stream.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::tcp {
namespace {

using test::Bytes;
using test::ScriptedStream;

constexpr const char* kSendLetters = "RFXB";     // ready, full, finished, broken
constexpr const char* kReceiveLetters = "BIET";  // between, inside, ended, torn

/// Rows by state, columns by event, letters for the next state.
constexpr const char* kSendTable[kSendStates] = {
    "RFFRRXBX",
    "RFFFFXBX",
    "XXXXXXXX",
    "BBBBBBBB",
};
/// g: go on, r: retry, c: retry copied, w: wait, d: drop, e: say the end.
constexpr const char* kSendActions[kSendStates] = {
    "gwwrcdde",
    "gwwrcdde",
    "dddddddd",
    "dddddddd",
};
constexpr const char* kReceiveTable[kReceiveStates] = {
    "BIBBETT",
    "BIIITTT",
    "EEEEEEE",
    "TTTTTTT",
};
constexpr const char* kReceiveActions[kReceiveStates] = {
    "ggwrwww",
    "ggwrwww",
    "wwwwwww",
    "wwwwwww",
};

SendState send_state(char letter) {
  return static_cast<SendState>(std::string(kSendLetters).find(letter));
}
ReceiveState receive_state(char letter) {
  return static_cast<ReceiveState>(std::string(kReceiveLetters).find(letter));
}

TEST(StatesTest, OnlyAGivenUpWayIsClosedForGood) {
  constexpr const char* kWayLetters = "OTGC";  // open, torn, greeting, closed
  // Columns: broke, socket, resumed, given up.
  constexpr const char* kWayTable[kWayStates] = {"TGOC", "TGTC", "TGOC", "CCCC"};
  for (uint32_t state = 0; state < kWayStates; ++state) {
    for (uint32_t event = 0; event < kWayEvents; ++event) {
      EXPECT_EQ(kWayLetters[static_cast<size_t>(
                    on_event(static_cast<WayState>(state), static_cast<WayEvent>(event)))],
                kWayTable[state][event])
          << state << ", " << event;
    }
  }
}

TEST(StatesTest, TheTablesAreAsDocumented) {
  for (uint32_t state = 0; state < kSendStates; ++state) {
    for (uint32_t event = 0; event < kSendEvents; ++event) {
      const SendMove move = on_event(static_cast<SendState>(state), static_cast<SendEvent>(event));
      EXPECT_EQ(move.state, send_state(kSendTable[state][event])) << state << " " << event;
      EXPECT_EQ("grcwde"[static_cast<size_t>(move.action)], kSendActions[state][event])
          << state << " " << event;
    }
  }
  for (uint32_t state = 0; state < kReceiveStates; ++state) {
    for (uint32_t event = 0; event < kReceiveEvents; ++event) {
      const ReceiveMove move = on_event(static_cast<ReceiveState>(state), static_cast<ReceiveEvent>(event));
      EXPECT_EQ(move.state, receive_state(kReceiveTable[state][event])) << state << " " << event;
      EXPECT_EQ("grw"[static_cast<size_t>(move.action)], kReceiveActions[state][event])
          << state << " " << event;
    }
  }
}

TEST(StatesTest, TheVerdictIsTheWorseOfBothDirections) {
  for (uint32_t send = 0; send < kSendStates; ++send) {
    for (uint32_t receive = 0; receive < kReceiveStates; ++receive) {
      const char letters[2] = {kSendLetters[send], kReceiveLetters[receive]};
      const PeerState expected = letters[0] == 'B' || letters[1] == 'T' ? PeerState::kTorn
                                 : letters[1] == 'E'                    ? PeerState::kEnded
                                                                        : PeerState::kOpen;
      EXPECT_EQ(combined_state(static_cast<SendState>(send), static_cast<ReceiveState>(receive)), expected);
    }
  }
}

constexpr RingShape kShape{.slots = 4, .slot_bytes = 256};
constexpr FrameLimits kLimits{.channels = 1, .slots = 4, .slot_bytes = 256, .epoch = 0};

/// A connection over a scripted stream, and one channel's rings.
struct Bench {
  Bench() : stream_owner(std::make_unique<ScriptedStream>()), stream(*stream_owner) {
    stream.in_place = true;
    connection =
        std::make_unique<FrameStream>(std::move(stream_owner), inbox, outbox,
                                      FrameStreamOptions{.limits = kLimits, .in_place_bytes = 1}, arrivals);
  }

  void queue_message() {
    std::memset(link.span(100), 1, 100);
    link.commit(0, 100);
    connection->queue(outbox.take(0, 1000, 0));
  }
  void queue_credit() { connection->queue(outbox.make_credit(0, 0)); }

  test::RingMemory outgoing{kShape};
  test::RingMemory incoming{kShape};
  SendLink link = SendLink::at(outgoing.bytes(), kShape);
  ChannelRings channel{.outgoing = outgoing.bytes(), .incoming = incoming.bytes()};
  Outbox outbox{std::span(&channel, 1), kShape, 0};
  Inbox inbox{std::span(&channel, 1), kShape};
  std::unique_ptr<ScriptedStream> stream_owner;
  ScriptedStream& stream;
  uint32_t arrivals = 0;
  std::unique_ptr<FrameStream> connection;
};

void bring(Bench& bench, SendState state) {
  switch (state) {
    case SendState::kReady: break;
    case SendState::kFull:
      bench.queue_message();
      bench.stream.write_answers = {-EAGAIN};
      bench.connection->flush(false);
      break;
    case SendState::kFinished: bench.connection->finish(); break;
    case SendState::kBroken:
      bench.queue_message();
      bench.stream.write_answers = {-EIO};
      bench.connection->flush(false);
      break;
  }
  ASSERT_EQ(bench.connection->send_state(), state);
}

/// Makes it happen. What a retry meets is a full socket.
void cause(Bench& bench, SendEvent event) {
  auto& answers = bench.stream.write_answers;
  if (event == SendEvent::kFinish) {
    bench.connection->finish();
    return;
  }
  if (event != SendEvent::kPeerClosed) {
    if (!bench.connection->has_unsent()) bench.queue_message();
  } else if (!bench.connection->has_unsent()) {
    bench.queue_credit();
  }
  switch (event) {
    case SendEvent::kTookAll: break;
    case SendEvent::kTookSome: answers = {5}; break;
    case SendEvent::kNoRoom: answers = {-EAGAIN}; break;
    case SendEvent::kInterrupted: answers = {-EINTR, -EAGAIN}; break;
    case SendEvent::kNoBuffers: answers = {-ENOBUFS, -EAGAIN}; break;
    case SendEvent::kPeerClosed: answers = {-EPIPE}; break;
    case SendEvent::kFailed: answers = {-ECONNRESET}; break;
    case SendEvent::kFinish: break;
  }
  bench.connection->flush(false);
}

TEST(StatesTest, AFrameStreamFollowsTheSendTable) {
  for (uint32_t state = 0; state < kSendStates; ++state) {
    for (uint32_t event = 0; event < kSendEvents; ++event) {
      // A full socket with messages left: its peer's closing is a failure, and it cannot be finished.
      const auto happens = static_cast<SendEvent>(event);
      const bool full = static_cast<SendState>(state) == SendState::kFull;
      if (full && (happens == SendEvent::kPeerClosed || happens == SendEvent::kFinish)) continue;
      Bench bench;
      bring(bench, static_cast<SendState>(state));
      cause(bench, happens);
      SendMove move = on_event(static_cast<SendState>(state), happens);
      const bool again = move.action == SendAction::kRetry || move.action == SendAction::kRetryCopied;
      if (again) move = on_event(move.state, SendEvent::kNoRoom);
      EXPECT_EQ(bench.connection->send_state(), move.state) << state << " " << event;
      EXPECT_EQ(bench.connection->has_unsent(), move.state == SendState::kFull) << state << " " << event;
      EXPECT_EQ(bench.connection->state() == PeerState::kTorn, move.state == SendState::kBroken);
      EXPECT_EQ(bench.connection->reason().empty(), move.state != SendState::kBroken);
      EXPECT_EQ(bench.stream.finished,
                static_cast<SendState>(state) == SendState::kFinished || move.action == SendAction::kSayEnd);
    }
  }
}

TEST(StatesTest, AFullSocketWithOnlyCreditsLeftForgetsThemWhenThePeerHasClosed) {
  Bench bench;
  bench.queue_credit();
  bench.stream.write_answers = {-EAGAIN};
  bench.connection->flush(false);
  ASSERT_EQ(bench.connection->send_state(), SendState::kFull);
  EXPECT_FALSE(bench.outbox.credit_free(0));
  cause(bench, SendEvent::kPeerClosed);
  EXPECT_EQ(bench.connection->send_state(), SendState::kFinished);
  EXPECT_EQ(bench.connection->state(), PeerState::kOpen) << "what it sent before may still come";
  EXPECT_TRUE(bench.outbox.credit_free(0));
}

TEST(StatesTest, TooManyPinnedPagesAreSentAsCopies) {
  Bench bench;
  bench.queue_message();
  bench.stream.write_answers = {-ENOBUFS};
  EXPECT_TRUE(bench.connection->flush(false));
  ASSERT_EQ(bench.stream.refused.size(), 1u);
  EXPECT_TRUE(bench.stream.refused[0].without_copy);
  ASSERT_EQ(bench.stream.writes.size(), 1u);
  EXPECT_FALSE(bench.stream.writes[0].without_copy);
  EXPECT_EQ(bench.link.released(), 1u) << "a copy needs no completion";
}

Bytes credit_header() {
  Bytes header(kHeaderBytes);
  encode({.kind = FrameKind::kCredit}, header.data());
  return header;
}

TEST(StatesTest, AFrameStreamFollowsTheReceiveTable) {
  const Bytes header = credit_header();
  for (uint32_t state = 0; state < kReceiveStates; ++state) {
    for (uint32_t event = 0; event < kReceiveEvents; ++event) {
      Bench bench;
      ScriptedStream& stream = bench.stream;
      size_t given = 0;
      switch (static_cast<ReceiveState>(state)) {
        case ReceiveState::kBetween: break;
        case ReceiveState::kInside:
          given = 5;
          stream.feed(Bytes(header.begin(), header.begin() + 5));
          bench.connection->receive();
          break;
        case ReceiveState::kEnded:
          stream.read_answers = {0};
          bench.connection->receive();
          break;
        case ReceiveState::kTorn:
          stream.read_answers = {-EIO};
          bench.connection->receive();
          break;
      }
      ASSERT_EQ(bench.connection->receive_state(), static_cast<ReceiveState>(state));
      const auto happens = static_cast<ReceiveEvent>(event);
      switch (happens) {
        case ReceiveEvent::kWhole: stream.feed(Bytes(header.begin() + given, header.end())); break;
        case ReceiveEvent::kPart:
          stream.feed(Bytes(header.begin() + given, header.begin() + given + 3));
          break;
        case ReceiveEvent::kNothing: stream.read_answers = {-EAGAIN}; break;
        case ReceiveEvent::kInterrupted: stream.read_answers = {-EINTR, -EAGAIN}; break;
        case ReceiveEvent::kEnd: stream.read_answers = {0}; break;
        case ReceiveEvent::kFailed: stream.read_answers = {-ECONNRESET}; break;
        case ReceiveEvent::kMalformed: stream.feed(Bytes(kHeaderBytes, std::byte{0xff})); break;
      }
      bench.connection->receive();
      const ReceiveMove move = on_event(static_cast<ReceiveState>(state), happens);
      EXPECT_EQ(bench.connection->receive_state(), move.state) << state << " " << event;
      EXPECT_EQ(bench.connection->reason().empty(), move.state != ReceiveState::kTorn)
          << state << " " << event;
    }
  }
}

}  // namespace
}  // namespace tutti::tcp
