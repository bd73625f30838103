#include "net/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "core/tcp_socket.h"

namespace tutti {
namespace {

constexpr int kBacklog = 4096;

struct NameFilter {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string_view> names;

  bool matches(std::string_view interface) const {
    const bool listed = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return exact ? interface == name : interface.starts_with(name);
    });
    return listed != exclude;
  }
};

NameFilter parse_filter(std::string_view text) {
  NameFilter filter;
  if (text.starts_with('^')) {
    filter.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    filter.exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(','));
    if (!name.empty()) filter.names.push_back(name);
    text.remove_prefix(std::min(text.size(), name.size() + 1));
  }
  return filter;
}

/// On failure, `error` is the reason.
FileDescriptor open_listener(int family, uint16_t port, int& error) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  Endpoint any{.port = port};
  if (family == AF_INET6) any.family = Endpoint::Family::kIpv6;
  sockaddr_storage storage;
  const socklen_t length = any.to_sockaddr(storage);
  if (socket.is_open()) begin_unpaced(socket.get());
  const bool listens =
      socket.is_open() && setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      (family != AF_INET6 || setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0 &&
      listen(socket.get(), kBacklog) == 0;
  error = listens ? 0 : errno;
  return listens ? std::move(socket) : FileDescriptor();
}

/// One socket for both families, if the kernel has IPv6.
FileDescriptor open_listener(uint16_t port, int& error) {
  FileDescriptor socket = open_listener(AF_INET6, port, error);
  if (socket.is_open() || error == EADDRINUSE) return socket;
  return open_listener(AF_INET, port, error);
}

Result<uint16_t> port_of(const FileDescriptor& socket) {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return system_error("getsockname", errno);
  }
  auto endpoint = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
  TUTTI_TRY(endpoint.status());
  return endpoint->port;
}

size_t address_bytes(Endpoint::Family family) {
  return family == Endpoint::Family::kIpv4 ? 4 : 16;
}

/// Self-assigned: it seldom leads to another host.
bool is_makeshift(const Endpoint& endpoint) {
  const bool is_ipv4 = endpoint.family == Endpoint::Family::kIpv4;
  return endpoint.is_link_local() ||
         (is_ipv4 && endpoint.address[0] == std::byte{169} && endpoint.address[1] == std::byte{254});
}

}  // namespace

bool Endpoint::is_link_local() const {
  return family == Family::kIpv6 && address[0] == std::byte{0xfe} &&
         (address[1] & std::byte{0xc0}) == std::byte{0x80};
}

std::string Endpoint::text() const {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  const bool ipv4 = family == Family::kIpv4;
  inet_ntop(ipv4 ? AF_INET : AF_INET6, address.data(), buffer.data(), buffer.size());
  if (ipv4) return format("%s:%u", buffer.data(), port);
  std::string zone;
  if (scope != 0) {
    std::array<char, IF_NAMESIZE> name{};
    zone = "%" +
           (if_indextoname(scope, name.data()) != nullptr ? std::string(name.data()) : std::to_string(scope));
  }
  return format("[%s%s]:%u", buffer.data(), zone.c_str(), port);
}

socklen_t Endpoint::to_sockaddr(sockaddr_storage& storage) const {
  storage = {};
  if (family == Family::kIpv4) {
    auto* ipv4 = reinterpret_cast<sockaddr_in*>(&storage);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
    std::memcpy(&ipv4->sin_addr, address.data(), sizeof(ipv4->sin_addr));
    return sizeof(*ipv4);
  }
  auto* ipv6 = reinterpret_cast<sockaddr_in6*>(&storage);
  ipv6->sin6_family = AF_INET6;
  ipv6->sin6_port = htons(port);
  ipv6->sin6_scope_id = scope;
  std::memcpy(&ipv6->sin6_addr, address.data(), sizeof(ipv6->sin6_addr));
  return sizeof(*ipv6);
}

