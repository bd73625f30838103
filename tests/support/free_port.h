// Ports for tests that name one before they listen there.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "core/file_descriptor.h"

namespace tutti::test {

/// A port of the loopback address that nobody has now; 0: none was found. It lies below the ports that the
/// kernel gives to others by itself, which would take it before the test does.
inline int free_port() {
  constexpr int kFirst = 10'000;
  constexpr int kCount = 20'000;
  static std::atomic<int> next = static_cast<int>(getpid() * 7919L % kCount);
  for (int trial = 0; trial < kCount; ++trial) {
    const int port = kFirst + next++ % kCount;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
  return 0;
}

}  // namespace tutti::test
