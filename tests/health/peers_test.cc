// Peers: what a rank knows of the others, and how it tells them of a failure.
#include "health/peers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "health/loss.h"
#include "tests/support/rank_pages.h"

namespace tutti::test {
namespace {

// Goal: a failure reaches all ranks, with the rank that found it, and the first failure stays.
TEST(PeersTest, TheFirstFailureIsTheErrorOfAllRanks) {
  RankPages pages(3);
  EXPECT_FALSE(pages.of(0).has_error());
  EXPECT_TRUE(pages.of(0).error().is_ok());
  pages.of(1).raise({Code::kTimeout, "rank 1 has waited"});
  pages.of(2).raise({Code::kMismatch, "rank 2 comes later with this"});
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(pages.of(rank).has_error());
    EXPECT_EQ(pages.of(rank).error().code(), Code::kTimeout);
    EXPECT_EQ(std::string(pages.of(rank).error().text()), "rank 1 has waited");
    EXPECT_EQ(pages.header(rank).alert.from.load(), 1u);
  }
}

// Goal: before the memory of the others is known, a failure is an error of this rank alone.
TEST(PeersTest, AFailureDuringSetUpStaysWithTheRank) {
  SegmentHeader own{};
  Peers peers(1, 3);
  peers.set_own_page(own);
  EXPECT_TRUE(peers.memory().empty());
  EXPECT_FALSE(peers.is_remote(0));
  EXPECT_FALSE(peers.may_use_buffers());
  peers.raise({Code::kSystemError, "no memory"});
  EXPECT_EQ(peers.error().code(), Code::kSystemError);
}

// Goal: a rank that settles an alert gets the failure that came first.
TEST(PeersTest, AnAlertIsSettledByTheFirstFailure) {
  RankPages pages(2);
  pages.of(0).raise({Code::kPeerLost, "first"});
  EXPECT_EQ(std::string(pages.of(1).settle_alert({Code::kMismatch, "second"}).text()), "first");
}

// Goal: a peer that died while it wrote an alert keeps no rank from its own error.
TEST(PeersTest, AnAlertWithoutItsTextIsReplaced) {
  RankPages pages(2);
  pages.header(0).alert.state.store(Alert::claimed_by(1));
  pages.of(0).raise({Code::kMismatch, "own"});
  EXPECT_FALSE(pages.of(0).has_error());
  const Status settled = pages.of(0).settle_alert({Code::kMismatch, "own"});
  EXPECT_EQ(settled.code(), Code::kMismatch);
  EXPECT_EQ(std::string(settled.text()), "own");
  EXPECT_TRUE(pages.of(0).has_error());
}

// A rank that was killed while it wrote an alert left the other rank without an error: the loss raised none,
// and calls of this rank waited until their deadline.
TEST(PeersTest, ALossReplacesTheAlertThatTheLostRankWasWriting) {
  RankPages pages(3);
  pages.header(0).alert.state.store(Alert::claimed_by(1));
  EXPECT_TRUE(pages.of(0).lose(1, StatusPage::kDied, ended_status(1)));
  EXPECT_TRUE(pages.of(0).has_error());
  EXPECT_EQ(pages.of(0).error().text(), ended_status(1).text());
}

// The same for a process that exits while another of its threads writes an alert: the exit shows that its
// ranks have left.
TEST(PeersTest, ARankThatHasLeftLeavesNoAlertHalfWritten) {
  RankPages pages(3);
  pages.header(0).alert.state.store(Alert::claimed_by(1));
  pages.status(1).presence.store(StatusPage::kLeft);
  EXPECT_FALSE(pages.of(0).lose(1, StatusPage::kDied, ended_status(1)));
  EXPECT_FALSE(pages.of(0).has_error()) << "the rank had left";
  pages.of(0).raise({Code::kTimeout, "rank 0 has waited"});
  EXPECT_EQ(pages.of(0).error().code(), Code::kTimeout);
}

// Goal: the loss of one rank does not disturb the alert that another, live rank is writing.
TEST(PeersTest, ALossLeavesTheAlertOfALiveWriterAlone) {
  RankPages pages(3);
  pages.header(0).alert.state.store(Alert::claimed_by(2));
  EXPECT_TRUE(pages.of(0).lose(1, StatusPage::kDied, ended_status(1)));
  EXPECT_EQ(pages.header(0).alert.state.load(), Alert::claimed_by(2));
  EXPECT_EQ(pages.of(0).presence(1), StatusPage::kDied);
}

// Goal: a lost rank is marked once, with an error for the ranks that found the loss; the mark of the first
// rank stays.
TEST(PeersTest, ARankIsLostOnce) {
  RankPages pages(3);
  EXPECT_TRUE(pages.of(0).lose(1, StatusPage::kDied, ended_status(1)));
  EXPECT_TRUE(pages.of(2).lose(1, StatusPage::kSilent, silent_status(1)));
  EXPECT_EQ(pages.of(0).presence(1), StatusPage::kDied);
  EXPECT_EQ(pages.of(2).presence(1), StatusPage::kDied);
  EXPECT_EQ(pages.of(0).error().text(), ended_status(1).text());
  EXPECT_EQ(pages.of(2).error().text(), silent_status(1).text());
  EXPECT_FALSE(pages.of(1).has_error());
}

/// Rank 0 has told rank 1 of a mismatch, and is stopped before it tells rank 2.
void raise_halfway(RankPages& pages) {
  raise_alert(pages.header(1).alert, Code::kMismatch, 0, "ranks 0 and 1 differ");
}

// A rank that aborted after it had read the reason overtook the rank that was telling the others: the third
// rank read only of the abort.
TEST(PeersTest, AnAbortPassesOnTheReasonThatTheRankKnows) {
  RankPages pages(3);
  raise_halfway(pages);
  pages.of(1).raise({Code::kAborted, "rank 1 called tutti_comm_abort"});
  EXPECT_EQ(pages.of(2).error().code(), Code::kMismatch);
  EXPECT_EQ(pages.of(2).error().text(), "ranks 0 and 1 differ");
}

// The same for a rank that destroys the communicator.
TEST(PeersTest, ARankThatLeavesPassesOnTheReason) {
  RankPages pages(3);
  raise_halfway(pages);
  pages.of(1).show_left();
  EXPECT_EQ(pages.of(2).error().code(), Code::kMismatch);
}

// Goal: a rank that leaves without an error says nothing.
TEST(PeersTest, ARankThatLeavesInGoodOrderRaisesNothing) {
  RankPages pages(2);
  pages.of(1).show_left();
  EXPECT_FALSE(pages.of(0).has_error());
}

// Goal: a rank that has left in good order is not lost.
TEST(PeersTest, ARankThatHasLeftIsNotLost) {
  RankPages pages(2);
  pages.of(1).show_left();
  EXPECT_FALSE(pages.of(0).lose(1, StatusPage::kDied, ended_status(1)));
  EXPECT_EQ(pages.of(0).presence(1), StatusPage::kLeft);
  EXPECT_FALSE(pages.of(0).has_error());
}

// Goal: the hosts of the ranks tell how many hosts there are, and whether ranks share one.
TEST(PeersTest, HostsAreCounted) {
  Peers peers(0, 3);
  EXPECT_EQ(peers.host_count(), 1u);
  peers.set_hosts({0, 1, 1});
  EXPECT_EQ(peers.host_count(), 2u);
  EXPECT_FALSE(peers.shares_no_host());
  peers.set_hosts({0, 1, 2});
  EXPECT_TRUE(peers.shares_no_host());
  Peers alone(0, 1);
  alone.set_hosts({0});
  EXPECT_FALSE(alone.shares_no_host()) << "a rank by itself has nobody to share with";
}

// Goal: one peer in another process makes the communicator one of several processes.
TEST(PeersTest, ProcessesAreToldApart) {
  RankPages pages(2);
  EXPECT_TRUE(pages.of(0).is_one_process());
  std::vector<PeerSegment> memory = pages.of(0).memory();
  memory[1].same_process = false;
  Peers peers(0, 2);
  peers.set_own_page(pages.header(0));
  peers.set_memory(memory);
  EXPECT_FALSE(peers.is_one_process());
}

// Goal: a snapshot has what the peer shows. A peer inside a call may use this rank's buffers; a peer that is
// through, or has left, does not.
TEST(PeersTest, APeerShowsWhatItDoes) {
  RankPages pages(2);
  EXPECT_FALSE(pages.of(0).may_use_buffers());
  pages.status(1).sequence.store(4);
  pages.show_wait(1, 0, 7);
  const PeerSnapshot seen = pages.of(0).snapshot(1);
  EXPECT_TRUE(seen.has_answered && seen.is_settled);
  EXPECT_EQ(seen.page.sequence, 4u);
  EXPECT_EQ(seen.page.waits_for, 1u);
  EXPECT_EQ(seen.page.step, 7u);
  EXPECT_EQ(seen.page.beat, 1u);
  EXPECT_EQ(pages.of(0).ask(1).page.sequence, 4u);
  EXPECT_TRUE(pages.of(0).may_use_buffers());
  pages.status(1).completed.store(4);
  EXPECT_FALSE(pages.of(0).may_use_buffers());
  pages.status(1).in_messages.store(1);
  EXPECT_TRUE(pages.of(0).may_use_buffers());
  pages.of(1).show_left();
  EXPECT_FALSE(pages.of(0).may_use_buffers());
}

// Goal: the report has a line for each rank and tells of the failure.
TEST(PeersTest, TheReportHasALineForEachRank) {
  RankPages pages(2);
  EXPECT_EQ(pages.of(0).report(),
            "  rank 0 of 2 on 1 host\n"
            "    rank 0 has made no collective call (this rank)\n"
            "    rank 1 has made no collective call\n");
  pages.of(1).raise({Code::kAborted, "rank 1 called tutti_comm_abort"});
  EXPECT_NE(pages.of(0).report().find("\n    failed: rank 1 called tutti_comm_abort\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
