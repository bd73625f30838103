// Goal: launches stay on the device where there surely is room for them, and leave elsewhere. Method: what
// leaves needs a wait of its stream, which this fake driver refuses: so a call succeeds where its launch
// stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_rank.h"
#include "tests/cuda/cuda_place.h"
#include "tests/cuda/numbers.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// More than all blocks of the device can share.
constexpr size_t kLong = 90'000;

using Setting = std::pair<std::string, std::string>;

/// Runs `body` on ranks that are threads, on a device of `blocks` blocks, one a multiprocessor.
std::string run_in(int ranks, int blocks, const std::function<void(Rank&)>& body,
                   const Setting& setting = {"NONE", ""}) {
  ClusterOptions options = on_device(ranks, blocks);
  options.create = false;
  options.environment.emplace_back("FAKE_CUDA_FAIL", "cuStreamWaitValue32:1:999");
  options.environment.push_back(setting);
  return run_cluster(options, body);
}

/// A sum on the rank's communicator.
tutti_result_t sum_long(Rank& rank, tutti_comm_t* comm, Order order = Order::kStream) {
  const auto place = CudaPlace::open(rank, 0, order);
  if (place == nullptr) return TUTTI_SYSTEM_ERROR;
  Numbers numbers(*place, kLong);
  rank.expect_true(numbers.count_from(1), "input");
  return place->run([&](tutti_stream_t stream) { return sum(numbers, numbers, comm, stream); });
}

void expect_to_stay(Rank& rank) {
  if (rank.renew()) rank.expect_ok(sum_long(rank, rank.comm), "a call that stays");
}

void expect_to_leave(Rank& rank) {
  if (!rank.renew()) return;
  rank.expect(sum_long(rank, rank.comm), TUTTI_SYSTEM_ERROR, "a call that leaves");
  rank.expect_text({"cuStreamWaitValue32"}, "a call that leaves");
  (void)tutti_comm_destroy(std::exchange(rank.comm, nullptr));
}

// Long calls have as many stripes as the ranks have blocks, one of the device left over.
TEST(RoomTest, LongCallsStayWhereverRanksHaveBlocks) {
  for (const auto& [ranks, blocks] : {std::pair(2, 4), std::pair(2, 16), std::pair(3, 9), std::pair(3, 4)})
    EXPECT_EQ(run_in(ranks, blocks, expect_to_stay), "") << ranks << " ranks, " << blocks << " blocks";
}

TEST(RoomTest, LaunchesLeaveADeviceWithoutFreeBlocks) {
  EXPECT_EQ(run_in(2, 1, expect_to_leave), "");
}

// Under MPS the processes on a device share its blocks.
TEST(RoomTest, OnADeviceThatProcessesShareByMpsTheyStay) {
  EXPECT_EQ(run_in(2, 16, expect_to_stay, {"FAKE_CUDA_MPS", "1"}), "");
  EXPECT_EQ(run_in(1, 16, expect_to_stay, {"FAKE_CUDA_MPS", "1"}), "");
}

TEST(RoomTest, CommunicatorsOfOneRankTakeNone) {
  EXPECT_EQ(run_in(2, 16,
                   [](Rank& rank) {
                     tutti_comm_t* alone[4] = {};
                     for (tutti_comm_t*& comm : alone) {
                       tutti_unique_id_t id;
                       tutti_config_t config = rank.config();
                       config.device = TUTTI_CUDA_DEVICE(0);
                       rank.expect_ok(tutti_get_unique_id(&id), "id");
                       rank.expect_ok(tutti_comm_create(&comm, 1, id, 0, &config), "a rank alone");
                       rank.expect_ok(sum_long(rank, comm), "its call");
                     }
                     rank.meet();
                     expect_to_stay(rank);
                     for (tutti_comm_t* comm : alone) rank.expect_ok(tutti_comm_destroy(comm), "destroy");
                   }),
            "");
}

// Where other communicators have most blocks of the device, a new one gets some.
TEST(RoomTest, ALateCommunicatorGetsFewBlocksRatherThanNone) {
  BlockLender lender(43);
  EXPECT_EQ(lender.lend_some(32), 32u);
  EXPECT_EQ(lender.lend_some(32), 8u) << "of 11";
  EXPECT_EQ(lender.lend_some(32), 2u) << "of 3";
  EXPECT_EQ(lender.lend_some(2), 1u);
  EXPECT_EQ(lender.lend_some(32), 0u);
  lender.give_back(43);
  EXPECT_EQ(lender.lend_some(16), 16u);
  EXPECT_EQ(lender.lend_some(16, 20), 4u) << "other processes keep 20 of 27";
  EXPECT_EQ(blocks_of_others(132, 2, 1), 66u);
  EXPECT_EQ(blocks_of_others(132, 8, 8), 0u);
}

// A training job has a dozen communicators on a GPU; none may be left to launches that leave.
TEST(RoomTest, ManyCommunicatorsOfAProcessGetBlocks) {
  BlockLender lender(132);
  std::vector<uint32_t> lent;
  while (lender.left() > 0) lent.push_back(lender.lend_some(std::min(32u, lender.modest_share())));
  ASSERT_GE(lent.size(), 12u);
  EXPECT_EQ(lent[0], 32u);
  EXPECT_EQ(lent[1], 32u);
}

// Ranks that failed and may still be needed by graphs are kept for good, but not the room that they had.
TEST(RoomTest, RanksThatAreKeptForGoodGiveTheirsBack) {
  EXPECT_EQ(run_in(2, 16,
                   [](Rank& rank) {
                     for (int i = 0; i < 3; ++i) {
                       if (!rank.renew()) return;
                       rank.expect_ok(sum_long(rank, rank.comm, Order::kGraph), "a graph's call");
                       rank.meet();
                       rank.expect_ok(tutti_comm_abort(std::exchange(rank.comm, nullptr)), "abort");
                       rank.meet();
                     }
                     expect_to_stay(rank);
                   }),
            "");
}

}  // namespace
}  // namespace tutti::test
