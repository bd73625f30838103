// Goal: ranks on devices that a switch joins collect and publish, and give the results that all others give;
// where any of them cannot, none does, and everything goes on. Method: four ranks, of one process and of
// several, on the fake driver.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/trial.h"
#include "tests/cuda/cuda_place.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr size_t kLong = 270'000;  ///< more than short calls take

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Runs `body` on ranks each of which is on a device, by turns.
std::string run_on(const std::vector<int>& layout, int devices, const Environment& environment,
                   const std::function<void(Rank&, CudaPlace&)>& body) {
  ClusterOptions options;
  options.layout = layout;
  options.create = false;
  options.seconds = 240;
  options.environment = {{"FAKE_CUDA_SMS", "2"},
                         {"FAKE_CUDA_THREADS", "4"},
                         {"FAKE_CUDA_DEVICES", std::to_string(devices)},
                         {"FAKE_CUDA_MULTICAST", "1"}};
  options.environment.insert(options.environment.end(), environment.begin(), environment.end());
  return run_cluster(options, [&](Rank& rank) {
    tutti_config_t config = rank.config();
    const int device = rank.rank() % devices;
    config.device = TUTTI_CUDA_DEVICE(device);
    if (!rank.renew(config)) return;
    const auto place = CudaPlace::open(rank, device, Order::kStream);
    if (place != nullptr) body(rank, *place);
  });
}

/// Every collective, short and long.
void run_all(Rank& rank, CudaPlace& place) {
  for (uint64_t i = 0; i < kKindCount; ++i) {
    for (const size_t count : {size_t{300}, kLong}) {
      Trial trial;
      trial.kind = static_cast<Kind>(i);
      trial.count = count;
      trial.root = rank.count() - 1;
      trial.seed = 7 + i;
      run_trial(rank, trial, place);
    }
    place.clear();
  }
}

/// Whether a long call of the kind goes by multicast.
bool multicasts(Rank& rank, CudaPlace& place, Kind kind) {
  Trial trial;
  trial.kind = kind;
  trial.count = kLong;
  run_trial(rank, trial, place);
  char text[512] = {};
  rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof text), "explain");
  return std::string(text).find("multicast") != std::string::npos;
}

TEST(MulticastTest, EveryCollectiveGivesItsResult) {
  for (const std::vector<int>& layout : {std::vector{4}, std::vector{2, 1, 1}, std::vector{1, 1, 1, 1}}) {
    EXPECT_EQ(run_on(layout, 4, {}, run_all), "") << layout_name(layout);
  }
}

TEST(MulticastTest, CollectivesThatGainChooseIt) {
  EXPECT_EQ(run_on({2, 2}, 4, {},
                   [](Rank& rank, CudaPlace& place) {
                     for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kBroadcast,
                                             Kind::kAllGather, Kind::kReduceScatter})
                       rank.expect_true(multicasts(rank, place, kind), "no multicast");
                     rank.expect_true(!multicasts(rank, place, Kind::kAllToAll), "all_to_all by multicast");
                   }),
            "");
}

void do_without(Rank& rank, CudaPlace& place) {
  rank.expect_true(!multicasts(rank, place, Kind::kAllReduce), "multicast");
  run_all(rank, place);
}

TEST(MulticastTest, WhatOneRankCannotDoNoneDoes) {
  for (const char* fault :
       {"cuMulticastCreate:1:801", "cuMulticastAddDevice:2:801", "cuMulticastBindMem:2:2"}) {
    EXPECT_EQ(run_on({3, 1}, 4, {{"FAKE_CUDA_FAIL", fault}}, do_without), "") << fault;
  }
}

TEST(MulticastTest, RanksThatShareADeviceDoWithout) {
  EXPECT_EQ(run_on({2, 2}, 2, {}, do_without), "");
}

}  // namespace
}  // namespace tutti::test
