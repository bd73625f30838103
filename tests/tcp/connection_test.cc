// Goal: what the connection promises beyond moving messages: few frames and system calls, credits that ride
// along, connections with room, places that were offered, memory that is kept as long as it is needed.
// Method: two ranks over scripted streams, whose bytes and answers the test sees and decides.
#include <gtest/gtest.h>

#include <string>

#include "core/clock.h"
#include "tests/tcp/alone.h"

namespace tutti::test {
namespace {

TEST(ConnectionTest, ManySmallMessagesLeaveInOneWrite) {
  Alone rank;
  for (uint32_t channel = 0; channel < 5; ++channel) {
    for (int i = 0; i < 8; ++i) rank.commit(channel, 8);
  }
  EXPECT_FALSE(rank.side.connection().drained());
  EXPECT_TRUE(rank.side.connection().advance());
  EXPECT_TRUE(rank.side.connection().drained());
  ASSERT_EQ(rank.streams[0]->writes.size(), 1u);
  EXPECT_EQ(rank.streams[0]->writes[0].bytes, 5 * (tcp::kHeaderBytes + 8 * 8)) << "one header a run";
}

TEST(ConnectionTest, NothingIsSentThatThePeerHasNoSlotFor) {
  Alone rank;
  Alone peer;
  size_t sent = 0;
  for (int i = 0; i < 30; ++i) {
    while (rank.side.send(0).can_write()) rank.commit(0, 100);
    rank.side.connection().advance();
    sent += rank.take_written().size();
  }
  EXPECT_EQ(sent, tcp::kHeaderBytes + 8 * 100) << "8 slots";
  EXPECT_FALSE(rank.side.connection().drained());
  EXPECT_EQ(rank.side.send(0).next, 16u) << "the ring here fills up behind them";
}

TEST(ConnectionTest, CreditsRideOnMessages) {
  Alone first;
  Alone second;
  Alone* ranks[] = {&first, &second};
  for (int i = 0; i < 1000; ++i) {
    Alone& from = *ranks[i % 2];
    Alone& to = *ranks[1 - i % 2];
    ASSERT_TRUE(from.side.send(0).can_write());
    from.commit(0, 8);
    from.side.connection().advance();
    Bytes bytes = from.take_written();
    ASSERT_EQ(bytes.size(), tcp::kHeaderBytes + 8) << i;
    to.streams[0]->feed(bytes);
    to.side.connection().advance();
    ASSERT_TRUE(to.arrived(0));
    to.release(0);
  }
}

TEST(ConnectionTest, CreditsTravelAloneOnceForHalfAWindow) {
  Alone sender;
  Alone reader;
  size_t credits = 0;
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(sender.side.send(2).can_write());
    sender.commit(2, 500);
    sender.side.connection().advance();
    reader.streams[0]->feed(sender.take_written());
    reader.side.connection().advance();
    ASSERT_TRUE(reader.arrived(2));
    reader.release(2);
    reader.side.connection().advance();
    const Bytes back = reader.take_written();
    credits += back.size() / tcp::kHeaderBytes;
    sender.streams[0]->feed(back);
    sender.side.connection().advance();
  }
  EXPECT_EQ(credits, 400u / 4) << "8 slots";
}

TEST(ConnectionTest, AFullConnectionIsPassedByAndOrderIsRestored) {
  Alone sender(2);
  Alone reader(2);
  sender.commit(1, 900, 9);
  sender.streams[0]->write_answers = {100, -EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN};
  sender.side.connection().advance();
  for (int i = 1; i < 4; ++i) sender.commit(1, 900, 9);
  sender.side.connection().advance();
  EXPECT_EQ(sender.streams[0]->written.size(), 100u);
  EXPECT_EQ(sender.streams[1]->written.size(), tcp::kHeaderBytes + 3 * 900);
  EXPECT_FALSE(sender.side.connection().drained());

  reader.streams[0]->feed(sender.take_written(0));
  reader.streams[1]->feed(sender.take_written(1));
  reader.side.connection().advance();
  EXPECT_FALSE(reader.arrived(1)) << "the first is not whole; the others wait behind it";
  sender.streams[0]->write_answers.clear();
  sender.side.connection().advance();
  EXPECT_TRUE(sender.side.connection().drained());
  reader.streams[0]->feed(sender.take_written(0));
  reader.side.connection().advance();
  for (uint64_t number = 0; number < 4; ++number) {
    ASSERT_TRUE(reader.arrived(1)) << number;
    const std::byte* span = reader.side.recv(1).span(reader.side.recv(1).word());
    EXPECT_EQ(Bytes(span, span + 900), message_bytes(9, 0, 1, number, 900)) << number;
    reader.release(1);
  }
}

TEST(ConnectionTest, LargeMessagesTakeTurnsOnTheConnections) {
  Alone rank(3, {.shape = {.slots = 16, .slot_bytes = 65536}, .in_place_bytes = UINT64_MAX});
  for (int i = 0; i < 6; ++i) rank.commit(0, 65536);
  rank.side.connection().advance();
  for (const ScriptedStream* stream : rank.streams) {
    EXPECT_EQ(stream->written.size(), 2 * (tcp::kHeaderBytes + 65536));
  }
}

TEST(ConnectionTest, LongWritesEndWithABurstAndTheRestGoesWithWhatFollows) {
  constexpr size_t kMessage = 65536;
  constexpr size_t kBurst = 65483;  // a segment of the loopback device
  constexpr size_t kFrame = tcp::kHeaderBytes + 4 * kMessage;
  Alone rank(1, {.shape = {.slots = 16, .slot_bytes = kMessage}, .in_place_bytes = UINT64_MAX});
  ScriptedStream& stream = *rank.streams[0];
  stream.burst = kBurst;
  const auto send = [&](int messages) {
    for (int i = 0; i < messages; ++i) rank.commit(0, kMessage);
    rank.side.connection().advance();
    return std::exchange(stream.writes, {});
  };

  std::vector<ScriptedStream::Write> writes = send(4);
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0].bytes, 4 * kBurst);
  EXPECT_FALSE(rank.side.connection().drained());

  writes = send(4);
  ASSERT_EQ(writes.size(), 1u) << "the rest of the first frame begins it";
  EXPECT_EQ(writes[0].bytes, 4 * kBurst);

  writes = send(0);
  ASSERT_EQ(writes.size(), 1u) << "nothing followed";
  EXPECT_EQ(writes[0].bytes, 2 * (kFrame - 4 * kBurst));
  EXPECT_TRUE(rank.side.connection().drained());

  writes = send(1);
  ASSERT_EQ(writes.size(), 1u) << "a short one goes whole";
  EXPECT_EQ(writes[0].bytes, tcp::kHeaderBytes + kMessage);
}

