// Goal: what a peer sends before a connection is either what encode() makes or an error.
#include "transports/rdma/hello.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti::rdma {
namespace {

PortAddress a_port() {
  return {.device = "mlx5_0",
          .port = 1,
          .is_ethernet = true,
          .mtu = 5,
          .lid = 7,
          .mbit_per_s = 100'000,
          .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}};
}

Hello a_hello() {
  return {.rank = 3,
          .epoch = 9,
          .queue_pair = 4711,
          .first_packet = 0xabcdef,
          .receive_count = 32,
          .piece_bytes = 4096,
          .port = a_port()};
}

constexpr HelloLimits kLimits{.rank = 3, .epoch = 9, .piece_bytes = 4096, .is_ethernet = true};

TEST(HelloTest, ArrivesAsItWasSent) {
  const auto hello = decode_hello(encode(a_hello()), kLimits);
  ASSERT_TRUE(hello.is_ok()) << hello.status().text();
  EXPECT_EQ(*hello, a_hello());
}

TEST(HelloTest, WhatDoesNotFitIsAnErrorThatSaysBothValues) {
  HelloLimits other = kLimits;
  other.rank = 4;
  const auto hello = decode_hello(encode(a_hello()), other);
  ASSERT_FALSE(hello.is_ok());
  EXPECT_EQ(hello.status().code(), Code::kPeerLost);
  EXPECT_NE(hello.status().text().find("rank 3 (here: 4)"), std::string::npos) << hello.status().text();
  for (const HelloLimits& wrong :
       {HelloLimits{3, 8, 4096, true}, HelloLimits{3, 9, 8192, true}, HelloLimits{3, 9, 4096, false}})
    EXPECT_FALSE(decode_hello(encode(a_hello()), wrong).is_ok());
}

TEST(HelloTest, AnyBytesAreAHelloOrAnError) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = encode(a_hello());
    for (uint64_t changes = random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto hello = decode_hello(bytes, kLimits);
    if (hello) {
      EXPECT_GE(hello->receive_count, 4u);
      EXPECT_LE(hello->port.mtu, 5);
      EXPECT_LT(hello->port.device.size(), kNameBytes);
    }
  }
}

TEST(HelloTest, PortsArriveAsTheyWereSent) {
  EXPECT_TRUE(encode_ports({}).empty());
  EXPECT_TRUE(decode_ports({})->empty());
  std::vector<PortAddress> ports = {a_port(), a_port()};
  ports[1].device = "mlx5_1";
  ports[1].is_near = false;
  const auto bytes = encode_ports(ports);
  const auto decoded = decode_ports(bytes);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().text();
  EXPECT_EQ(*decoded, ports);
}

TEST(HelloTest, PortsOfAnotherLengthOrCountAreRefused) {
  const PortAddress port = a_port();
  auto bytes = encode_ports(std::span(&port, 1));
  for (size_t length = 1; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_ports(std::span(bytes).first(length)).is_ok());
  std::mt19937_64 random(2);
  for (int i = 0; i < 20'000; ++i) {
    auto changed = bytes;
    changed[random() % changed.size()] = static_cast<std::byte>(random());
    (void)decode_ports(changed);
  }
  bytes.push_back({});
  EXPECT_FALSE(decode_ports(bytes).is_ok());
}

TEST(HelloTest, AMappedAddressReadsAsIPv4) {
  EXPECT_EQ(describe(a_port()), "mlx5_0 port 1, GID 10.0.0.1");
  EXPECT_EQ(gid_text({0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), "fe80::1");
}

}  // namespace
}  // namespace tutti::rdma
