// Goal: what has not arrived can be sent again, byte for byte, though the engine has its memory back; and the
// engine has it back as early as the peer's credits and kernel allow. Method: one stream over scripts that
// decide what the kernel confirms; the senders' memory is overwritten when it is free; the next script says
// how much has arrived.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/engine/raw_links.h"
#include "tests/tcp/scripted_stream.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr RingShape kShape{.slots = 8, .slot_bytes = 65536};
constexpr tcp::Resume kEnds{.from = 0, .to = 1, .epoch = 3, .stream = 0};
constexpr uint64_t kGreetingBytes = tcp::Greeting::written_bytes();

/// A renewable stream with one channel.
struct Sender {
  explicit Sender(uint64_t in_place_bytes = UINT64_MAX) {
    auto owner = std::make_unique<ScriptedStream>();
    script = owner.get();
    script->in_place = true;
    stream = std::make_unique<tcp::FrameStream>(
        std::move(owner), inbox, outbox,
        tcp::FrameStreamOptions{
            .limits = {.slots = kShape.slots, .slot_bytes = kShape.slot_bytes, .epoch = 3, .may_end = true},
            .in_place_bytes = in_place_bytes,
            .is_renewable = true,
            .ends = kEnds},
        arrivals);
    std::iota(reinterpret_cast<uint8_t*>(source.data()),
              reinterpret_cast<uint8_t*>(source.data() + source.size()), uint8_t{1});
  }

  /// Sends `count` messages from `source`, one after the other, as one frame.
  void send_references(size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) link.commit_reference(9, bytes, source.data() + i * bytes);
    stream->queue(outbox.take(0, 1 << 20, 0));
    while (stream->has_unsent()) stream->flush(false);
  }
  /// Sends `count` messages of different contents as one frame.
  void send_run(size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(link.span(bytes), source.data() + i * bytes, bytes);
      link.commit(9, bytes);
    }
    stream->queue(outbox.take(0, 1 << 20, 0));
    stream->flush(false);
  }
  void send_slot(size_t bytes) {
    std::memset(link.span(bytes), 7, bytes);
    link.commit(9, bytes);
    stream->queue(outbox.take(0, 1 << 20, 0));
    stream->flush(false);
  }
  /// The peer's engine has released so many messages.
  void receive_credit(uint32_t messages) {
    Bytes header(tcp::kHeaderBytes);
    tcp::encode({.kind = tcp::FrameKind::kCredit, .credit = messages, .epoch = 3}, header.data());
    script->feed(header);
    stream->receive();
    peer_sent += header.size();
  }
  /// Overwrites what the engine has back, tears the socket, and returns what a new one is given after the
  /// peer has said that `received` bytes have come.
  Bytes repeat(uint64_t received) {
    std::ranges::fill(source, std::byte{0});
    stream->tear("a test");
    auto owner = std::make_unique<ScriptedStream>();
    script = owner.get();
    const auto hello =
        encode(tcp::Resume{.from = 1, .to = 0, .epoch = 3, .received = received, .sent = peer_sent});
    script->feed(Bytes(hello.begin(), hello.end()));
    const char ready[] = "tuttirdy";
    const auto* first = reinterpret_cast<const std::byte*>(ready);
    script->feed(Bytes(first, first + 8));
    stream->renew(std::move(owner));
    for (int turn = 0; turn < 10 && stream->way() != tcp::WayState::kOpen; ++turn) stream->greet();
    EXPECT_EQ(stream->way(), tcp::WayState::kOpen) << stream->reason();
    stream->flush(false);
    return {script->written.begin() + kGreetingBytes, script->written.end()};
  }
  bool is_free() { return link.references_returned(); }

  RingMemory outgoing{kShape};
  RingMemory incoming{kShape};
  SendLink link = SendLink::at(outgoing.bytes(), kShape);
  ChannelRings channel{.outgoing = outgoing.bytes(), .incoming = incoming.bytes()};
  tcp::Outbox outbox{std::span(&channel, 1), kShape, 3};
  tcp::Inbox inbox{std::span(&channel, 1), kShape};
  Bytes source = Bytes(size_t{kShape.slots} * kShape.slot_bytes);
  uint32_t arrivals = 0;
  uint64_t peer_sent = 0;
  ScriptedStream* script = nullptr;
  std::unique_ptr<tcp::FrameStream> stream;
};

/// Calls free_memory() until the references are back. Returns how often; 100: in vain.
int turns_until_free(Sender& sender) {
  int turns = 0;
  for (; turns < 100 && !sender.is_free(); ++turns) sender.stream->free_memory();
  return turns;
}

TEST(KeptFramesTest, AShortReferenceIsFreeWhenItIsWritten) {
  for (const size_t bytes : {size_t{1025}, size_t{4096}, size_t{kShape.slot_bytes}}) {
    Sender sender;
    sender.send_references(1, bytes);
    EXPECT_TRUE(sender.is_free()) << bytes;
    const Bytes sent = sender.script->written;
    EXPECT_EQ(sender.repeat(0), sent) << bytes;
  }
}

