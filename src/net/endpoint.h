// Endpoint: an address and port that a rank listens at, and which of this host's addresses to name to others.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

struct Endpoint {
  enum class Family : uint8_t { kIpv4 = 4, kIpv6 = 6 };

  Family family = Family::kIpv4;
  std::array<std::byte, 16> address{};  ///< network order; IPv4 uses the first 4
  uint32_t scope = 0;                   ///< interface index of a link-local IPv6 address; 0: none
  uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
  bool is_link_local() const;
  /// "10.0.0.1:4000", "[fe80::1%eth0]:4000".
  std::string text() const;
  /// Fills `storage`; returns the length that connect() and bind() want.
  socklen_t to_sockaddr(sockaddr_storage& storage) const;
  /// Errors: kInvalidArgument: neither IPv4 nor IPv6. An IPv4 address mapped into IPv6 becomes IPv4.
  static Result<Endpoint> from_sockaddr(const sockaddr* address);
};

/// A host by name or address, and a port.
struct HostPort {
  std::string host;  ///< without brackets; may carry a scope ("fe80::1%eth0")
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
  std::string text() const;
};

/// "host:port", "10.0.0.1:4000", "[::1]:4000". Errors: kInvalidArgument naming the text.
Result<HostPort> parse_host_port(std::string_view text);

/// The addresses of a host. Blocks as long as the name service does. Errors: kSystemError (the name is not
/// known, for now or for ever), naming the host and the reason.
Result<std::vector<Endpoint>> resolve(const HostPort& where);

/// One address of an interface of this host.
struct InterfaceAddress {
  std::string interface;
  Endpoint endpoint;  ///< port 0
  bool is_loopback = false;
};

/// The addresses of all interfaces that are up. Errors: kSystemError.
Result<std::vector<InterfaceAddress>> list_interface_addresses();

/// Which of `all` serve, best first: global addresses before link-local ones. `filter` as in
/// Config::socket_ifname; when empty, loopback and docker interfaces serve only where nothing else does.
/// Pure. Errors: kInvalidArgument naming filter and interfaces when none fits.
Result<std::vector<Endpoint>> select_addresses(const std::vector<InterfaceAddress>& all,
                                               std::string_view filter);

/// Whether an interface that is up serves by `filter`. Errors: as select_addresses.
Status check_interfaces(std::string_view filter);

struct ListenOptions {
  std::string interfaces;   ///< Config::socket_ifname
  uint16_t port_first = 0;  ///< 0: any free port
  uint16_t port_last = 0;
  /// For messages: what gave the ports, and so what to change when they are taken.
  std::string ports_from = "TUTTI_PORT_RANGE";
  /// Take the first port of the range that is free, so that others can guess it; else processes that start
  /// together begin at different ones.
  bool lowest_first = false;
};

/// A socket that listens, and where others reach it.
struct Listener {
  FileDescriptor socket;            ///< non-blocking
  std::vector<Endpoint> endpoints;  ///< with the port; best first
};

/// Listens on all addresses of this host, on one port. Errors: kInvalidArgument (interfaces), kSystemError
/// naming the port or the range whose ports are all taken.
Result<Listener> listen_at(const ListenOptions& options);

/// Room for the endpoints of one listener in a message or a unique id.
inline constexpr size_t kPackedEndpointsBytes = 64;
using PackedEndpoints = std::array<std::byte, kPackedEndpointsBytes>;

/// As many of `endpoints`, best first, as fit: at most 3 of IPv6 and 2 of IPv4 together. All have one port.
PackedEndpoints pack_endpoints(std::span<const Endpoint> endpoints);
/// Errors: kInvalidArgument when the bytes are not packed endpoints. Link-local addresses come without scope.
Result<std::vector<Endpoint>> unpack_endpoints(std::span<const std::byte, kPackedEndpointsBytes> packed);

/// A link-local address of another host is reached through one of our interfaces, nobody knows which: each
/// such endpoint is replaced by one for every interface of `own` that has link-local addresses.
std::vector<Endpoint> with_scopes(std::vector<Endpoint> endpoints, const std::vector<InterfaceAddress>& own);

}  // namespace tutti
