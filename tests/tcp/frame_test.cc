// Goal: what is written as a frame is read as the same frame, and what no connection writes is refused with
// the value that is wrong. Method: round trips at the limits; every field wrong by itself; random bytes.
#include "transports/tcp/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "transports/sim/sim.h"

namespace tutti::tcp {
namespace {

constexpr FrameLimits kLimits{.channels = 5, .slots = 16, .slot_bytes = 4096, .epoch = 7};
constexpr Frame kGood{
    .channel = 4, .count = 16, .number = 100, .signature = 9, .bytes = 4096, .credit = 50, .epoch = 7};

Result<Frame> round_trip(const Frame& frame) {
  std::byte header[kHeaderBytes];
  encode(frame, header);
  return decode(header, kLimits);
}

std::string refusal(const Frame& frame) {
  const Result<Frame> read = round_trip(frame);
  EXPECT_FALSE(read.is_ok());
  EXPECT_EQ(read.status().code(), Code::kPeerLost);
  return std::string(read.status().text());
}

TEST(FrameTest, WhatIsWrittenIsRead) {
  Frame frames[] = {kGood, kGood, kGood, kGood};
  frames[1] = {.kind = FrameKind::kCredit, .channel = 2, .credit = (1u << 24) - 1, .epoch = 7};
  frames[2].number = flag::kNumberMask;
  frames[3].bytes = 0;
  for (const Frame& frame : frames) {
    const Result<Frame> read = round_trip(frame);
    ASSERT_TRUE(read.is_ok()) << read.status().text();
    EXPECT_EQ(*read, frame);
  }
}

TEST(FrameTest, EveryFieldIsChecked) {
  const auto with = [](auto change) {
    Frame frame = kGood;
    change(frame);
    return refusal(frame);
  };
  EXPECT_EQ(with([](Frame& f) { f.channel = 5; }), "a frame with channel 5 (here: 5)");
  EXPECT_EQ(with([](Frame& f) { f.count = 17; }), "a frame with run 17 (here: 16)");
  EXPECT_EQ(with([](Frame& f) { f.count = 0; }), "a frame with run 0 (here: 16)");
  EXPECT_EQ(with([](Frame& f) { f.bytes = 4097; }), "a frame with bytes 4097 (here: 4096)");
  EXPECT_EQ(with([](Frame& f) { f.epoch = 8; }), "a frame with epoch 8 (here: 7)");
  EXPECT_NE(with([](Frame& f) { f.kind = FrameKind{2}; }).find("kind 2"), std::string::npos);
  EXPECT_NE(with([](Frame& f) { f.kind = FrameKind::kCredit; }).find("credit"), std::string::npos);
  EXPECT_NE(with([](Frame& f) {
              f.kind = FrameKind::kCredit;
              f.count = 0;
            }).find("credit"),
            std::string::npos);
  std::byte header[kHeaderBytes];
  encode(kGood, header);
  header[15] = std::byte{1};
  EXPECT_NE(decode(header, kLimits).status().text().find("reserved"), std::string::npos);
}

TEST(FrameTest, RandomBytesAreRefusedOrWithinTheLimits) {
  SimRandom random(1);
  for (int i = 0; i < 200'000; ++i) {
    uint64_t words[2] = {random.next(), random.next()};
    // Most of them get past the first checks.
    if (!random.one_in(4)) words[1] = (words[1] & 0x00000007ffffffffull) | uint64_t{7} << 40;
    if (!random.one_in(4)) words[0] &= (1ull << 52) - 1;
    std::byte header[kHeaderBytes];
    std::memcpy(header, words, sizeof(words));
    const Result<Frame> read = decode(header, kLimits);
    if (!read.is_ok()) continue;
    ASSERT_LT(read->channel, kLimits.channels);
    ASSERT_LE(read->count, kLimits.slots);
    ASSERT_LE(read->bytes, kLimits.slot_bytes);
    std::byte again[kHeaderBytes];
    encode(*read, again);
    ASSERT_EQ(std::memcmp(header, again, kHeaderBytes), 0);
  }
}

}  // namespace
}  // namespace tutti::tcp
