// What two ranks tell each other before they have an RDMA connection: the ports of a rank (its address, to
// all ranks), and the end of one connection (over the proved socket of the pair). No verbs: bytes come from
// peers, and a fuzz target reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace tutti::rdma {

using Gid = std::array<uint8_t, 16>;
inline constexpr size_t kMostPorts = 8;  ///< of one rank; further ports are not used
inline constexpr size_t kNameBytes = 16;

/// "::ffff:10.0.0.1" as "10.0.0.1", else the form of IPv6.
std::string gid_text(const Gid& gid);

/// One port as a peer sees it.
struct PortAddress {
  std::string device;        ///< at most kNameBytes - 1 characters
  uint8_t port = 0;          ///< from 1
  bool is_ethernet = false;  ///< RoCE; else InfiniBand
  uint8_t mtu = 0;           ///< as enum ibv_mtu: 1 (256 bytes) to 5 (4096)
  uint16_t lid = 0;          ///< InfiniBand only
  uint32_t mbit_per_s = 0;
  Gid gid{};
  bool is_near = true;  ///< the rank has no port that is nearer and as fast

  friend bool operator==(const PortAddress&, const PortAddress&) = default;
};

/// For messages: "mlx5_0 port 1, GID 10.0.0.1".
std::string describe(const PortAddress& port);

std::vector<std::byte> encode_ports(std::span<const PortAddress> ports);
/// Errors: kPeerLost for bytes that encode_ports does not make.
Result<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes);

/// One end of a connection.
struct Hello {
  uint32_t rank = 0;
  uint16_t epoch = 0;  ///< of the communicator
  uint32_t queue_pair = 0;
  uint32_t first_packet = 0;   ///< PSN
  uint32_t receive_count = 0;  ///< receives that are always posted
  uint32_t piece_bytes = 0;    ///< of each receive
  PortAddress port = {};

  friend bool operator==(const Hello&, const Hello&) = default;
};
inline constexpr size_t kHelloBytes = 80;

struct HelloLimits {
  uint32_t rank = 0;  ///< that the peer must have
  uint16_t epoch = 0;
  uint32_t piece_bytes = 0;
  bool is_ethernet = false;
};

std::array<std::byte, kHelloBytes> encode(const Hello& hello);
/// Errors: kPeerLost, with what is wrong.
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes, const HelloLimits& limits);

}  // namespace tutti::rdma
