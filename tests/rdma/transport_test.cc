// Goal: RDMA is used where it can be, without a variable; elsewhere the log says why not. Settings reach the
// devices.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <string>

#include "tests/rdma/provider/control.h"
#include "tests/transports/mesh.h"
#include "transports/rdma/rdma_transport.h"
#include "transports/registry.h"

namespace tutti::test {
namespace {

TransportOptions with(const InfinibandConfig& infiniband) {
  TransportOptions options{.rank = 3, .rank_count = 4};
  options.config.infiniband = infiniband;
  return options;
}

/// Opens the transport; the log of that. It must have no address.
std::string log_of_refusal(const TransportOptions& options) {
  testing::internal::CaptureStderr();
  const auto transport = rdma::open_rdma_transport(options);
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(transport.is_ok());
  EXPECT_TRUE(transport && (*transport)->address().empty());
  TransportOptions forced = options;
  forced.config.transport = "rdma";
  const auto refused = rdma::open_rdma_transport(forced);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  return log;
}

class RdmaTransportTest : public testing::Test {
 protected:
  void SetUp() override { fake_verbs::reset(1); }
  void TearDown() override { EXPECT_EQ(fake_verbs::seen().open_objects, 0u); }
};

TEST_F(RdmaTransportTest, IsCheaperThanTcpBetweenMachinesThatHaveDevices) {
  std::vector<std::optional<LinkCost>> costs;
  for (const TransportEntry& entry : transports()) {
    const auto transport = entry.open(with({}));
    ASSERT_TRUE(transport.is_ok()) << transport.status().text();
    const auto address = (*transport)->address();
    const RankDescription here{.rank = 0, .host = 1, .machine = 1, .process = 1, .address = address};
    const RankDescription there{.rank = 1, .host = 2, .machine = 2, .process = 2, .address = address};
    costs.push_back((*transport)->reach(here, there));
    EXPECT_EQ(costs.back().has_value(), (*transport)->reach(there, here).has_value());
  }
  const auto chosen = choose_transport(costs);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_STREQ(transports()[*chosen].name, "rdma");
}

TEST_F(RdmaTransportTest, TheLogSaysWhyRdmaIsNotUsed) {
  EXPECT_NE(log_of_refusal(with({.devices = "mlx5"})).find("rank 3 does not use RDMA"), std::string::npos);
  EXPECT_NE(log_of_refusal(with({.devices = "", .gid_index = 77})).find("no GID at index 77"),
            std::string::npos);
  TransportOptions secure = with({});
  secure.config.tls = true;
  EXPECT_NE(log_of_refusal(secure).find("TUTTI_TLS is set"), std::string::npos);
  EXPECT_EQ(log_of_refusal(with({.is_disabled = true, .devices = ""})), "") << "the user knows";
  for (const uint32_t device : {0u, 1u}) fake_verbs::set_port(device, false);
  const std::string log = log_of_refusal(with({}));
  EXPECT_NE(log.find("fake0 port 1 is down, fake1 port 1 is down"), std::string::npos) << log;
}

TEST_F(RdmaTransportTest, SettingsReachTheQueuePairs) {
  for (const TransportCase& one : transport_cases()) {
    if (one.name != "rdma") continue;
    TransportCase changed = one;
    changed.config.infiniband = {
        .devices = "fake1", .gid_index = 1, .service_level = 5, .traffic_class = 106, .timeout = 12};
    fake_verbs::set_mtu(1, IBV_MTU_1024);
    const Mesh mesh(changed, {});
    const fake_verbs::Path path = fake_verbs::seen().path;
    EXPECT_EQ(path.service_level, 5u);
    EXPECT_EQ(path.traffic_class, 106u);
    EXPECT_EQ(path.gid_index, 1u);
    EXPECT_EQ(path.timeout, 12u);
    EXPECT_EQ(path.mtu, uint32_t{IBV_MTU_1024});
    // Regression: Soft-RoCE tries for ever at 7, and the loss of the peer's port was never told.
    EXPECT_EQ(path.tries, 6u);
  }
}

}  // namespace
}  // namespace tutti::test
