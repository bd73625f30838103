// Goal: UCX serves a communicator only when it is asked for by name or knows a fabric; what is missing is
// told.
#include <gtest/gtest.h>

#include <string>

#include "tests/transports/mesh.h"
#include "transports/ucx/errors.h"
#include "transports/ucx/ucp.h"
#include "transports/ucx/ucx_transport.h"

namespace tutti::ucx {
namespace {

bool is_installed() {
  return Ucp::find().is_ok();
}

TEST(LibraryTest, WithoutANameAndAFabricItJoinsNobody) {
  const auto transport = open_ucx_transport({.rank_count = 2});
  ASSERT_TRUE(transport.is_ok()) << transport.status().text();
  if (!(*transport)->address().empty()) GTEST_SKIP() << "this machine has a fabric that UCX knows";
  const RankDescription a{.rank = 0, .host = 1, .machine = 1};
  const RankDescription b{.rank = 1, .host = 2, .machine = 2};
  EXPECT_FALSE((*transport)->reach(a, b));
}

TEST(LibraryTest, AskedForByNameItJoinsAnyTwoRanksOrSaysWhatIsMissing) {
  Config config;
  config.transport = "ucx";
  const auto transport = open_ucx_transport({.rank_count = 2, .config = config});
  if (!is_installed()) {
    ASSERT_FALSE(transport.is_ok());
    EXPECT_EQ(transport.status().code(), Code::kUnsupported);
    EXPECT_NE(transport.status().text().find("libucx0"), std::string::npos) << transport.status().text();
    GTEST_SKIP() << "UCX is not installed (package libucx0): " << transport.status().text();
  }
  ASSERT_TRUE(transport.is_ok()) << transport.status().text();
  const auto address = (*transport)->address();
  ASSERT_FALSE(address.empty());
  const RankDescription a{.rank = 0, .host = 1, .machine = 1, .address = address};
  const RankDescription b{.rank = 1, .host = 2, .machine = 2, .address = address};
  EXPECT_TRUE((*transport)->reach(a, b));
  EXPECT_FALSE((*transport)->reach(a, {.rank = 1, .host = 2, .machine = 2}));
}

// Nothing encrypts UCX: with TLS it must not carry data.
TEST(LibraryTest, WithTlsItIsRefused) {
  Config config;
  config.tls = true;
  const auto transport = open_ucx_transport({.rank_count = 2, .config = config});
  ASSERT_TRUE(transport.is_ok()) << transport.status().text();
  EXPECT_TRUE((*transport)->address().empty());
  config.transport = "ucx";
  const auto forced = open_ucx_transport({.rank_count = 2, .config = config});
  ASSERT_FALSE(forced.is_ok());
  EXPECT_EQ(forced.status().code(), Code::kUnsupported);
  EXPECT_NE(forced.status().text().find("TUTTI_TLS"), std::string::npos) << forced.status().text();
}

// Regression: over shared memory UCX warned of requests that were left when a peer had been killed.
// Method: rank 1 takes no turn, while rank 0 has sent more than UCX passes on without the peer.
TEST(LibraryTest, ATransportThatEndsWithMessagesUnderWayLeavesUcxNothingToWarnOf) {
  for (const test::TransportCase& one : test::transport_cases()) {
    if (one.name != "ucx") continue;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    {
      test::Mesh mesh(one, {.shape = {.slots = 8, .slot_bytes = 262144}});
      SendLink& link = mesh.side(0, 1).send(0);
      for (uint32_t i = 0; i < 8; ++i) link.commit(9, 262144);
      for (int turn = 0; turn < 1000; ++turn) mesh.transport(0).progress();
      EXPECT_FALSE(mesh.side(0, 1).connection().drained());
      mesh.destroy(0);
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    return;
  }
  GTEST_SKIP() << "UCX is not installed (package libucx0)";
}

TEST(LibraryTest, EveryStatusIsASentenceWithUcxsOwnWords) {
  Ucp ucp;
  ucp.status_string = [](ucs_status_t) -> const char* { return "its own words"; };
  for (int status = UCS_ERR_LAST; status <= UCS_OK; ++status) {
    const std::string text = describe(ucp, static_cast<ucs_status_t>(status));
    EXPECT_NE(text.find("its own words"), std::string::npos);
  }
  EXPECT_NE(describe(ucp, UCS_ERR_ENDPOINT_TIMEOUT).find("UCX_NET_DEVICES"), std::string::npos);
  EXPECT_EQ(ucx_error(ucp, "connecting", UCS_ERR_NO_MEMORY).code(), Code::kOutOfMemory);
}

}  // namespace
}  // namespace tutti::ucx
