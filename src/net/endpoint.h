// Endpoint: where a rank listens, and which addresses to give to other hosts.
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
  /// Returns the length for connect() and bind().
  socklen_t to_sockaddr(sockaddr_storage& storage) const;
  /// Errors: kInvalidArgument if neither IPv4 nor IPv6. An IPv4 address mapped into IPv6 becomes IPv4.
  static Result<Endpoint> from_sockaddr(const sockaddr* address);
};

struct HostPort {
  std::string host;  ///< without brackets; may have a scope ("fe80::1%eth0")
  uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
  std::string text() const;
};

/// "host:port", "10.0.0.1:4000", "[::1]:4000". Errors: kInvalidArgument, with the text.
Result<HostPort> parse_host_port(std::string_view text);

/// Blocks as long as the name service. Errors: kSystemError (the name is unknown, for now or forever), with
/// host and reason.
Result<std::vector<Endpoint>> resolve(const HostPort& where);

struct InterfaceAddress {
  std::string interface;
  Endpoint endpoint;  ///< port 0
  bool is_loopback = false;
};

/// Lists the addresses of interfaces that are up. Errors: kSystemError.
Result<std::vector<InterfaceAddress>> list_interface_addresses();

/// The usable addresses of `all`, global before link-local. `filter` is Config::socket_ifname. Without it,
/// loopback and docker interfaces count only if there is no other. Pure. Errors: kInvalidArgument if none
/// fits, with filter and interfaces.
Result<std::vector<Endpoint>> select_addresses(const std::vector<InterfaceAddress>& all,
                                               std::string_view filter);

/// Whether any interface fits. Errors: as select_addresses.
Status check_interfaces(std::string_view filter);

struct ListenOptions {
  std::string interfaces;   ///< Config::socket_ifname
  uint16_t port_first = 0;  ///< 0: any free port
  uint16_t port_last = 0;
  /// The setting that gave the ports, for error messages.
  std::string ports_from = "TUTTI_PORT_RANGE";
  /// Takes the lowest free port, so that others can guess it. Otherwise processes that start together begin
  /// at different ports.
  bool lowest_first = false;
};

struct Listener {
  FileDescriptor socket;            ///< non-blocking
  std::vector<Endpoint> endpoints;  ///< with the port; best first
};

/// Listens on all addresses of this host, on one port. Errors: kInvalidArgument (interfaces); kSystemError,
/// with the taken port or range.
Result<Listener> listen_at(const ListenOptions& options);

/// Room for one listener's endpoints in a message or a unique id.
inline constexpr size_t kPackedEndpointsBytes = 64;
using PackedEndpoints = std::array<std::byte, kPackedEndpointsBytes>;

/// Packs as many as fit, best first: at most 3 of IPv6 and 2 of IPv4. All have the same port.
PackedEndpoints pack_endpoints(std::span<const Endpoint> endpoints);
/// Errors: kInvalidArgument. Link-local addresses come without a scope.
Result<std::vector<Endpoint>> unpack_endpoints(std::span<const std::byte, kPackedEndpointsBytes> packed);

/// Nobody knows through which interface of this host another host's link-local address is reachable. Replaces
/// each such endpoint by one per interface of `own` with link-local addresses.
std::vector<Endpoint> with_scopes(std::vector<Endpoint> endpoints, const std::vector<InterfaceAddress>& own);

}  // namespace tutti
