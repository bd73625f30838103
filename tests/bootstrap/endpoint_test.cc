// Endpoints: texts, packing into an id, the choice of interfaces, ports.
#include "net/endpoint.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <set>
#include <string>

#include "bootstrap/client.h"

namespace tutti {
namespace {

Endpoint ipv4(const char* address, uint16_t port = 0) {
  Endpoint endpoint{.family = Endpoint::Family::kIpv4, .address = {}, .scope = 0, .port = port};
  inet_pton(AF_INET, address, endpoint.address.data());
  return endpoint;
}
Endpoint ipv6(const char* address, uint16_t port = 0, uint32_t scope = 0) {
  Endpoint endpoint{.family = Endpoint::Family::kIpv6, .address = {}, .scope = scope, .port = port};
  inet_pton(AF_INET6, address, endpoint.address.data());
  return endpoint;
}

TEST(EndpointTest, TextsReadAsUsersWriteThem) {
  EXPECT_EQ(ipv4("10.0.0.1", 4000).text(), "10.0.0.1:4000");
  EXPECT_EQ(ipv6("fd00::2", 80).text(), "[fd00::2]:80");
  EXPECT_EQ(ipv6("fe80::1", 80, 1).text(), "[fe80::1%lo]:80");
  EXPECT_EQ((HostPort{"fd00::2", 80}.text()), "[fd00::2]:80");
  EXPECT_EQ((HostPort{"node7", 80}.text()), "node7:80");
}

TEST(EndpointTest, HostsAndPortsAreParsedOrRefusedByName) {
  const std::vector<std::pair<const char*, HostPort>> good = {
      {"node7:4000", {"node7", 4000}},
      {"10.0.0.1:1", {"10.0.0.1", 1}},
      {"[fd00::2]:65535", {"fd00::2", 65535}},
      {"[fe80::1%eth0]:80", {"fe80::1%eth0", 80}},
  };
  for (const auto& [text, expected] : good) {
    const auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.is_ok()) << text;
    EXPECT_EQ(*parsed, expected) << text;
  }
  for (const char* text : {"", ":", "node7", "node7:", ":80", "node7:0", "node7:65536", "node7:-1",
                           "node7:8o", "fd00::2:80", "[fd00::2]80", "[fd00::2", "[]:80", "node7: 80"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.status().text().find('"' + std::string(text) + '"'), std::string_view::npos);
  }
}

TEST(EndpointTest, SocketAddressesComeBackTheSame) {
  for (const Endpoint& endpoint : {ipv4("10.1.2.3", 99), ipv6("fd00::2", 98), ipv6("fe80::9", 97, 4)}) {
    sockaddr_storage storage;
    const socklen_t length = endpoint.to_sockaddr(storage);
    EXPECT_EQ(length,
              endpoint.family == Endpoint::Family::kIpv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const auto again = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
    ASSERT_TRUE(again.is_ok());
    EXPECT_EQ(*again, endpoint);
  }
  sockaddr_storage mapped;
  ipv6("::ffff:10.1.2.3", 99).to_sockaddr(mapped);
  EXPECT_EQ(*Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&mapped)), ipv4("10.1.2.3", 99));
}

std::vector<InterfaceAddress> machine() {
  return {{"lo", ipv4("127.0.0.1"), true},        {"docker0", ipv4("172.17.0.1"), false},
          {"eth0", ipv6("fe80::1", 0, 2), false}, {"eth0", ipv4("10.0.0.1"), false},
          {"eth0", ipv6("fd00::1"), false},       {"eth10", ipv4("10.0.1.1"), false},
          {"ib0", ipv4("10.0.2.1"), false}};
}

std::set<std::string> chosen(const std::string& filter) {
  std::set<std::string> texts;
  const auto addresses = select_addresses(machine(), filter);
  if (!addresses) return {std::string(addresses.status().text())};
  for (const Endpoint& endpoint : *addresses) texts.insert(endpoint.text());
  return texts;
}

