#include "transports/rdma/hello.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::rdma {
namespace {

static_assert(std::endian::native == std::endian::little, "words travel as they lie in memory");

constexpr uint32_t kMagic = 0x61647274;  // "trda"
constexpr uint16_t kVersion = 2;
constexpr uint32_t kMostReceives = 4096;
constexpr uint32_t kMostPacket = 0xffffff;
constexpr uint8_t kLeastMtu = 1;
constexpr uint8_t kMostMtu = 5;

/// As it travels.
struct PortBytes {
  char device[kNameBytes];
  Gid gid;
  uint32_t mbit_per_s;
  uint16_t lid;
  uint8_t port;
  uint8_t mtu;
  uint8_t is_ethernet;
  uint8_t is_near;
  uint8_t zero[6];
};
static_assert(sizeof(PortBytes) == 48);

struct HelloBytes {
  uint32_t magic;
  uint16_t version;
  uint16_t epoch;
  uint32_t rank;
  uint32_t queue_pair;
  uint32_t first_packet;
  uint32_t receive_count;
  uint32_t piece_bytes;
  uint32_t zero;
  PortBytes port;
};
static_assert(sizeof(HelloBytes) == kHelloBytes);

struct PortsHead {
  uint32_t magic;
  uint16_t version;
  uint16_t count;
};

Status wrong(const char* what, uint64_t value, uint64_t expected) {
  return {Code::kPeerLost,
          format("it sent a description of its RDMA port with %s %llu (here: %llu)", what,
                 static_cast<unsigned long long>(value), static_cast<unsigned long long>(expected))};
}

PortBytes to_bytes(const PortAddress& port) {
  PortBytes bytes{};
  std::memcpy(bytes.device, port.device.data(), std::min(port.device.size(), kNameBytes - 1));
  bytes.gid = port.gid;
  bytes.mbit_per_s = port.mbit_per_s;
  bytes.lid = port.lid;
  bytes.port = port.port;
  bytes.mtu = port.mtu;
  bytes.is_ethernet = port.is_ethernet ? 1 : 0;
  bytes.is_near = port.is_near ? 1 : 0;
  return bytes;
}

Result<PortAddress> from_bytes(const PortBytes& bytes) {
  PortAddress port;
  for (size_t i = 0; i < kNameBytes && bytes.device[i] != '\0'; ++i) {
    const char letter = bytes.device[i];
    // The name is printed: no control characters.
    if (letter < '!' || letter > '~' || i + 1 == kNameBytes)
      return wrong("a name with character", static_cast<uint8_t>(letter), '_');
    port.device += letter;
  }
  if (bytes.mtu < kLeastMtu || bytes.mtu > kMostMtu) return wrong("MTU", bytes.mtu, kMostMtu);
  if (bytes.is_ethernet > 1) return wrong("link layer", bytes.is_ethernet, 1);
  if (bytes.is_near > 1) return wrong("distance", bytes.is_near, 1);
  port.port = bytes.port;
  port.is_ethernet = bytes.is_ethernet == 1;
  port.is_near = bytes.is_near == 1;
  port.mtu = bytes.mtu;
  port.lid = bytes.lid;
  port.mbit_per_s = bytes.mbit_per_s;
  port.gid = bytes.gid;
  return port;
}

}  // namespace

std::string gid_text(const Gid& gid) {
  constexpr Gid kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  char text[INET6_ADDRSTRLEN] = "";
  const bool is_mapped = std::equal(gid.begin(), gid.begin() + 12, kMapped.begin());
  if (is_mapped)
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof(text));
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  return text;
}

std::string describe(const PortAddress& port) {
  return format("%s port %u, GID %s", port.device.c_str(), port.port, gid_text(port.gid).c_str());
}

std::vector<std::byte> encode_ports(std::span<const PortAddress> ports) {
  const size_t count = std::min(ports.size(), kMostPorts);
  if (count == 0) return {};
  std::vector<std::byte> bytes(sizeof(PortsHead) + count * sizeof(PortBytes));
  const PortsHead head{.magic = kMagic, .version = kVersion, .count = static_cast<uint16_t>(count)};
  std::memcpy(bytes.data(), &head, sizeof(head));
  for (size_t i = 0; i < count; ++i) {
    const PortBytes port = to_bytes(ports[i]);
    std::memcpy(bytes.data() + sizeof(head) + i * sizeof(port), &port, sizeof(port));
  }
  return bytes;
}

Result<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes) {
  std::vector<PortAddress> ports;
  if (bytes.empty()) return ports;
  PortsHead head{};
  if (bytes.size() < sizeof(head)) return wrong("bytes", bytes.size(), sizeof(head));
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic) return wrong("mark", head.magic, kMagic);
  if (head.version != kVersion) return wrong("version", head.version, kVersion);
  if (head.count == 0 || head.count > kMostPorts) return wrong("ports", head.count, kMostPorts);
  if (bytes.size() != sizeof(head) + head.count * sizeof(PortBytes))
    return wrong("bytes", bytes.size(), sizeof(head) + head.count * sizeof(PortBytes));
  for (size_t i = 0; i < head.count; ++i) {
    PortBytes one{};
    std::memcpy(&one, bytes.data() + sizeof(head) + i * sizeof(one), sizeof(one));
    auto port = from_bytes(one);
    TUTTI_TRY(port.status());
    ports.push_back(std::move(*port));
  }
  return ports;
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  const HelloBytes words{.magic = kMagic,
                         .version = kVersion,
                         .epoch = hello.epoch,
                         .rank = hello.rank,
                         .queue_pair = hello.queue_pair,
                         .first_packet = hello.first_packet,
                         .receive_count = hello.receive_count,
                         .piece_bytes = hello.piece_bytes,
                         .zero = 0,
                         .port = to_bytes(hello.port)};
  std::array<std::byte, kHelloBytes> bytes{};
  std::memcpy(bytes.data(), &words, sizeof(words));
  return bytes;
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes, const HelloLimits& limits) {
  HelloBytes words{};
  std::memcpy(&words, bytes.data(), sizeof(words));
  if (words.magic != kMagic) return wrong("mark", words.magic, kMagic);
  if (words.version != kVersion) return wrong("version", words.version, kVersion);
  if (words.epoch != limits.epoch) return wrong("epoch", words.epoch, limits.epoch);
  if (words.rank != limits.rank) return wrong("rank", words.rank, limits.rank);
  if (words.queue_pair > kMostPacket) return wrong("queue pair", words.queue_pair, kMostPacket);
  if (words.first_packet > kMostPacket) return wrong("packet number", words.first_packet, kMostPacket);
  if (words.receive_count < 4 || words.receive_count > kMostReceives)
    return wrong("receives", words.receive_count, kMostReceives);
  if (words.piece_bytes != limits.piece_bytes)
    return wrong("receives of bytes", words.piece_bytes, limits.piece_bytes);
  auto port = from_bytes(words.port);
  TUTTI_TRY(port.status());
  if (port->is_ethernet != limits.is_ethernet)
    return wrong("link layer", port->is_ethernet ? 1 : 0, limits.is_ethernet ? 1 : 0);
  return Hello{.rank = words.rank,
               .epoch = words.epoch,
               .queue_pair = words.queue_pair,
               .first_packet = words.first_packet,
               .receive_count = words.receive_count,
               .piece_bytes = words.piece_bytes,
               .port = std::move(*port)};
}

}  // namespace tutti::rdma
