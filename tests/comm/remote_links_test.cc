// Links to ranks of other hosts: how their sockets are set up, and how they end.
#include "comm/remote_links.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

namespace tutti::test {
namespace {

constexpr RingShape kShape{.slots = 8, .slot_bytes = 1024};

std::unique_ptr<RemoteLinks> links_to(FileDescriptor socket, uint64_t silence_ms) {
  std::vector<RemoteLinks::Peer> peers(1);
  peers[0].rank = 1;
  peers[0].sockets.push_back(std::move(socket));
  auto links =
      RemoteLinks::open(std::move(peers), {.rank_count = 2, .shape = kShape, .silence_ms = silence_ms});
  EXPECT_TRUE(links.status().is_ok()) << links.status().text();
  return std::move(*links);
}

// Destroying a communicator waited for its whole deadline for a peer that was known to be lost meanwhile.
TEST(RemoteLinksTest, TheEndIsNotWaitedForInVain) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor reader(ends[1]);
  const auto links = links_to(FileDescriptor(ends[0]), 0);
  SendLink& link = links->send_link(1, 0);
  link.commit(0, 100);
  while (links->undrained_peer()) links->advance();
  ASSERT_GT(links->unsent_bytes(1), 0u) << "nobody reads it";
  int looks = 0;
  links->finish(UINT64_MAX, [&] { return ++looks == 3; });
  EXPECT_EQ(looks, 3);
}

}  // namespace
}  // namespace tutti::test