// Who is answered is waited for: the rest came when the sender had read all that had come meanwhile.
TEST(ConnectionTest, ALongWriteGoesWholeWhereMessagesCameSinceTheLastOne) {
  constexpr size_t kMessage = 65536;
  constexpr size_t kFrame = tcp::kHeaderBytes + 4 * kMessage;
  Alone rank(1, {.shape = {.slots = 16, .slot_bytes = kMessage}, .in_place_bytes = UINT64_MAX});
  ScriptedStream& stream = *rank.streams[0];
  stream.burst = 65483;
  const auto send = [&](int messages) {
    for (int i = 0; i < messages; ++i) rank.commit(0, kMessage);
    rank.side.connection().advance();
    return std::exchange(stream.writes, {}).at(0).bytes;
  };
  ++rank.arrivals;
  EXPECT_EQ(send(4), kFrame);
  EXPECT_TRUE(rank.side.connection().drained());
  EXPECT_LT(send(4), kFrame) << "nothing has come: a stream";
  ++rank.arrivals;
  EXPECT_LT(send(12), 12 * kMessage) << "more than three quarters of the window: more follows";
}

TEST(ConnectionTest, ALongWriteThatIsTakenInPartGoesOnBeforeItsRest) {
  constexpr size_t kMessage = 65536;
  constexpr size_t kBurst = 65160;  // 45 segments of an Ethernet device
  Alone rank(1, {.shape = {.slots = 16, .slot_bytes = kMessage}, .in_place_bytes = UINT64_MAX});
  ScriptedStream& stream = *rank.streams[0];
  stream.burst = kBurst;
  stream.write_answers = {100'000};
  for (int i = 0; i < 4; ++i) rank.commit(0, kMessage);
  for (int i = 0; i < 3; ++i) rank.side.connection().advance();
  ASSERT_EQ(stream.writes.size(), 3u);
  EXPECT_EQ(stream.writes[0].bytes, 100'000u);
  EXPECT_EQ(stream.writes[1].bytes, 2 * kBurst) << "whole bursts of what was left";
  EXPECT_TRUE(rank.side.connection().drained());
  EXPECT_EQ(stream.written.size(), tcp::kHeaderBytes + 4 * kMessage);
}

TEST(ConnectionTest, APostedReceiveIsReadIntoDirectly) {
  Alone sender;
  Alone reader;
  // Three messages, the last of them short, after one that was not offered a place.
  const size_t sizes[] = {1000, 600, 600, 300};
  for (const size_t size : sizes) sender.commit(0, size, 4);
  sender.side.connection().advance();
  Bytes target(1500);
  reader.side.offer(0) = {.first = 1, .address = target.data(), .bytes = 1500, .slice_bytes = 600};
  reader.streams[0]->feed(sender.take_written());
  reader.side.connection().advance();
  size_t offset = 0;
  for (uint64_t number = 0; number < 4; ++number) {
    ASSERT_TRUE(reader.arrived(0)) << number;
    const uint64_t word = reader.side.recv(0).word();
    const std::byte* span = reader.side.recv(0).span(word);
    EXPECT_EQ(Bytes(span, span + sizes[number]), message_bytes(4, 0, 0, number, sizes[number]));
    EXPECT_EQ(flag::carriage(word), number == 0 ? Carriage::kSlot : Carriage::kReference);
    if (number > 0) {
      EXPECT_EQ(span, target.data() + offset);
      offset += sizes[number];
    }
    reader.release(0);
  }
}

struct SentMessage {
  uint32_t channel;
  size_t bytes;
};
constexpr PairOptions kLongMessages{.shape = {.slots = 16, .slot_bytes = 32768}};

/// What a rank sends for messages that it commits one after the other.
std::vector<Bytes> frames_of(const std::vector<SentMessage>& messages) {
  Alone sender(1, kLongMessages);
  std::vector<Bytes> frames;
  for (const SentMessage& message : messages) {
    sender.commit(message.channel, message.bytes);
    sender.side.connection().advance();
    frames.push_back(sender.take_written());
  }
  return frames;
}

TEST(ConnectionTest, AFrameThatContinuesThoseBeforeItComesWithOneRead) {
  Alone reader(1, kLongMessages);
  for (const Bytes& frame : frames_of({3, SentMessage{0, 20'000}})) {
    reader.streams[0]->reads = 0;
    reader.streams[0]->feed(frame);
    reader.side.connection().advance();
  }
  EXPECT_EQ(reader.streams[0]->reads, 1);
  Bytes target(20'000);
  reader.side.offer(0) = {.first = 3, .address = target.data(), .bytes = 20'000, .slice_bytes = 20'000};
  const std::vector<Bytes> frames = frames_of({4, SentMessage{0, 20'000}});
  reader.streams[0]->feed(frames[3]);
  reader.side.connection().advance();
  EXPECT_EQ(target, message_bytes(0, 0, 0, 3, 20'000)) << "an offered place is expected, too";
}

// Goal: a next frame that is expected and turns out to be another one is taken as what it is. Method: frames
// that continue each other, then one that does not, cut at many places.
TEST(ConnectionTest, AFrameThatDoesNotContinueThoseBeforeItIsTakenAsWhatItIs) {
  const SentMessage alike{0, 20'000};
  const std::vector<SentMessage> scripts[] = {{alike, alike, alike, alike},
                                              {alike, alike, {0, 100}, alike},
                                              {alike, alike, {0, 0}, {0, 30'000}, alike},
                                              {alike, alike, {1, 20'000}, alike, alike, {1, 8}, {1, 8}}};
  Bytes credit(tcp::kHeaderBytes);
  tcp::encode({.kind = tcp::FrameKind::kCredit, .epoch = kLongMessages.epoch}, credit.data());
  for (const auto& script : scripts) {
    std::vector<Bytes> frames = frames_of(script);
    frames.insert(frames.begin() + 3, credit);
    Bytes bytes;
    for (const Bytes& frame : frames) bytes.insert(bytes.end(), frame.begin(), frame.end());
    for (size_t cut = 1; cut < bytes.size(); cut += 1009) {
      Alone reader(1, kLongMessages);
      const auto end = bytes.begin() + static_cast<ptrdiff_t>(cut);
      for (const Bytes& part : {Bytes(bytes.begin(), end), Bytes(end, bytes.end())}) {
        reader.streams[0]->feed(part);
        for (int look = 0; look < 4; ++look) reader.side.connection().advance();
      }
      for (const SentMessage& message : script) {
        RecvLink& link = reader.side.recv(message.channel);
        ASSERT_TRUE(reader.arrived(message.channel)) << reader.side.connection().status().text();
        const std::byte* span = link.span(link.word());
        ASSERT_EQ(flag::bytes(link.word()), message.bytes);
        ASSERT_EQ(Bytes(span, span + message.bytes),
                  message_bytes(0, 0, message.channel, link.next, message.bytes))
            << "cut at " << cut;
        reader.release(message.channel);
      }
    }
  }
}

TEST(ConnectionTest, AMessageOfAnotherSizeThanPostedGoesToItsSlot) {
  Alone sender;
  Alone reader;
  sender.commit(0, 700);
  sender.side.connection().advance();
  Bytes target(600);
  reader.side.offer(0) = {.first = 0, .address = target.data(), .bytes = 600, .slice_bytes = 600};
  reader.streams[0]->feed(sender.take_written());
  reader.side.connection().advance();
  ASSERT_TRUE(reader.arrived(0));
  EXPECT_EQ(flag::carriage(reader.side.recv(0).word()), Carriage::kSlot);
  EXPECT_EQ(target, Bytes(600));
}

TEST(ConnectionTest, AWithdrawnPostedReceiveIsNotWrittenToAnyMore) {
  for (const size_t before : {16u, 17u, 500u, 1300u}) {
    Alone sender;
    Alone reader;
    sender.commit(0, 900, 6);
    sender.commit(0, 900, 6);
    sender.side.connection().advance();
    const Bytes sent = sender.take_written();
    Bytes target(1800);
    reader.side.offer(0) = {.first = 0, .address = target.data(), .bytes = 1800, .slice_bytes = 900};
    reader.streams[0]->feed(Bytes(sent.begin(), sent.begin() + static_cast<ptrdiff_t>(before)));
    reader.side.connection().advance();
    reader.side.offer(0) = {};
    reader.side.connection().withdraw();
    const Bytes after_withdrawal = target;
    reader.streams[0]->feed(Bytes(sent.begin() + static_cast<ptrdiff_t>(before), sent.end()));
    reader.side.connection().advance();
    EXPECT_EQ(target, after_withdrawal) << before;
    for (uint64_t number = 0; number < 2; ++number) {
      ASSERT_TRUE(reader.arrived(0)) << before;
      const std::byte* span = reader.side.recv(0).span(reader.side.recv(0).word());
      EXPECT_EQ(Bytes(span, span + 900), message_bytes(6, 0, 0, number, 900)) << before;
      reader.release(0);
    }
  }
}

TEST(ConnectionTest, ReferencesAreReturnedWhenTheKernelHasTakenAllOfThem) {
  Alone rank(1, {.in_place_bytes = UINT64_MAX});
  const Bytes payload(1000);
  rank.side.send(0).commit_reference(1, 1000, payload.data());
  rank.streams[0]->write_answers = {500, 515, -EAGAIN};
  rank.side.connection().advance();
  EXPECT_FALSE(rank.side.send(0).references_returned());
  rank.side.connection().advance();
  EXPECT_FALSE(rank.side.send(0).references_returned()) << "one byte is missing";
  rank.side.connection().advance();
  rank.side.connection().advance();
  EXPECT_TRUE(rank.side.send(0).references_returned());
}

TEST(ConnectionTest, WithoutCopyReferencesAreReturnedWhenTheirWritesAreCompleted) {
  Alone rank(1, {.in_place_bytes = 1});
  const Bytes payload(1000);
  ScriptedStream& stream = *rank.streams[0];
  for (int i = 0; i < 4; ++i) {
    rank.side.send(0).commit_reference(1, 1000, payload.data());
    rank.side.connection().advance();
  }
  ASSERT_EQ(stream.writes.size(), 4u);
  EXPECT_TRUE(stream.writes[3].without_copy);
  EXPECT_TRUE(rank.side.connection().drained()) << "it will arrive";
  EXPECT_EQ(rank.side.send(0).released(), 0u);
  // Reports may come out of order and in ranges.
  stream.completions = {{.first = 1, .last = 2}};
  rank.side.connection().advance();
  EXPECT_EQ(rank.side.send(0).released(), 0u);
  stream.completions = {{.first = 0, .last = 0}};
  rank.side.connection().advance();
  EXPECT_EQ(rank.side.send(0).released(), 3u);
  EXPECT_FALSE(rank.side.send(0).references_returned());
  stream.completions = {{.first = 3, .last = 3, .copied = true}};
  rank.side.connection().advance();
  EXPECT_TRUE(rank.side.send(0).references_returned());
  // The kernel copied: from here on it is told to.
  rank.side.send(0).commit_reference(1, 1000, payload.data());
  rank.side.connection().advance();
  EXPECT_FALSE(stream.writes.back().without_copy);
  EXPECT_TRUE(rank.side.send(0).references_returned());
}

TEST(ConnectionTest, ASilentStreamIsReadAgainAfterAWaitIsPrepared) {
  Alone sender;
  Alone reader;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(reader.side.connection().advance());
  sender.commit(0, 8);
  sender.side.connection().advance();
  reader.streams[0]->feed(sender.take_written());
  std::vector<pollfd> polls;
  reader.side.connection().prepare_wait(polls);
  ASSERT_EQ(polls.size(), 1u);
  EXPECT_EQ(polls[0].events, POLLIN);
  EXPECT_TRUE(reader.side.connection().advance());
  EXPECT_TRUE(reader.arrived(0));
}

/// A rank that has been sent a message, which it has not read yet.
void expect_read_behind(size_t bytes, int sends, bool is_read) {
  const PairOptions options{.shape = {.slots = 8, .slot_bytes = 131072}};
  Alone sender(1, options);
  sender.commit(0, 8);
  sender.side.connection().advance();
  Alone rank(1, options);
  rank.streams[0]->feed(sender.take_written());
  for (int i = 0; i < sends; ++i) {
    rank.commit(0, bytes);
    EXPECT_TRUE(rank.side.connection().advance());
  }
  EXPECT_EQ(rank.arrived(0), is_read) << sends << " sends of " << bytes << " bytes";
  EXPECT_TRUE(is_read || rank.side.connection().advance()) << "with nothing to send it reads";
  EXPECT_TRUE(rank.arrived(0));
}

// Goal: who sends messages of up to 64 KiB does not look for answers, since each refused read costs as much
// as a twentieth of a message, until three quarters of the peer's window are out; who sends more, or nothing,
// does.
TEST(ConnectionTest, WhoSendsReadsBehindMuchOrWhenMostOfAWindowIsOut) {
  expect_read_behind(8, 1, false);
  expect_read_behind(8, 5, false);
  expect_read_behind(8, 6, true);
  expect_read_behind(65536, 1, false);
  expect_read_behind(131072, 1, true);
}

void send_one(Alone& rank, size_t bytes) {
  rank.commit(0, bytes);
  rank.side.connection().advance();
}

/// `rank` reads a message.
void receive_one(Alone& rank) {
  Alone peer;
  send_one(peer, 8);
  rank.streams[0]->feed(peer.take_written());
  for (int look = 0; !rank.arrived(0) && look < 2; ++look) rank.side.connection().advance();
  ASSERT_TRUE(rank.arrived(0));
}

// Goal: small messages that nothing comes back for share packets; whoever expects an answer never waits.
TEST(ConnectionTest, SmallMessagesOfAStreamMayWaitForEachOther) {
  const PairOptions options{.shape = {.slots = 16, .slot_bytes = 65536}};
  Alone rank(1, options);
  const auto expect_holds_after = [&](int sends, size_t bytes, bool holds) {
    for (int i = 0; i < sends; ++i) send_one(rank, bytes);
    EXPECT_EQ(rank.streams[0]->holds, holds) << sends << " sends of " << bytes << " bytes";
  };
  expect_holds_after(3, 8, false);
  expect_holds_after(1, 8, true);
  expect_holds_after(1, 32 * 1024, true);
  receive_one(rank);
  expect_holds_after(1, 8, false);
  expect_holds_after(4, 8, true);
  ++rank.arrivals;  // from another peer: this may be a ring
  expect_holds_after(1, 8, false);
  expect_holds_after(4, 8, true);
  expect_holds_after(1, 65536, false);
}

TEST(ConnectionTest, WhatWasReadIsAcknowledgedOnceWhenNothingFollows) {
  Alone rank;
  receive_one(rank);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  while (rank.streams[0]->acknowledgements == 0 && now_ns() < deadline_ns) rank.side.connection().advance();
  for (int look = 0; look < 1000; ++look) rank.side.connection().advance();
  EXPECT_EQ(rank.streams[0]->acknowledgements, 1);
}

TEST(ConnectionTest, WhatWasReadIsAcknowledgedBeforeASleep) {
  Alone rank;
  std::vector<pollfd> polls;
  rank.side.connection().prepare_wait(polls);
  EXPECT_EQ(rank.streams[0]->acknowledgements, 1);
}

TEST(ConnectionTest, AnAnswerIsAnAcknowledgement) {
  Alone rank;
  receive_one(rank);
  send_one(rank, 8);
  for (int look = 0; look < 1000; ++look) rank.side.connection().advance();
  EXPECT_EQ(rank.streams[0]->acknowledgements, 0);
}

TEST(ConnectionTest, AWaitIsForRoomWhereBytesAreLeft) {
  Alone rank;
  rank.commit(0, 500);
  rank.streams[0]->write_answers = {-EAGAIN};
  rank.side.connection().advance();
  std::vector<pollfd> polls;
  rank.side.connection().prepare_wait(polls);
  ASSERT_EQ(polls.size(), 1u);
  EXPECT_EQ(polls[0].events, POLLIN | POLLOUT);
}

}  // namespace
}  // namespace tutti::test
