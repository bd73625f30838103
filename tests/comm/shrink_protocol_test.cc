// The shrink protocol by itself: pages in the memory of one process, no communicator.
#include "comm/shrink.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/stop.h"
#include "core/clock.h"
#include "tests/support/rank_pages.h"

namespace tutti::test {
namespace {

UniqueId id_of(uint8_t number) {
  UniqueId id{};
  id.nonce[0] = std::byte{0xff};
  id.nonce[7] = std::byte{number};
  return id;
}

/// Ranks of one host that share their pages, each with its part of the protocol.
class ShrinkProtocolTest : public testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  ShrinkProtocolTest() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      protocols_.push_back(std::make_unique<ShrinkProtocol>(
          pages_.of(rank), [this]() -> Result<UniqueId> { return id_of(++made_); }));
    }
  }

  StatusPage& status(uint32_t rank) { return pages_.status(rank); }
  void show(uint32_t rank, ShrinkState state) { status(rank).shrink.store(state.pack()); }
  ShrinkState shown(uint32_t rank) { return ShrinkState::unpack(status(rank).shrink.load()); }
  Result<std::optional<Members>> agree(uint32_t rank, uint64_t patience_ms = 10'000) {
    return protocols_[rank]->agree_on_members(std::vector<bool>(kRanks, false),
                                              deadline_after_ms(patience_ms));
  }

  uint8_t made_ = 0;  ///< ids
  RankPages pages_{kRanks};
  std::vector<std::unique_ptr<ShrinkProtocol>> protocols_;
};