TEST(InterfaceTest, WithoutAFilterLoopbackAndDockerAreLeftOut) {
  const auto addresses = select_addresses(machine(), "");
  ASSERT_TRUE(addresses.is_ok());
  ASSERT_EQ(addresses->size(), 5u);
  EXPECT_EQ(addresses->front(), ipv4("10.0.0.1"));
  EXPECT_TRUE(addresses->back().is_link_local()) << "link-local addresses come last";
  // A machine without a network still has ranks that meet.
  const auto lone = select_addresses({{"lo", ipv4("127.0.0.1"), true}}, "");
  ASSERT_TRUE(lone.is_ok());
  EXPECT_EQ(lone->size(), 1u);
}

// An interface that no network had given an address came first, and other hosts dialled it in vain.
TEST(InterfaceTest, AddressesThatAHostGaveItselfComeLast) {
  const auto addresses = select_addresses({{"usb0", ipv4("169.254.3.1"), false},
                                           {"eth0", ipv4("10.0.0.1"), false},
                                           {"eth0", ipv6("fd00::1"), false}},
                                          "");
  ASSERT_TRUE(addresses.is_ok());
  EXPECT_EQ(*addresses, (std::vector<Endpoint>{ipv4("10.0.0.1"), ipv6("fd00::1"), ipv4("169.254.3.1")}));
}

