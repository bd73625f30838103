// The calls that NCCL 2.31 and 2.32 added: collectives with a configuration, encryption, CFT teams.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "plugins/nccl/nccl_device.h"
#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

// Goal: the eight collectives with a configuration do what the plain ones do, also without one.
TEST(NcclConfiguredTest, CollectivesMoveAndReduce) {
  EXPECT_EQ(
      run_nccl(
          mixed_or_threads(3),
          [](NcclRank& rank) {
            ncclCollConfig_t usual = NCCL_COLLCONFIG_INITIALIZER;
            usual.minCTAs = 2;
            usual.maxCTAs = 8;
            usual.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
            usual.algSelection = "ring";
            usual.forceAlgSelection = 0;
            usual.userProfilerTag = 7;
            // The struct of 2.31 ends before the last field.
            usual.size = offsetof(ncclCollConfig_t, launchCompletionEvent);
            for (const ncclCollConfig_t* config : {static_cast<const ncclCollConfig_t*>(nullptr),
                                                   static_cast<const ncclCollConfig_t*>(&usual)}) {
              const int32_t own = rank.rank() + 1;
              const std::array<int32_t, 3> row{10 * own, 10 * own + 1, 10 * own + 2};
              const std::array<int32_t, 3> all{1, 2, 3};
              int32_t one = 0;
              std::array<int32_t, 3> three{};
              ncclComm_t comm = rank.comm;
              rank.expect_ok(ncclAllReduceConfig(&own, &one, 1, ncclInt32, ncclSum, comm, nullptr, config),
                             "all_reduce");
              rank.expect_true(one == 6, "all_reduce");
              rank.expect_ok(ncclReduceConfig(&own, &one, 1, ncclInt32, ncclMax, 1, comm, nullptr, config),
                             "reduce");
              rank.expect_true(rank.rank() != 1 || one == 3, "reduce");
              rank.expect_ok(ncclBroadcastConfig(&own, &one, 1, ncclInt32, 2, comm, nullptr, config),
                             "broadcast");
              rank.expect_true(one == 3, "broadcast");
              rank.expect_ok(ncclAllGatherConfig(&own, three.data(), 1, ncclInt32, comm, nullptr, config),
                             "all_gather");
              rank.expect_true(three == all, "all_gather");
              rank.expect_ok(
                  ncclReduceScatterConfig(row.data(), &one, 1, ncclInt32, ncclSum, comm, nullptr, config),
                  "reduce_scatter");
              rank.expect_true(one == 60 + 3 * rank.rank(), "reduce_scatter");
              rank.expect_ok(
                  ncclAlltoAllConfig(row.data(), three.data(), 1, ncclInt32, comm, nullptr, config),
                  "all_to_all");
              rank.expect_true(three[2] == 30 + rank.rank(), "all_to_all");
              rank.expect_ok(ncclGatherConfig(&own, three.data(), 1, ncclInt32, 0, comm, nullptr, config),
                             "gather");
              rank.expect_true(rank.rank() != 0 || three == all, "gather");
              rank.expect_ok(ncclScatterConfig(row.data(), &one, 1, ncclInt32, 0, comm, nullptr, config),
                             "scatter");
              rank.expect_true(one == 10 + rank.rank(), "scatter");
            }
          }),
      "");
}

