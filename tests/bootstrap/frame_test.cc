// Frames: however the bytes come, the same frames come out; what is no frame of ours ends the reading.
#include "net/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace tutti {
namespace {

std::vector<std::byte> frame_bytes(FrameHeader header, const std::string& body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  const auto head = encode(header);
  std::vector<std::byte> bytes(head.size() + body.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  if (!body.empty()) std::memcpy(bytes.data() + head.size(), body.data(), body.size());
  return bytes;
}

TEST(FrameTest, FramesSurviveAnyCut) {
  std::vector<std::byte> stream;
  for (const auto& one :
       {frame_bytes({.kind = FrameKind::kLeave}, ""),
        frame_bytes({.kind = FrameKind::kUp, .first = 7, .count = 2, .number = 3}, "twelve bytes"),
        frame_bytes({.kind = FrameKind::kFail, .code = 7}, "rank 3 ended"),
        frame_bytes({.kind = FrameKind::kLeave}, "")}) {
    stream.insert(stream.end(), one.begin(), one.end());
  }
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader(12);
    std::vector<Frame> frames;
    for (size_t at = 0; at < stream.size(); at += piece) {
      const auto part = std::span(stream).subspan(at, std::min(piece, stream.size() - at));
      ASSERT_TRUE(reader.feed(part, frames).is_ok());
    }
    ASSERT_EQ(frames.size(), 4u) << "pieces of " << piece;
    EXPECT_EQ(frames[1].header.first, 7u);
    EXPECT_EQ(frames[1].header.count, 2u);
    EXPECT_EQ(frames[1].header.number, 3u);
    EXPECT_EQ(frames[1].text(), "twelve bytes");
    EXPECT_EQ(frames[2].failure().code(), Code::kPeerLost);
    EXPECT_EQ(frames[2].failure().text(), "rank 3 ended");
    EXPECT_TRUE(frames[3].body.empty());
  }
}

TEST(FrameTest, WhatIsNoFrameIsRefusedBeforeItsBody) {
  std::vector<Frame> frames;
  FrameReader unknown(100);
  EXPECT_EQ(unknown.feed(frame_bytes({.kind = static_cast<FrameKind>(99)}, ""), frames).code(),
            Code::kMismatch);
  FrameReader zero(100);
  EXPECT_FALSE(zero.feed(frame_bytes({.kind = static_cast<FrameKind>(0)}, ""), frames).is_ok());
  FrameReader large(100);
  EXPECT_FALSE(large.feed(frame_bytes({.kind = FrameKind::kDown}, std::string(101, 'x')), frames).is_ok());
  FrameReader text(100);
  EXPECT_FALSE(text.feed(frame_bytes({.kind = FrameKind::kFail}, std::string(kMaxFrameText + 1, 'x')), frames)
                   .is_ok());
  EXPECT_TRUE(frames.empty());
}

TEST(FrameTest, AFailureHasACodeOfOursAndAText) {
  for (const uint32_t code : {0u, 12u, 13u, 0xffffffffu}) {
    Frame frame;
    frame.header.code = code;
    EXPECT_EQ(frame.failure().code(), Code::kInternal);
    EXPECT_FALSE(frame.failure().text().empty());
  }
}

}  // namespace
}  // namespace tutti
