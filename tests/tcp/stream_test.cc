// Goal: a socket is set up for where its peer is. Method: both ends of sockets on this machine, and what the
// kernel says about them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "tests/tcp/connection_pair.h"

namespace tutti::test {
namespace {

bool sends_at_once(const tcp::Stream& stream) {
  int on = 0;
  socklen_t bytes = sizeof(on);
  EXPECT_EQ(::getsockopt(stream.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, &bytes), 0);
  return on != 0;
}

TEST(StreamTest, SmallWritesAreHeldBackWhenAsked) {
  const StreamPair pair = connect_streams(Wire::kLoopback, 1);
  tcp::Stream& stream = *pair.ends[0][0];
  EXPECT_TRUE(sends_at_once(stream));
  stream.hold_small(true);
  EXPECT_FALSE(sends_at_once(stream));
  stream.hold_small(false);
  EXPECT_TRUE(sends_at_once(stream));
}

TEST(StreamTest, WhatIsHeldBackComesOnceTheReaderAcknowledges) {
  const StreamPair pair = connect_streams(Wire::kLoopback, 1);
  tcp::Stream& writer = *pair.ends[0][0];
  tcp::Stream& reader = *pair.ends[1][0];
  constexpr int kWrites = 100;
  writer.hold_small(true);
  std::byte byte{7};
  const iovec piece{&byte, 1};
  for (int i = 0; i < kWrites; ++i) ASSERT_EQ(writer.write(&piece, 1, false), 1);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  for (int got = 0; got < kWrites;) {
    ASSERT_LT(now_ns(), deadline_ns) << got << " of " << kWrites;
    if (reader.read(&piece, 1) == 1) ++got;
    reader.acknowledge();
  }
}

TEST(StreamTest, AUnixSocketHasNothingOfThis) {
  const StreamPair pair = connect_streams(Wire::kUnix, 1);
  pair.ends[0][0]->hold_small(true);
  std::byte byte{7};
  const iovec piece{&byte, 1};
  ASSERT_EQ(pair.ends[0][0]->write(&piece, 1, false), 1);
  EXPECT_EQ(pair.ends[1][0]->read(&piece, 1), 1);
  pair.ends[1][0]->acknowledge();
}

}  // namespace
}  // namespace tutti::test