// Goal: a configuration that cannot be right, or cannot be obeyed, is refused by its field's name.
TEST(NcclConfiguredTest, WrongConfigurationsAreNamed) {
  EXPECT_EQ(
      run_nccl(
          std::vector<int>{1},
          [](NcclRank& rank) {
            const auto expect = [&rank](auto&& change, ncclResult_t wanted, const std::string& word) {
              ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
              change(config);
              int32_t value = 5;
              rank.expect(
                  ncclAllReduceConfig(&value, &value, 1, ncclInt32, ncclSum, rank.comm, nullptr, &config),
                  wanted, word);
              rank.expect_text({"ncclAllReduceConfig: ", word}, word);
            };
            using Config = ncclCollConfig_t;
            expect([](Config& c) { c.magic = 0; }, ncclInvalidArgument, "NCCL_COLLCONFIG_INITIALIZER");
            expect([](Config& c) { c.size = 56; }, ncclInvalidArgument, "NCCL_COLLCONFIG_INITIALIZER");
            expect([](Config& c) { c.minCTAs = 0; }, ncclInvalidArgument, "config.minCTAs");
            expect([](Config& c) { c.minCTAs = 9, c.maxCTAs = 8; }, ncclInvalidArgument, "config.maxCTAs");
            expect([](Config& c) { c.CTAPolicy = 4; }, ncclInvalidArgument, "config.CTAPolicy");
            expect([](Config& c) { c.forceAlgSelection = 2; }, ncclInvalidArgument, "forceAlgSelection");
            expect([](Config& c) { c.algSelection = "ring"; }, ncclInvalidArgument,
                   "config.algSelection is \"ring\"");
            expect([](Config& c) { std::memset(&c.launchCompletionEvent, 1, sizeof(void*)); },
                   ncclInvalidUsage, "launchCompletionEvent");
            // In a group the refusal spoils the group, as any failed call does.
            ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
            config.algSelection = "tree";
            int32_t value = 5;
            rank.expect_ok(ncclGroupStart(), "group");
            rank.expect(ncclBroadcastConfig(&value, &value, 1, ncclInt32, 0, rank.comm, nullptr, &config),
                        ncclInvalidArgument, "in a group");
            rank.expect(ncclGroupEnd(), ncclInvalidArgument, "the group");
            rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rank.comm, nullptr),
                           "afterwards");
          }),
      "");
}

// Goal: encryption is refused with what to do instead; asking for none is right.
TEST(NcclConfiguredTest, EncryptionNamesTheSetting) {
  EXPECT_EQ(run_nccl(std::vector<int>{1},
                     [](NcclRank& rank) {
                       ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
                       rank.expect_ok(ncclSetEncryption(&config), "none");
                       config.mode = NCCL_ENCRYPTION_MODE_PSK;
                       config.psk = "0123456789abcdef0123456789abcdef";
                       rank.expect(ncclSetEncryption(&config), ncclInvalidUsage, "a key");
                       rank.expect_text({"ncclSetEncryption", "TUTTI_TLS=1"}, "a key");
                       config.mode = 9;
                       rank.expect(ncclSetEncryption(&config), ncclInvalidArgument, "mode");
                       config.magic = 0;
                       rank.expect(ncclSetEncryption(&config), ncclInvalidArgument, "magic");
                       rank.expect(ncclSetEncryption(nullptr), ncclInvalidArgument, "NULL");
                     }),
            "");
}

// Goal: a rank is alone in its CFT team, and the other calls of CFT say that there is no device API.
TEST(NcclConfiguredTest, CftIsKnownByName) {
  EXPECT_EQ(run_nccl(mixed_or_threads(3),
                     [](NcclRank& rank) {
                       rank.expect_true(ncclTeamCft(rank.comm).nRanks == 1, "flat");
                       rank.expect_true(ncclTeamCftMultimem(rank.comm).nRanks == 1, "multimem");
                       const ncclTeam_t outer = ncclTeamCft(rank.comm, NCCL_CFT_TEAM_HIER_LSA);
                       rank.expect_true(outer.nRanks == 3 && outer.rank == rank.rank(), "hierarchy");
                       ncclCftLeId endpoint = 0;
                       size_t offset = 0;
                       rank.expect(ncclGetCftDeviceLeInfo(nullptr, 0, 0, outer, &endpoint, &offset),
                                   ncclInvalidUsage, "endpoint");
                       rank.expect_text({"ncclGetCftDeviceLeInfo", "device API"}, "endpoint");
                       rank.expect(ncclGetMultimemDeviceLeInfo(nullptr, 0, &endpoint, &offset),
                                   ncclInvalidUsage, "endpoint");
                       rank.expect(ncclGetPeerDeviceLeInfo(nullptr, 0, 0, &endpoint, &offset),
                                   ncclInvalidUsage, "endpoint");
                     }),
            "");
}

}  // namespace
}  // namespace tutti::test