TEST(KeptFramesTest, ALongReferenceIsFreeWhenTheKernelHasConfirmedIt) {
  Sender sender;
  sender.send_references(4, kShape.slot_bytes);
  const Bytes sent = sender.script->written;
  EXPECT_FALSE(sender.is_free());
  EXPECT_FALSE(sender.stream->free_memory()) << "the peer gets time";
  sender.script->confirmed = sent.size();
  EXPECT_TRUE(sender.stream->free_memory());
  EXPECT_TRUE(sender.is_free());
  EXPECT_EQ(sender.repeat(sent.size()), Bytes());
}

TEST(KeptFramesTest, ALongReferenceIsCopiedIfNothingConfirmsIt) {
  for (const uint64_t confirmed : {0, 10, 70'000, 200'000}) {
    for (const uint64_t more : {0, 1, 50'000}) {
      Sender sender;
      sender.send_references(4, kShape.slot_bytes);
      const Bytes sent = sender.script->written;
      sender.script->confirmed = confirmed;
      EXPECT_LT(turns_until_free(sender), 20) << confirmed;
      const Bytes rest(sent.begin() + static_cast<ptrdiff_t>(confirmed + more), sent.end());
      EXPECT_EQ(sender.repeat(confirmed + more), rest) << confirmed << " " << more;
    }
  }
}

TEST(KeptFramesTest, WhatArrivesWhileItIsCopiedIsNotNeeded) {
  Sender sender;
  sender.send_references(8, kShape.slot_bytes);
  const Bytes sent = sender.script->written;
  for (int turn = 0; turn < 10; ++turn) sender.stream->free_memory();
  EXPECT_FALSE(sender.is_free());
  sender.script->confirmed = 400'000;
  EXPECT_LT(turns_until_free(sender), 20);
  EXPECT_EQ(sender.repeat(400'000), Bytes(sent.begin() + 400'000, sent.end()));
}

TEST(KeptFramesTest, ACreditFreesSlotsWithoutAQuestionToTheKernel) {
  Sender sender;
  for (uint32_t i = 0; i < 3; ++i) sender.send_slot(4000);
  const Bytes sent = sender.script->written;
  EXPECT_EQ(sender.link.released(), 0u);
  sender.receive_credit(2);
  EXPECT_EQ(sender.link.released(), 2u);
  EXPECT_EQ(sender.script->questions, 0);
  const auto one = static_cast<ptrdiff_t>(sent.size() / 3);
  EXPECT_EQ(sender.repeat(2 * static_cast<uint64_t>(one)), Bytes(sent.begin() + 2 * one, sent.end()));
}

// A run lies behind the header of its first message. A credit for that one alone once let the message a ring
// later overwrite the rest.
TEST(KeptFramesTest, ARunCanBeRepeatedWhenOnlyItsFirstMessagesAreCredited) {
  for (const size_t bytes : {size_t{8}, size_t{100}, size_t{1024}}) {
    for (uint32_t credited = 1; credited < kShape.slots; ++credited) {
      Sender sender;
      sender.send_run(kShape.slots, bytes);
      const Bytes run = sender.script->written;
      sender.receive_credit(credited);
      for (uint32_t i = 0; i < credited; ++i) sender.send_slot(1024);
      const uint64_t arrived = tcp::kHeaderBytes + credited * bytes;
      const Bytes repeated = sender.repeat(arrived);
      ASSERT_GE(repeated.size(), run.size() - arrived);
      EXPECT_TRUE(std::equal(run.begin() + static_cast<ptrdiff_t>(arrived), run.end(), repeated.begin()))
          << bytes << " bytes, " << credited << " credited";
    }
  }
}

TEST(KeptFramesTest, TheKernelIsAskedForTheSlotsOfAFullRing) {
  Sender sender;
  for (uint32_t i = 0; i < kShape.slots; ++i) sender.send_slot(4000);
  EXPECT_EQ(sender.link.released(), 0u);
  sender.script->confirmed = sender.script->written.size();
  EXPECT_TRUE(sender.stream->free_memory());
  EXPECT_EQ(sender.link.released(), kShape.slots);
}

// A frame that had arrived, but that the kernel still read, was once copied without end.
TEST(KeptFramesTest, AFrameThatHasArrivedWaitsForTheKernelToLetGo) {
  Sender sender(1);
  sender.send_references(4, kShape.slot_bytes);
  sender.script->confirmed = sender.script->written.size();
  EXPECT_EQ(turns_until_free(sender), 100);
  sender.script->completions = {{.first = 0, .last = 0}};
  EXPECT_TRUE(sender.stream->collect_completions());
  EXPECT_TRUE(sender.is_free());
}

TEST(KeptFramesTest, CreditsThatNothingConfirmsFillTheQueueAndNoMore) {
  Sender sender;
  int credits = 0;
  while (sender.stream->has_room() && credits < 1000) {
    sender.stream->queue(sender.outbox.make_credit(0, 0));
    sender.stream->flush(false);
    EXPECT_TRUE(sender.outbox.credit_free(0)) << "it has left";
    ++credits;
  }
  EXPECT_GT(credits, static_cast<int>(kShape.slots));
  EXPECT_LT(credits, 1000);
  sender.script->confirmed = sender.script->written.size();
  EXPECT_TRUE(sender.stream->free_memory());
  EXPECT_TRUE(sender.stream->has_room());
}

}  // namespace
}  // namespace tutti::test
