// Goal: what a peer sends over the socket is what encode() makes, or an error.
#include "transports/rdma/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace tutti::rdma {
namespace {

TEST(ControlTest, MessagesArriveWholeInAnyPieces) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ControlSocket reader{FileDescriptor(ends[0])};
  const FileDescriptor writer(ends[1]);
  std::vector<std::byte> payload(kPieceBytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  const Control sent{
      .kind = ControlKind::kPiece, .index = 2, .turn = 9, .word = 0x1234, .bytes = kPieceBytes};
  const auto head = encode(sent);
  std::vector<std::byte> wire(head.begin(), head.end());
  wire.insert(wire.end(), payload.begin(), payload.end());
  Control control;
  std::span<const std::byte> got;
  for (size_t cut : {size_t{1}, kControlBytes - 1, kControlBytes, kControlBytes + 5, wire.size()}) {
    ASSERT_EQ(write(writer.get(), wire.data(), cut), static_cast<ssize_t>(cut));
    if (cut < wire.size()) {
      ASSERT_EQ(*reader.next(control, got), ControlSocket::Input::kNothing);
      ASSERT_EQ(write(writer.get(), wire.data() + cut, wire.size() - cut),
                static_cast<ssize_t>(wire.size() - cut));
    }
    ASSERT_EQ(*reader.next(control, got), ControlSocket::Input::kMessage);
    EXPECT_EQ(control, sent);
    EXPECT_TRUE(std::ranges::equal(got, payload));
  }
  shutdown(writer.get(), SHUT_RDWR);
  EXPECT_EQ(*reader.next(control, got), ControlSocket::Input::kEnd);
}

// A socket that always had a piece left to write kept all bytes of the call in memory.
TEST(ControlTest, WrittenPiecesNeedNoMemory) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const int least = 4096;
  ASSERT_EQ(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
  ControlSocket writer{FileDescriptor(ends[0])};
  const FileDescriptor reader(ends[1]);
  const std::vector<std::byte> payload(kPieceBytes);
  std::vector<std::byte> got(kPieceBytes);
  for (int piece = 0; piece < 2048; ++piece) {
    writer.send({.kind = ControlKind::kPiece}, payload);
    while (writer.unsent_bytes() > 2 * kPieceBytes) {
      ASSERT_GT(recv(reader.get(), got.data(), got.size(), 0), 0);
      writer.flush();
    }
    ASSERT_TRUE(piece < 2 || writer.has_unsent());
  }
  EXPECT_LT(writer.held_bytes(), 1u << 20) << "of 8 MiB";
}

TEST(ControlTest, AnyBytesAreAMessageOrAnError) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = encode(Control{.kind = ControlKind::kResume, .index = 1, .turn = 3, .bytes = kResumeBytes});
    for (uint64_t changes = random() % 4; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto control = decode_control(bytes);
    if (control) {
      EXPECT_LT(control->index, kMostRails);
      EXPECT_LE(control->bytes, kPieceBytes);
    }
  }
}

TEST(ControlTest, AResumeArrivesAsItWasSentOrIsRefused) {
  const Resume resume{.sent = 0xffffff, .received = 7, .usable_rails = 5, .has_lost_rail = true};
  const auto bytes = encode(resume);
  const auto decoded = decode_resume(bytes);
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(*decoded, resume);
  EXPECT_FALSE(decode_resume(std::span(bytes).first(8)).is_ok());
  for (const Resume& wrong :
       {Resume{.sent = 0x1000000}, Resume{.received = 0x1000000}, Resume{.usable_rails = 1u << kMostRails}})
    EXPECT_FALSE(decode_resume(encode(wrong)).is_ok());
}

}  // namespace
}  // namespace tutti::rdma