// Goal: the lowest rank that lives decides on those that live, and names the lost.
TEST_F(ShrinkProtocolTest, TheLowestRankThatLivesDecides) {
  status(0).presence.store(StatusPage::kDied);
  show(2, {ShrinkState::kAgreeing, 0});
  const auto agreed = agree(1);
  ASSERT_TRUE(agreed && *agreed) << agreed.status().text();
  EXPECT_EQ((*agreed)->ranks, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ((*agreed)->lost, std::vector<uint32_t>{0});
  EXPECT_EQ(shown(1).phase, ShrinkState::kBootstrap);
  EXPECT_EQ(read_decision(pages_.header(1).decision).id.nonce, id_of(1).nonce);
}

// Goal: ranks that come at the same time follow one decision, and take what all of them hold.
TEST_F(ShrinkProtocolTest, RanksComeToTheSameEnd) {
  status(2).presence.store(StatusPage::kSilent);
  std::vector<std::vector<uint32_t>> members(2);
  std::vector<bool> has_taken(2);
  const auto shrink = [&](uint32_t rank) {
    ASSERT_TRUE(protocols_[rank]->begin(deadline_after_ms(10'000)));
    const auto first = agree(rank);
    ASSERT_TRUE(first && *first) << first.status().text();
    members[rank] = (*first)->ranks;
    protocols_[rank]->hold_next((*first)->id);
  };
  {
    const std::jthread other(shrink, 1);
    shrink(0);
  }
  EXPECT_EQ(members[0], (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(members[1], members[0]);
  std::optional<Result<std::optional<Members>>> second;
  {
    const std::jthread other([&] { second = agree(1); });
    const auto last = agree(0);
    EXPECT_TRUE(last && !*last) << last.status().text();
  }
  EXPECT_TRUE(*second && !**second) << second->status().text();
  EXPECT_EQ(shown(0), shown(1));
  EXPECT_EQ(shown(0).phase, ShrinkState::kThrough);
}

// Goal: a decision is followed once.
TEST_F(ShrinkProtocolTest, ADecisionIsFollowedOnce) {
  write_decision(pages_.header(0).decision, {.ranks = {0, 1, 2}, .lost = {}, .id = id_of(7)});
  const auto first = agree(1);
  ASSERT_TRUE(first && *first) << first.status().text();
  EXPECT_EQ((*first)->id.nonce, id_of(7).nonce);
  EXPECT_EQ(agree(1, 1).status().code(), Code::kTimeout);
}

// Goal: the deadline's error names the rank that has not come.
TEST_F(ShrinkProtocolTest, TheDeadlineNamesTheAbsent) {
  show(1, {ShrinkState::kAgreeing, 0});
  const Status leader = agree(0, 1).status();
  EXPECT_EQ(leader.code(), Code::kTimeout);
  EXPECT_NE(leader.text().find("rank 0 waits in tutti_comm_shrink for rank 2,"), std::string::npos)
      << leader.text();
  const Status follower = agree(1, 1).status();
  EXPECT_EQ(follower.code(), Code::kTimeout);
  EXPECT_NE(follower.text().find("for rank 0 or a rank that it waits for"), std::string::npos)
      << follower.text();
}

// Goal: who has followed an agreement hears why another does not.
TEST_F(ShrinkProtocolTest, ARefusalAndAnEndAreHeard) {
  write_decision(pages_.header(0).decision, {.ranks = {0, 1, 2}, .lost = {}, .id = id_of(7)});
  for (const uint32_t rank : {1u, 2u}) {
    const auto followed = agree(rank);
    ASSERT_TRUE(followed && *followed) << followed.status().text();
  }
  protocols_[2]->give_up({Code::kOutOfMemory, "no memory"});
  EXPECT_EQ(shown(2).phase, ShrinkState::kAway);
  const Status ended = agree(1).status();
  EXPECT_EQ(ended.code(), Code::kSystemError);
  EXPECT_NE(ended.text().find("rank 2 has given up the shrink"), std::string::npos) << ended.text();
  protocols_[2]->refuse(id_of(7));
  const Status refused = agree(1).status();
  EXPECT_EQ(refused.code(), Code::kMismatch);
  EXPECT_NE(refused.text().find("exclude different ranks"), std::string::npos) << refused.text();
}

// Goal: ranks must exclude the same, and one that is excluded learns by whom.
TEST_F(ShrinkProtocolTest, AllRanksMustExcludeTheSame) {
  const Members members{.ranks = {0, 1}, .lost = {}, .id = id_of(7)};
  EXPECT_TRUE(protocols_[1]->check_members(members, {false, false, true}));
  const Status kept = protocols_[1]->check_members(members, {false, false, false});
  EXPECT_EQ(kept.code(), Code::kMismatch);
  EXPECT_NE(kept.text().find("rank 0 excludes rank 2"), std::string::npos) << kept.text();
  EXPECT_EQ(protocols_[2]->check_members(members, {false, false, false}).code(), Code::kInvalidUsage);
  status(2).presence.store(StatusPage::kDied);
  EXPECT_TRUE(protocols_[1]->check_members(members, {false, false, false}));
}

// Goal: a loss among the members that meet, and a stop by another thread, end the bootstrap.
TEST_F(ShrinkProtocolTest, ALossOrAStopEndsTheMeeting) {
  const Members members{.ranks = {0, 1}, .lost = {}, .id = id_of(7)};
  BootstrapStop stop;
  EXPECT_TRUE(protocols_[0]->watch_members(&members, &stop));
  protocols_[0]->member_lost(2);
  EXPECT_FALSE(stop.is_stopped());
  protocols_[0]->member_lost(1);
  EXPECT_TRUE(stop.is_stopped());
  EXPECT_TRUE(protocols_[0]->watch_members(nullptr, nullptr));
  protocols_[0]->stop();
  EXPECT_FALSE(protocols_[0]->watch_members(&members, &stop));
  EXPECT_EQ(agree(0).status().code(), Code::kAborted);
}

// Goal: a rank that others have given up does not go on.
TEST_F(ShrinkProtocolTest, ARankThatWasGivenUpEnds) {
  pages_.of(1).mark_lost(0, StatusPage::kSilent);
  EXPECT_TRUE(protocols_[0]->is_given_up());
  EXPECT_EQ(agree(0).status().code(), Code::kPeerLost);
}

// Goal: a second shrink does not begin before all see the end of the first one.
TEST_F(ShrinkProtocolTest, ASecondShrinkWaitsForTheFirst) {
  const uint64_t held = shrink_tag(id_of(7));
  show(0, {ShrinkState::kThrough, held});
  show(1, {ShrinkState::kThrough, held});
  show(2, {ShrinkState::kAgreeing, held});
  const Status late = protocols_[0]->begin(deadline_after_ms(1));
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_NE(late.text().find("for rank 2,"), std::string::npos) << late.text();
  show(2, {ShrinkState::kThrough, held});
  EXPECT_TRUE(protocols_[0]->begin(deadline_after_ms(10'000)));
}

}  // namespace
}  // namespace tutti::test
