#include "core/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"

namespace tutti {
namespace {

constexpr std::string_view kUnpaced = "reno";  // every kernel has Reno, and every user may set Reno

using Ip = std::array<std::byte, sizeof(in6_addr)>;

/// The IP address that getsockname(2) or getpeername(2) gives; empty for a socket without IP.
std::optional<Ip> ip_of(int socket, int (*name_of)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {};
  const auto padded = [](const auto& ip) {
    Ip all{};
    std::memcpy(all.data(), &ip, sizeof(ip));
    return all;
  };
  if (address.ss_family == AF_INET) return padded(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.ss_family == AF_INET6) return padded(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return {};
}

/// The congestion control of a new socket. The name is so short that the string allocates nothing.
std::string system_choice() {
  const FileDescriptor fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char name[16] = {};
  socklen_t bytes = sizeof(name) - 1;
  if (!fresh.is_open() || getsockopt(fresh.get(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0) return {};
  return name;
}

// A failure is ignored: it only costs time.
void set_congestion_control(int socket, std::string_view name) {
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

}  // namespace

bool set_option(int socket, int level, int name, int value) {
  return ::setsockopt(socket, level, name, &value, sizeof(value)) == 0;
}

bool loops_back(int socket) {
  const std::optional<Ip> own = ip_of(socket, ::getsockname);
  return own && own == ip_of(socket, ::getpeername);
}

void begin_unpaced(int socket) {
  set_congestion_control(socket, kUnpaced);
}

void choose_congestion_control(int socket) {
  if (loops_back(socket)) return;
  if (const std::string choice = system_choice(); !choice.empty()) set_congestion_control(socket, choice);
}

/// The first probe after half of the time, then three more. In whole seconds.
bool set_keepalive(int socket, uint64_t keepalive_ms) {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) return false;
  if (domain != AF_INET && domain != AF_INET6) return true;
  if (keepalive_ms == 0) return set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 0);
  constexpr uint64_t kMostSeconds = 32767;  // the kernel's limit
  const int seconds = static_cast<int>(std::clamp<uint64_t>((keepalive_ms + 999) / 1000, 2, kMostSeconds));
  return set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1) &&
         set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, (seconds + 1) / 2) &&
         set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 6)) &&
         set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace tutti
