// Goal: everything that a peer sends to set up a UCX connection, and the head of its messages, is what was
// sent, or an error that says what is wrong. Method: round trips, changed bytes, cut bytes.
#include "transports/ucx/wire.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>

#include "transports/ucx/worker.h"

namespace tutti::ucx {
namespace {

constexpr Hello kHello{.rank = 3, .epoch = 8, .connection = 5, .token = 0x123456789abcdef0};
constexpr HelloLimits kLimits{.rank = 3, .epoch = 8};

template <typename Bytes>
void change_some(Bytes& bytes, std::mt19937_64& random) {
  for (uint64_t changes = random() % 4; changes > 0; --changes)
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
}

TEST(WireTest, WhatWasSentIsRead) {
  const auto hello = decode_hello(encode(kHello), kLimits);
  ASSERT_TRUE(hello.is_ok()) << hello.status().text();
  EXPECT_EQ(*hello, kHello);
  for (const auto kind : {Note::Kind::kUsable, Note::Kind::kEnd, Note::Kind::kSeen}) {
    const Note note{.kind = kind, .frames = 1ull << 40};
    const auto read = decode_note(encode(note));
    ASSERT_TRUE(read.is_ok()) << read.status().text();
    EXPECT_EQ(*read, note);
  }
  for (const auto kind : {MessageHead::Kind::kFrame, MessageHead::Kind::kReady, MessageHead::Kind::kProbe}) {
    std::array<std::byte, kMessageHeadBytes> bytes{};
    const MessageHead head{.token = 7, .connection = 9, .kind = kind, .received = 0xabcdef};
    encode(head, bytes.data());
    const auto read = decode_message(bytes);
    ASSERT_TRUE(read.is_ok()) << read.status().text();
    EXPECT_EQ(*read, head);
  }
  const Address address{.fabrics = fabric::kVerbs | fabric::kEfa, .worker = {std::byte{1}, std::byte{2}}};
  const auto read = decode_address(encode(address));
  ASSERT_TRUE(read.is_ok()) << read.status().text();
  EXPECT_EQ(read->fabrics, address.fabrics);
  EXPECT_EQ(read->worker, address.worker);
  EXPECT_TRUE(encode(Address{.fabrics = 1}).empty());
}

TEST(WireTest, WhatDoesNotFitIsAnErrorThatSaysBothValues) {
  const auto other_rank = decode_hello(encode(kHello), {.rank = 4, .epoch = 8});
  ASSERT_FALSE(other_rank.is_ok());
  EXPECT_EQ(other_rank.status().code(), Code::kPeerLost);
  EXPECT_NE(other_rank.status().text().find("rank 3 (here: 4)"), std::string::npos)
      << other_rank.status().text();
  EXPECT_FALSE(decode_hello(encode(kHello), {.rank = 3, .epoch = 9}).is_ok());
}

TEST(WireTest, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto hello = encode(kHello);
    change_some(hello, random);
    if (const auto read = decode_hello(hello, kLimits)) {
      EXPECT_EQ(encode(*read), hello);
    }
    auto note = encode(Note{.kind = Note::Kind::kEnd, .frames = 5});
    change_some(note, random);
    if (const auto read = decode_note(note)) {
      EXPECT_EQ(encode(*read), note);
    }
    std::array<std::byte, kMessageHeadBytes> head{};
    encode(MessageHead{.token = 7, .connection = 9}, head.data());
    change_some(head, random);
    if (const auto read = decode_message(head)) {
      EXPECT_LE(read->kind, MessageHead::Kind::kProbe);
    }
    auto address = encode(Address{.fabrics = 1, .worker = std::vector<std::byte>(random() % 100 + 1)});
    change_some(address, random);
    if (const auto read = decode_address(address)) {
      EXPECT_EQ(read->worker.size() + 16, address.size());
    }
  }
}

TEST(WireTest, EveryOtherLengthIsRefused) {
  const auto address = encode(Address{.fabrics = 1, .worker = std::vector<std::byte>(20)});
  for (size_t length = 0; length < address.size(); ++length)
    EXPECT_FALSE(decode_address(std::span(address).first(length)).is_ok());
  const std::array<std::byte, 100> zeros{};
  for (size_t length = 0; length < zeros.size(); ++length)
    EXPECT_EQ(decode_message(std::span(zeros).first(length)).is_ok(), length == kMessageHeadBytes);
}

// The two texts are those of ucp_context_print_info of UCX 1.13.
TEST(FabricsTest, OnlyResourcesOfFabricsCount) {
  EXPECT_EQ(fabrics_in("#     component 4  :  ib\n#            md 1  :  component 1  tcp \n"
                       "#      resource 0  :  md 0  dev 0  flags -- self/memory0\n"
                       "#      resource 1  :  md 1  dev 1  flags -- tcp/lo\n"
                       "#      resource 3  :  md 2  dev 3  flags -- posix/memory\n"),
            0u);
  EXPECT_EQ(fabrics_in("#      resource 2  :  md 1  dev 2  flags -- rc_verbs/mlx5_0:1\n"
                       "#      resource 3  :  md 1  dev 2  flags a- ud_verbs/mlx5_0:1\n"),
            fabric::kVerbs);
  EXPECT_EQ(fabrics_in("#      resource 2  :  md 1  dev 2  flags -- srd/rdmap0s6:1"), fabric::kEfa);
}

// Goal: Soft-RoCE is told from hardware. Method: two folders like /sys/class/infiniband, with the links of
// Linux.
TEST(DevicesTest, ADeviceWithoutHardwareIsSoftware) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("devices" + std::to_string(getpid()));
  const auto add = [&](const char* folder, const char* name, const char* place) {
    std::filesystem::create_directories(root / "devices" / place / name);
    std::filesystem::create_directories(root / folder);
    std::filesystem::create_directory_symlink(root / "devices" / place / name, root / folder / name);
  };
  add("hardware", "mlx5_0", "pci0000:00/0000:00:03.0/infiniband");
  add("mixed", "mlx5_0", "pci0000:00/0000:00:04.0/infiniband");
  add("mixed", "rxe0", "virtual/infiniband");
  EXPECT_FALSE(has_software_device(root / "hardware"));
  EXPECT_TRUE(has_software_device(root / "mixed"));
  EXPECT_FALSE(has_software_device(root / "none"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tutti::ucx