TEST(InterfaceTest, FiltersArePrefixesNamesOrExclusions) {
  EXPECT_EQ(chosen("eth1"), (std::set<std::string>{"10.0.1.1:0"}));
  EXPECT_EQ(chosen("ib,eth1"), (std::set<std::string>{"10.0.1.1:0", "10.0.2.1:0"}));
  EXPECT_EQ(chosen("=eth0").size(), 3u);
  EXPECT_EQ(chosen("eth").size(), 4u);
  EXPECT_EQ(chosen("^eth"), (std::set<std::string>{"127.0.0.1:0", "172.17.0.1:0", "10.0.2.1:0"}));
  EXPECT_EQ(chosen("^=eth0,lo"), (std::set<std::string>{"172.17.0.1:0", "10.0.1.1:0", "10.0.2.1:0"}));
  const std::string error = *chosen("wlan").begin();
  for (const char* part : {"wlan", "TUTTI_SOCKET_IFNAME", "lo, docker0, eth0", "ib0"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(InterfaceTest, ThisMachineHasAddresses) {
  const auto all = list_interface_addresses();
  ASSERT_TRUE(all.is_ok());
  EXPECT_TRUE(std::any_of(all->begin(), all->end(), [](const auto& one) { return one.is_loopback; }));
}

TEST(PackTest, TheBestAddressesOfBothFamiliesFit) {
  std::vector<Endpoint> all;
  for (const char* address : {"10.0.0.1", "10.0.0.2", "10.0.0.3"}) all.push_back(ipv4(address, 4000));
  for (const char* address : {"fd00::1", "fd00::2", "fd00::3", "fd00::4"}) all.push_back(ipv6(address, 4000));
  const auto again = unpack_endpoints(pack_endpoints(all));
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(*again, (std::vector<Endpoint>{all[0], all[1], all[3], all[4], all[5]}));
  EXPECT_TRUE(unpack_endpoints(pack_endpoints({}))->empty());
}

TEST(PackTest, DamagedBytesAreRefusedOrEndpoints) {
  const std::vector<Endpoint> all = {ipv4("10.0.0.1", 4000), ipv6("fd00::1", 4000)};
  PackedEndpoints packed = pack_endpoints(all);
  packed[2] = std::byte{5};
  EXPECT_FALSE(unpack_endpoints(packed).is_ok());
  packed.fill(std::byte{4});
  EXPECT_FALSE(unpack_endpoints(packed).is_ok()) << "the last address is cut off";
  packed = pack_endpoints(all);
  packed[0] = packed[1] = std::byte{0};
  EXPECT_FALSE(unpack_endpoints(packed).is_ok()) << "port 0";
}

// Goal: the scope of a link-local address is the reader's, not the writer's.
TEST(PackTest, LinkLocalAddressesAreTriedThroughEveryInterface) {
  const std::vector<Endpoint> packed = {ipv4("10.0.0.1", 4000), ipv6("fe80::7", 4000)};
  std::vector<InterfaceAddress> own = machine();
  own.push_back({"ib0", ipv6("fe80::3", 0, 9), false});
  EXPECT_EQ(with_scopes(packed, own),
            (std::vector<Endpoint>{packed[0], ipv6("fe80::7", 4000, 2), ipv6("fe80::7", 4000, 9)}));
}

TEST(ListenTest, APortRangeIsKeptAndItsEndNamed) {
  // A port that is free for now, found by the kernel.
  uint16_t port = 0;
  {
    const auto any = listen_at({.interfaces = "=lo"});
    ASSERT_TRUE(any.is_ok()) << any.status().text();
    port = any->endpoints[0].port;
  }
  const ListenOptions range{.interfaces = "=lo", .port_first = port, .port_last = port};
  const auto first = listen_at(range);
  if (!first) GTEST_SKIP() << "another process took the port meanwhile";
  EXPECT_EQ(first->endpoints[0].port, port);
  const auto second = listen_at(range);
  ASSERT_FALSE(second.is_ok());
  EXPECT_NE(second.status().text().find("TUTTI_PORT_RANGE"), std::string_view::npos)
      << second.status().text();
  EXPECT_NE(second.status().text().find(std::to_string(port)), std::string_view::npos);
}

// Goal: what named the port is what the user is told to change.
TEST(ListenTest, ATakenPortIsBlamedOnWhatNamedIt) {
  const auto any = listen_at({.interfaces = "=lo"});
  ASSERT_TRUE(any.is_ok()) << any.status().text();
  const uint16_t port = any->endpoints[0].port;
  const std::string url = "tutti://localhost:" + std::to_string(port);
  const auto address = bootstrap_address_of_url(url, "a secret of some length", true);
  ASSERT_FALSE(address.is_ok());
  EXPECT_NE(address.status().text().find(url), std::string_view::npos) << address.status().text();
  EXPECT_NE(address.status().text().find("taken"), std::string_view::npos) << address.status().text();
  EXPECT_EQ(address.status().text().find("TUTTI_PORT_RANGE"), std::string_view::npos)
      << address.status().text();
}

TEST(ListenTest, TheLowestFreePortIsTakenWhereOthersMustGuessIt) {
  const auto any = listen_at({.interfaces = "=lo"});
  ASSERT_TRUE(any.is_ok()) << any.status().text();
  const uint16_t port = any->endpoints[0].port;
  if (port > UINT16_MAX - 200) GTEST_SKIP() << "no room above port " << port;
  const auto last = static_cast<uint16_t>(port + 200);
  const ListenOptions range{.interfaces = "=lo", .port_first = port, .port_last = last, .lowest_first = true};
  const auto first = listen_at(range);
  ASSERT_TRUE(first.is_ok()) << first.status().text();
  EXPECT_GT(first->endpoints[0].port, port);
  // Nobody else takes ports one by one.
  EXPECT_LT(first->endpoints[0].port, port + 100);
}

TEST(ResolveTest, AddressesResolveToThemselvesAndUnknownNamesAreNamed) {
  const auto numeric = resolve({"127.0.0.1", 4000});
  ASSERT_TRUE(numeric.is_ok());
  EXPECT_EQ(*numeric, std::vector<Endpoint>{ipv4("127.0.0.1", 4000)});
  const auto unknown = resolve({"no such name", 4000});
  ASSERT_FALSE(unknown.is_ok());
  EXPECT_NE(unknown.status().text().find("no such name"), std::string_view::npos);
}

}  // namespace
}  // namespace tutti
