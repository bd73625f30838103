// Goal: whatever a peer sends over the socket becomes messages or an error. Method: random inputs of the fuzz
// target (tests/fuzz), so that every run of the tests tries some.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/rdma/hostile_peer.h"
#include "tests/rdma/provider/control.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

TEST(HostilePeerTest, AnyBytesAreMessagesOrAnError) {
  testing::internal::CaptureStderr();
  for (uint64_t seed = 1; seed <= runs_of_scope(200, 20'000); ++seed) {
    fake_verbs::reset(seed);
    std::mt19937_64 random(seed);
    std::vector<uint8_t> input(random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random() % 8 == 0 ? random() : random() % 8);
    survive_hostile_peer(input);
  }
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(fake_verbs::seen().misuse, "");
  EXPECT_EQ(fake_verbs::seen().open_objects, 0u);
}

}  // namespace
}  // namespace tutti::test
