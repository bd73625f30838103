#include "topology/loopback.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/tcp_socket.h"

namespace tutti::topology {

Result<std::array<FileDescriptor, 2>> connect_loopback() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.is_open()) begin_unpaced(listener.get());
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!listener.is_open() || bind(listener.get(), any, sizeof address) != 0 ||
      listen(listener.get(), 1) != 0 || getsockname(listener.get(), any, &bytes) != 0)
    return system_error("listening on the loopback interface", errno);
  std::array<FileDescriptor, 2> ends;
  ends[0] = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (ends[0].is_open()) begin_unpaced(ends[0].get());
  if (!ends[0].is_open() || connect(ends[0].get(), any, sizeof address) != 0)
    return system_error("connecting over the loopback interface", errno);
  ends[1] = FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!ends[1].is_open()) return system_error("accepting on the loopback interface", errno);
  const int on = 1;
  for (const FileDescriptor& end : ends) setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return ends;
}

}  // namespace tutti::topology
