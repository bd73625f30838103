// Goal: whatever breaks and whatever a peer sends, the rank gets all messages that came whole, then an error
// that names the peer, and never hangs or touches other memory. Method: a recorded exchange cut at every
// byte, over scripts and over sockets; frames that no connection writes; peers that close in and out of
// order.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "tests/tcp/alone.h"
#include "transports/ring.h"

namespace tutti::test {
namespace {

constexpr size_t kSizes[] = {8, 0, 200, 200, 200, kInlineBytes, kInlineBytes + 1, 300};

/// What a connection sends for messages of kSizes on channel 0, and where each frame and each message ends.
struct Recording {
  Bytes bytes;
  std::vector<size_t> frame_ends;
  std::vector<size_t> message_ends;
};

Recording record() {
  Alone sender;
  Recording recording;
  for (const size_t size : kSizes) sender.commit(0, size, 2);
  sender.side.connection().advance();
  recording.bytes = sender.take_written();
  const tcp::FrameLimits limits{.channels = 5, .slots = 8, .slot_bytes = 1024, .epoch = 3};
  for (size_t at = 0; at < recording.bytes.size();) {
    const auto frame = tcp::decode(recording.bytes.data() + at, limits);
    EXPECT_TRUE(frame.is_ok());
    at += tcp::kHeaderBytes;
    for (uint32_t i = 0; i < frame->count; ++i) recording.message_ends.push_back(at += frame->bytes);
    recording.frame_ends.push_back(at);
  }
  EXPECT_EQ(recording.message_ends.size(), std::size(kSizes));
  return recording;
}

/// Takes what has arrived; how many messages.
size_t take_messages(Side& side) {
  size_t count = 0;
  for (;; ++count) {
    RecvLink& link = side.recv(0);
    const uint64_t word = link.word();
    if ((word & flag::kNumberMask) != link.next + 1) return count;
    const std::byte* span = link.span(word);
    EXPECT_EQ(Bytes(span, span + flag::bytes(word)), message_bytes(2, 0, 0, link.next, kSizes[link.next]));
    link.release(word);
  }
}

size_t whole_messages(const Recording& recording, size_t cut) {
  return static_cast<size_t>(std::count_if(recording.message_ends.begin(), recording.message_ends.end(),
                                           [&](size_t end) { return end <= cut; }));
}

bool is_edge(const Recording& recording, size_t cut) {
  return cut == 0 || std::find(recording.frame_ends.begin(), recording.frame_ends.end(), cut) !=
                         recording.frame_ends.end();
}

void expect_lost(const tcp::TcpConnection& connection, const std::string& what) {
  EXPECT_EQ(connection.status().code(), Code::kPeerLost);
  EXPECT_NE(connection.status().text().find("rank 7"), std::string::npos) << connection.status().text();
  EXPECT_NE(connection.status().text().find(what), std::string::npos) << connection.status().text();
}

TEST(FaultTest, AConnectionTornAtAnyByteNamesThePeerAfterTheLastWholeMessage) {
  const Recording recording = record();
  for (size_t cut = 0; cut <= recording.bytes.size(); ++cut) {
    for (const ssize_t ending : {ssize_t{0}, ssize_t{-ECONNRESET}}) {
      for (const ssize_t piece : {ssize_t{1}, ssize_t{7}, ssize_t{100000}}) {
        Alone reader;
        ScriptedStream& stream = *reader.streams[0];
        stream.feed(Bytes(recording.bytes.begin(), recording.bytes.begin() + static_cast<ptrdiff_t>(cut)));
        stream.at_end = ending;
        for (size_t i = 0; i <= cut; ++i) stream.read_answers.push_back(piece);
        size_t turns = 0;
        while (reader.side.connection().advance()) ASSERT_LE(++turns, 2 * cut + 10);
        EXPECT_EQ(take_messages(reader.side), whole_messages(recording, cut)) << cut;
        const bool in_order = ending == 0 && is_edge(recording, cut);
        EXPECT_EQ(reader.side.connection().state(), in_order ? PeerState::kEnded : PeerState::kTorn) << cut;
        expect_lost(reader.side.connection(), "192.0.2.7:4711");
        EXPECT_FALSE(reader.side.connection().advance()) << "and that is all";
      }
    }
  }
}

/// A rank on a socket whose other end the test holds.
struct OnSocket {
  explicit OnSocket(Wire wire) : side(7, PairOptions().shape, 5, 0) {
    SocketPair sockets = connect_pair(wire);
    other = std::move(sockets.ends[1]);
    Streams streams;
    streams.push_back(std::move(*tcp::make_socket_stream(std::move(sockets.ends[0]), {})));
    tcp::TcpOptions options;
    options.epoch = 3;
    side.connect(std::move(streams), options);
  }
  void write(const std::byte* bytes, size_t count) {
    if (count == 0) return;
    ASSERT_EQ(::send(other.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  /// Waits for what comes, until the connection is not open any more.
  void run_to_the_end() {
    for (;;) {
      while (side.connection().advance()) {
      }
      if (side.connection().state() != PeerState::kOpen) return;
      std::vector<pollfd> polls;
      side.connection().prepare_wait(polls);
      ASSERT_EQ(::poll(polls.data(), polls.size(), 20'000), 1) << "nothing came";
    }
  }

  Side side;
  FileDescriptor other;
};

TEST(FaultTest, ASocketClosedAtAnyByteIsSeen) {
  const Recording recording = record();
  for (const Wire wire : {Wire::kUnix, Wire::kLoopback}) {
    for (size_t cut = 0; cut <= recording.bytes.size(); cut += wire == Wire::kUnix ? 1 : 13) {
      OnSocket rank(wire);
      rank.write(recording.bytes.data(), cut);
      rank.other.reset();
      rank.run_to_the_end();
      EXPECT_EQ(take_messages(rank.side), whole_messages(recording, cut)) << cut;
      EXPECT_EQ(rank.side.connection().state(),
                is_edge(recording, cut) ? PeerState::kEnded : PeerState::kTorn)
          << cut;
      expect_lost(rank.side.connection(),
                  is_edge(recording, cut) ? "has closed" : "in the middle of a frame");
    }
  }
}

TEST(FaultTest, AResetSocketIsSeenAndSaysWhy) {
  OnSocket rank(Wire::kLoopback);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(rank.other.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  rank.other.reset();
  rank.run_to_the_end();
  EXPECT_EQ(rank.side.connection().state(), PeerState::kTorn);
  expect_lost(rank.side.connection(), "127.0.0.1:");
  expect_lost(rank.side.connection(), "connection 1 of 1");
  expect_lost(rank.side.connection(), "Connection reset by peer (errno 104)");
}

TEST(FaultTest, SendingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  OnSocket rank(Wire::kUnix);
  rank.other.reset();
  SendLink& link = rank.side.send(0);
  std::fill_n(link.span(100), 100, std::byte{1});
  link.commit(0, 100);
  rank.side.connection().advance();
  EXPECT_EQ(rank.side.connection().state(), PeerState::kTorn);
  expect_lost(rank.side.connection(), "Broken pipe");
}

TEST(FaultTest, OneTornConnectionOfSeveralIsNamed) {
  Alone rank(3);
  rank.streams[1]->at_end = -ETIMEDOUT;
  rank.side.connection().advance();
  EXPECT_EQ(rank.side.connection().state(), PeerState::kTorn);
  expect_lost(rank.side.connection(), "connection 2 of 3");
  expect_lost(rank.side.connection(), "timed out");
}

TEST(FaultTest, AHostThatDoesNotAnswerIsTakenForGone) {
  Alone rank;
  rank.streams[0]->silence_ms = 10'000;
  std::vector<pollfd> polls;
  rank.side.connection().prepare_wait(polls);
  EXPECT_EQ(rank.side.connection().state(), PeerState::kOpen);
  rank.streams[0]->silence_ms = 10'001;
  rank.side.connection().prepare_wait(polls);
  EXPECT_EQ(rank.side.connection().state(), PeerState::kTorn);
  expect_lost(rank.side.connection(), "not answered for 10001 ms");
}

TEST(FaultTest, ACreditForAPeerThatHasClosedIsNoLoss) {
  // The peer sends its last messages and is gone before it has read our credits.
  Alone sender;
  Alone reader;
  for (int i = 0; i < 4; ++i) sender.commit(0, 100, 2);
  sender.side.connection().advance();
  const Bytes sent = sender.take_written();
  const auto half = static_cast<ptrdiff_t>(tcp::kHeaderBytes + 50);
  reader.streams[0]->feed(Bytes(sent.begin(), sent.begin() + half));
  reader.side.connection().advance();
  for (uint32_t channel = 1; channel < 5; ++channel)
    store_shared(reader.side.recv(channel).credit->released, 4);
  reader.streams[0]->write_answers = {-EPIPE, -EPIPE, -EPIPE};
  reader.side.connection().advance();
  EXPECT_EQ(reader.side.connection().state(), PeerState::kOpen);
  reader.streams[0]->feed(Bytes(sent.begin() + half, sent.end()));
  reader.streams[0]->at_end = 0;
  while (reader.side.connection().advance()) {
  }
  EXPECT_EQ(reader.side.connection().state(), PeerState::kEnded);
  EXPECT_TRUE(reader.arrived(0));
}

// A call that had sent everything failed when its peer had gone on and left before the network had reported
// the last write without copy.
TEST(FaultTest, WritesWithoutCopyComeBackAfterThePeerHasClosed) {
  Alone rank(1, {.in_place_bytes = 1});
  ScriptedStream& stream = *rank.streams[0];
  const Bytes payload(1000);
  rank.side.send(0).commit_reference(1, payload.size(), payload.data());
  rank.side.connection().advance();
  stream.at_end = 0;
  while (rank.side.connection().state() == PeerState::kOpen) rank.side.connection().advance();
  ASSERT_EQ(rank.side.connection().state(), PeerState::kEnded);
  EXPECT_FALSE(rank.side.send(0).references_returned());
  stream.completions = {{.first = 0, .last = 0}};
  EXPECT_TRUE(rank.side.connection().advance());
  EXPECT_TRUE(rank.side.send(0).references_returned());
}

TEST(FaultTest, WritesWithoutCopyComeBackAfterACreditWasDropped) {
  Alone rank(1, {.in_place_bytes = 1});
  ScriptedStream& stream = *rank.streams[0];
  const Bytes payload(1000);
  rank.side.send(0).commit_reference(1, payload.size(), payload.data());
  rank.side.connection().advance();
  ASSERT_EQ(stream.writes.size(), 1u);
  store_shared(rank.side.recv(1).credit->released, 4);
  stream.write_answers = {-EPIPE};
  rank.side.connection().advance();
  ASSERT_TRUE(stream.write_answers.empty());
  EXPECT_FALSE(rank.side.send(0).references_returned());
  stream.completions = {{.first = 0, .last = 0}};
  while (rank.side.connection().advance()) {
  }
  EXPECT_TRUE(rank.side.send(0).references_returned());
}

TEST(FaultTest, FinishingDeliversEverythingToBothSides) {
  for (const uint32_t connections : {1u, 3u}) {
    StreamPair streams = connect_streams(Wire::kLoopback, connections);
    ConnectionPair pair({}, std::move(streams.ends[0]), std::move(streams.ends[1]));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      SendLink& link = pair.side(rank).send(0);
      for (const size_t size : kSizes) {
        const Bytes payload = message_bytes(2, 0, 0, link.next, size);
        std::copy(payload.begin(), payload.end(), link.span(size));
        link.commit(0, size);
      }
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      while (!pair.side(rank).connection().drained()) pair.side(rank).connection().advance();
      pair.side(rank).connection().finish();
    }
    for (int turns = 0; pair.first.connection().state() == PeerState::kOpen ||
                        pair.second.connection().state() == PeerState::kOpen;
         ++turns) {
      ASSERT_LT(turns, 10'000'000);
      pair.first.connection().advance();
      pair.second.connection().advance();
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(pair.side(rank).connection().state(), PeerState::kEnded)
          << pair.side(rank).connection().status().text();
      EXPECT_EQ(take_messages(pair.side(rank)), std::size(kSizes));
    }
  }
}

/// What a rank says to these bytes of a peer.
std::string refusal(const Bytes& bytes) {
  Alone rank;
  rank.streams[0]->feed(bytes);
  while (rank.side.connection().advance()) {
  }
  EXPECT_EQ(rank.side.connection().state(), PeerState::kTorn);
  expect_lost(rank.side.connection(), "it sent ");
  return std::string(rank.side.connection().status().text());
}

Bytes frame(const tcp::Frame& frame) {
  Bytes bytes(tcp::kHeaderBytes + size_t{frame.count} * frame.bytes);
  tcp::encode(frame, bytes.data());
  return bytes;
}

TEST(FaultTest, FramesThatDoNotFitTheLinksAreRefused) {
  const tcp::Frame good{.channel = 1, .count = 2, .bytes = 100, .epoch = 3};
  tcp::Frame wrong = good;
  wrong.channel = 5;
  EXPECT_NE(refusal(frame(wrong)).find("channel 5"), std::string::npos);
  wrong = good;
  wrong.number = 7;
  EXPECT_NE(refusal(frame(wrong)).find("messages 7 to 8 of channel 1, where only 8"), std::string::npos);
  wrong = good;
  wrong.number = flag::kNumberMask;
  EXPECT_NE(refusal(frame(wrong)).find("where only 8 have room"), std::string::npos);
  wrong = good;
  wrong.credit = 1;
  EXPECT_NE(refusal(frame(wrong)).find("credit up to 1 on channel 1"), std::string::npos);
  wrong.credit = tcp::kCreditMask;
  EXPECT_NE(refusal(frame(wrong)).find("credit up to"), std::string::npos);
  Bytes twice = frame(good);
  wrong = good;
  wrong.number = 1;
  const Bytes again = frame(wrong);
  twice.insert(twice.end(), again.begin(), again.end());
  EXPECT_NE(refusal(twice).find("message 1 of channel 1 twice"), std::string::npos);
  EXPECT_NE(refusal(Bytes(16, std::byte{0xff})).find("reserved bits"), std::string::npos);
}

TEST(FaultTest, RandomChangesOfAnExchangeNeverTouchOtherMemory) {
  const Recording recording = record();
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SimRandom random(seed);
    Bytes bytes = recording.bytes;
    for (uint64_t i = 1 + random.below(4); i > 0; --i) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    Alone rank(1 + static_cast<uint32_t>(random.below(2)));
    rank.streams[0]->feed(bytes);
    for (ScriptedStream* stream : rank.streams) stream->at_end = 0;
    for (int turns = 0; rank.side.connection().advance(); ++turns) ASSERT_LT(turns, 1000) << seed;
    ASSERT_NE(rank.side.connection().state(), PeerState::kOpen) << seed;
    ASSERT_EQ(rank.side.connection().status().code(), Code::kPeerLost) << seed;
  }
}

}  // namespace
}  // namespace tutti::test
