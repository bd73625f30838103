// Goal: a rank finds the right port and GID without a variable.
#include "transports/rdma/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/rdma/provider/control.h"
#include "transports/rdma/errors.h"

namespace tutti::rdma {
namespace {

constexpr Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kGlobal = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr Gid kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};

TEST(DeviceTest, TheGidIsRoutableAndAnAddressOfItsInterface) {
  const GidEntry version_1{.gid = kMapped, .index = 0, .is_interface_address = true};
  const GidEntry link_local{.gid = kLinkLocal, .index = 1, .is_routable = true};
  const GidEntry stale{.gid = kMapped, .index = 2, .is_routable = true};
  const GidEntry global{.gid = kGlobal, .index = 3, .is_routable = true, .is_interface_address = true};
  const GidEntry best{.gid = kMapped, .index = 4, .is_routable = true, .is_interface_address = true};
  std::vector<GidEntry> entries = {version_1, link_local, stale, global, best};
  for (const uint32_t expected : {4u, 3u, 2u, 1u, 0u}) {
    ASSERT_NE(choose_gid(entries, -1), nullptr);
    EXPECT_EQ(choose_gid(entries, -1)->index, expected);
    entries.pop_back();
  }
  EXPECT_EQ(choose_gid(entries, -1), nullptr);
  EXPECT_EQ(choose_gid({version_1, best}, 0)->index, 0u);
  EXPECT_EQ(choose_gid({version_1, best}, 9), nullptr);
}

TEST(DeviceTest, FiltersNameDevicesAndPortsAsNcclDoes) {
  EXPECT_TRUE(filter_names("", "mlx5_0", 1));
  EXPECT_TRUE(filter_names("mlx5", "mlx5_0", 1));
  EXPECT_FALSE(filter_names("mlx5_1,mlx5_2", "mlx5_0", 1));
  EXPECT_TRUE(filter_names("mlx5_0:1", "mlx5_0", 1));
  EXPECT_FALSE(filter_names("mlx5_0:2", "mlx5_0", 1));
  EXPECT_TRUE(filter_names("=mlx5_1", "mlx5_1", 1));
  EXPECT_FALSE(filter_names("=mlx5_1", "mlx5_10", 1));
  EXPECT_FALSE(filter_names("^mlx5_1", "mlx5_1", 1));
  EXPECT_TRUE(filter_names("^=mlx5_1", "mlx5_10", 1));
  EXPECT_FALSE(filter_names(",", "mlx5_0", 1));
}

TEST(DeviceTest, PortsThatAreUpAreFoundWithTheirGid) {
  test::fake_verbs::reset(1);
  const auto verbs = Verbs::find();
  ASSERT_TRUE(verbs.is_ok()) << verbs.status().text();
  std::string why;
  {
    const Ports found = find_ports(**verbs, {}, why);
    ASSERT_EQ(found.ports.size(), 2u) << why;
    EXPECT_EQ(describe(found.ports[0].address), "fake0 port 1, GID 127.0.0.1");
    EXPECT_EQ(found.ports[0].gid_index, 3u) << "RoCE v2";
    EXPECT_EQ(found.ports[0].address.mbit_per_s, 100'000u);
  }
  test::fake_verbs::set_port(0, false);
  EXPECT_EQ(find_ports(**verbs, {}, why).ports.size(), 1u);
  EXPECT_EQ(why, "fake0 port 1 is down");
  why.clear();
  EXPECT_TRUE(find_ports(**verbs, {.filter = "mlx"}, why).ports.empty());
  EXPECT_NE(why.find("TUTTI_IB_HCA"), std::string::npos) << why;
  why.clear();
  EXPECT_TRUE(find_ports(**verbs, {.filter = "fake1", .gid_index = 9}, why).ports.empty());
  EXPECT_EQ(why, "fake1 port 1 has no GID at index 9");
  test::fake_verbs::set_port(0, true);
  EXPECT_EQ(test::fake_verbs::seen().open_objects, 0u);
}

/// Folders of the fake devices as in /sys/class/infiniband: "device" leads to the PCI device.
class DeviceFolders {
 public:
  DeviceFolders() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-rdma-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~DeviceFolders() { std::filesystem::remove_all(root_); }
  /// `card`: of which the device is a virtual function; empty: it is a card itself.
  void add(uint32_t device, const std::string& address, const std::string& card = "") {
    const auto pci = root_ / address;
    const auto folder = root_ / std::to_string(device);
    std::filesystem::create_directories(pci);
    std::filesystem::create_directories(folder);
    if (!card.empty()) std::filesystem::create_symlink("../" + card, pci / "physfn");
    std::filesystem::create_symlink("../" + address, folder / "device");
    test::fake_verbs::set_folder(device, folder);
  }

 private:
  std::filesystem::path root_;
};

TEST(DeviceTest, ThePortsOfNearCardsComeFirst) {
  test::fake_verbs::reset(1);
  DeviceFolders folders;
  folders.add(0, "0000:17:00.0");
  folders.add(1, "0000:b1:00.2", "0000:b1:00.0");
  const auto verbs = Verbs::find();
  std::vector<std::string> asked;
  const auto order_cards = [&](std::span<const std::string> addresses) {
    asked.assign(addresses.begin(), addresses.end());
    return std::vector<CardUse>{{.card = 1, .is_near = true, .distance = "PIX"},
                                {.card = 0, .is_near = false, .distance = "SYS"}};
  };
  std::string why;
  const Ports found = find_ports(**verbs, {.filter = "", .order_cards = order_cards}, why);
  EXPECT_THAT(asked, testing::ElementsAre("0000:17:00.0", "0000:b1:00.0"));
  ASSERT_EQ(found.ports.size(), 2u) << why;
  EXPECT_EQ(found.ports[0].address.device, "fake1");
  EXPECT_EQ(found.ports[0].distance, "PIX");
  EXPECT_TRUE(found.ports[0].address.is_near);
  EXPECT_EQ(found.ports[1].address.device, "fake0");
  EXPECT_FALSE(found.ports[1].address.is_near);
}

// A card of a tenth of the speed would hold up what is spread over both.
TEST(DeviceTest, SlowPortsCountAsFarOnes) {
  test::fake_verbs::reset(1);
  test::fake_verbs::set_width(0, 1);
  const auto verbs = Verbs::find();
  const auto order_cards = [](std::span<const std::string>) -> std::vector<CardUse> {
    ADD_FAILURE() << "there is nothing to choose";
    return {};
  };
  std::string why;
  const Ports found = find_ports(**verbs, {.filter = "", .order_cards = order_cards}, why);
  ASSERT_EQ(found.ports.size(), 2u) << why;
  EXPECT_EQ(found.ports[0].address.device, "fake1");
  EXPECT_TRUE(found.ports[0].address.is_near);
  EXPECT_FALSE(found.ports[1].address.is_near);
}

TEST(DeviceTest, EveryStatusAndEventHasWords) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_GENERAL_ERR; ++status)
    EXPECT_GT(describe_completion(static_cast<ibv_wc_status>(status)).size(), 20u);
  EXPECT_NE(describe_completion(IBV_WC_RETRY_EXC_ERR).find("UDP port 4791"), std::string::npos);
  EXPECT_NE(describe_event(IBV_EVENT_PORT_ERR).find("went down"), std::string::npos);
  EXPECT_TRUE(ends_connections(IBV_EVENT_DEVICE_FATAL));
  EXPECT_FALSE(ends_connections(IBV_EVENT_PORT_ERR));
}

}  // namespace
}  // namespace tutti::rdma
