// Goal: connections on this machine are never paced, those to others have the system's congestion control.
// Method: sockets of both kinds, and what the kernel says about them.
#include "core/tcp_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/file_descriptor.h"

namespace tutti::test {
namespace {

FileDescriptor new_socket() {
  return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

std::string control_of(const FileDescriptor& socket) {
  std::array<char, 16> name{};
  socklen_t bytes = name.size();
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes), 0);
  return name.data();
}

TEST(TcpSocketTest, BothEndsOnThisMachineBeginAndStayUnpaced) {
  const FileDescriptor listener = new_socket();
  const FileDescriptor connected = new_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  begin_unpaced(listener.get());
  begin_unpaced(connected.get());
  ASSERT_EQ(bind(listener.get(), generic, bytes), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), generic, &bytes), 0);
  ASSERT_EQ(connect(connected.get(), generic, bytes), 0);
  const FileDescriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const FileDescriptor* end : {&connected, &accepted}) {
    EXPECT_EQ(control_of(*end), "reno") << "before anything is chosen: else it has been paced already";
    EXPECT_TRUE(loops_back(end->get()));
    choose_congestion_control(end->get());
    EXPECT_EQ(control_of(*end), "reno");
  }
}

TEST(TcpSocketTest, OthersGetTheChoiceOfTheSystem) {
  const std::string choice = control_of(new_socket());
  const FileDescriptor socket = new_socket();
  begin_unpaced(socket.get());
  EXPECT_EQ(control_of(socket), "reno");
  EXPECT_FALSE(loops_back(socket.get()));
  choose_congestion_control(socket.get());
  EXPECT_EQ(control_of(socket), choice);
}

}  // namespace
}  // namespace tutti::test