Result<Endpoint> Endpoint::from_sockaddr(const sockaddr* address) {
  Endpoint endpoint;
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    std::memcpy(endpoint.address.data(), &ipv4->sin_addr, sizeof(ipv4->sin_addr));
    endpoint.port = ntohs(ipv4->sin_port);
    return endpoint;
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
    endpoint.port = ntohs(ipv6->sin6_port);
    const auto* bytes = reinterpret_cast<const std::byte*>(&ipv6->sin6_addr);
    if (IN6_IS_ADDR_V4MAPPED(&ipv6->sin6_addr)) {
      std::copy_n(bytes + 12, 4, endpoint.address.begin());
      return endpoint;
    }
    endpoint.family = Family::kIpv6;
    std::copy_n(bytes, 16, endpoint.address.begin());
    endpoint.scope = ipv6->sin6_scope_id;
    return endpoint;
  }
  return Status(Code::kInvalidArgument, "a socket address is neither of IPv4 nor of IPv6");
}

std::string HostPort::text() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return format(ipv6 ? "[%s]:%u" : "%s:%u", host.c_str(), port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort result;
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find("]:");
    if (end != text.npos) {
      host = text.substr(1, end - 1);
      port = text.substr(end + 2);
    }
  } else if (const size_t colon = text.rfind(':'); colon != text.npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto [stop, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  const bool legal = error == std::errc() && stop == port.data() + port.size() && result.port > 0 &&
                     !host.empty() && (text.starts_with('[') || host.find(':') == host.npos) &&
                     host.find('\0') == host.npos;
  if (!legal) {
    return Status(
        Code::kInvalidArgument,
        format("\"%.*s\" is not an address: it must be HOST:PORT or [IPV6]:PORT, with a port from 1 to "
               "65535",
               static_cast<int>(std::min<size_t>(text.size(), 200)), text.data()));
  }
  result.host = host;
  return result;
}

Result<std::vector<Endpoint>> resolve(const HostPort& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(where.host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    const std::string reason = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
    return Status(Code::kSystemError,
                  format("the name %s is not known: %s", where.host.c_str(), reason.c_str()));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    auto endpoint = Endpoint::from_sockaddr(entry->ai_addr);
    if (!endpoint) continue;
    endpoint->port = where.port;
    if (std::find(endpoints.begin(), endpoints.end(), *endpoint) == endpoints.end())
      endpoints.push_back(*endpoint);
  }
  if (endpoints.empty())
    return Status(Code::kSystemError, format("the name %s has no address", where.host.c_str()));
  return endpoints;
}

Result<std::vector<InterfaceAddress>> list_interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return system_error("listing the network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    auto endpoint = Endpoint::from_sockaddr(entry->ifa_addr);
    if (!endpoint) continue;
    all.push_back({entry->ifa_name, *endpoint, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return all;
}

Result<std::vector<Endpoint>> select_addresses(const std::vector<InterfaceAddress>& all,
                                               std::string_view filter) {
  const auto collect = [&](auto&& serves) {
    std::vector<Endpoint> chosen;
    for (const InterfaceAddress& one : all) {
      if (serves(one)) chosen.push_back(one.endpoint);
    }
    std::stable_partition(chosen.begin(), chosen.end(), [](const Endpoint& e) { return !is_makeshift(e); });
    return chosen;
  };
  std::vector<Endpoint> chosen;
  if (!filter.empty()) {
    chosen = collect(
        [names = parse_filter(filter)](const InterfaceAddress& one) { return names.matches(one.interface); });
  } else {
    chosen = collect(
        [](const InterfaceAddress& one) { return !one.is_loopback && !one.interface.starts_with("docker"); });
    if (chosen.empty()) chosen = collect([](const InterfaceAddress&) { return true; });
  }
  if (!chosen.empty()) return chosen;
  if (filter.empty()) return Status(Code::kSystemError, "this host has no network interface that is up");
  std::string names;
  for (const InterfaceAddress& one : all) {
    if (names.find(one.interface) == names.npos) add_to_list(names, one.interface);
  }
  return Status(
      Code::kInvalidArgument,
      format("no network interface that is up fits the filter \"%.*s\" (of TUTTI_SOCKET_IFNAME, else "
             "NCCL_SOCKET_IFNAME or, with \"=\" before it, GLOO_SOCKET_IFNAME); there are: %s",
             static_cast<int>(filter.size()), filter.data(), names.c_str()));
}

Status check_interfaces(std::string_view filter) {
  if (filter.empty()) return Status::ok();
  auto all = list_interface_addresses();
  TUTTI_TRY(all.status());
  return select_addresses(*all, filter).status();
}

Result<Listener> listen_at(const ListenOptions& options) {
  auto all = list_interface_addresses();
  TUTTI_TRY(all.status());
  auto addresses = select_addresses(*all, options.interfaces);
  TUTTI_TRY(addresses.status());
  const uint32_t count = uint32_t{options.port_last} - options.port_first + 1;
  const uint32_t start = options.lowest_first ? 0 : static_cast<uint32_t>(getpid()) % count;
  FileDescriptor socket;
  int error = EADDRINUSE;
  for (uint32_t i = 0; i < count && error == EADDRINUSE; ++i) {
    socket = open_listener(static_cast<uint16_t>(options.port_first + (start + i) % count), error);
  }
  if (error == EADDRINUSE && options.port_first != 0) {
    const std::string ports =
        count == 1 ? format("port %u is taken", options.port_first)
                   : format("no port from %u to %u is free", options.port_first, options.port_last);
    return Status(
        Code::kSystemError,
        format("%s: %s says to listen there; name another or a larger range (each rank listens at up to "
               "three ports, an id at one), or end what listens there",
               ports.c_str(), options.ports_from.c_str()));
  }
  if (error != 0) return system_error("listening for other ranks over TCP", error);
  auto port = port_of(socket);
  TUTTI_TRY(port.status());
  Listener listener{std::move(socket), std::move(*addresses)};
  for (Endpoint& endpoint : listener.endpoints) endpoint.port = *port;
  return listener;
}

// Layout: port (2 bytes), then family (1 byte: 4 or 6) and address of each endpoint, then zeros.
PackedEndpoints pack_endpoints(std::span<const Endpoint> endpoints) {
  PackedEndpoints packed{};
  if (endpoints.empty()) return packed;
  packed[0] = static_cast<std::byte>(endpoints[0].port);
  packed[1] = static_cast<std::byte>(endpoints[0].port >> 8);
  size_t at = 2;
  std::array<size_t, 2> room = {2, 3};  // of IPv4 and IPv6, so that neither crowds out the other
  for (const Endpoint& endpoint : endpoints) {
    size_t& left = room[endpoint.family == Endpoint::Family::kIpv6 ? 1 : 0];
    if (left == 0) continue;
    --left;
    packed[at++] = static_cast<std::byte>(endpoint.family);
    std::copy_n(endpoint.address.begin(), address_bytes(endpoint.family),
                packed.begin() + static_cast<std::ptrdiff_t>(at));
    at += address_bytes(endpoint.family);
  }
  return packed;
}
static_assert(2 + 2 * (1 + 4) + 3 * (1 + 16) <= kPackedEndpointsBytes);

Result<std::vector<Endpoint>> unpack_endpoints(std::span<const std::byte, kPackedEndpointsBytes> packed) {
  std::vector<Endpoint> endpoints;
  const auto port =
      static_cast<uint16_t>(std::to_integer<unsigned>(packed[0]) | std::to_integer<unsigned>(packed[1]) << 8);
  for (size_t at = 2; at < packed.size() && packed[at] != std::byte{0};) {
    Endpoint endpoint{.family = static_cast<Endpoint::Family>(packed[at++]), .port = port};
    const bool known =
        endpoint.family == Endpoint::Family::kIpv4 || endpoint.family == Endpoint::Family::kIpv6;
    if (!known || at + address_bytes(endpoint.family) > packed.size() || port == 0) {
      return Status(Code::kInvalidArgument, "the addresses in the unique id, or of a rank, are damaged");
    }
    std::copy_n(packed.begin() + static_cast<std::ptrdiff_t>(at), address_bytes(endpoint.family),
                endpoint.address.begin());
    at += address_bytes(endpoint.family);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

std::vector<Endpoint> with_scopes(std::vector<Endpoint> endpoints, const std::vector<InterfaceAddress>& own) {
  std::vector<Endpoint> result;
  for (Endpoint& endpoint : endpoints) {
    if (!endpoint.is_link_local() || endpoint.scope != 0) {
      result.push_back(endpoint);
      continue;
    }
    for (const InterfaceAddress& one : own) {
      if (!one.endpoint.is_link_local()) continue;
      endpoint.scope = one.endpoint.scope;
      result.push_back(endpoint);
    }
  }
  return result;
}

}  // namespace tutti
