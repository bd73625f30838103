// The stall diagnosis by itself: pages in memory and a call that only says what it waits for. Every error
// that it can make is caused.
#include "health/stall_diagnosis.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "net/control_thread.h"
#include "tests/support/rank_pages.h"
#include "transports/link.h"

namespace tutti::test {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct FakeCall final : StalledCall {
  Obstacle obstacle() const override { return at; }
  uint64_t sequence() const override { return number; }
  bool in_collective() const override { return collective; }
  bool in_messages() const override { return !list.empty(); }
  const std::vector<Message>& messages() const override { return list; }
  SliceLimits message_limits() const override { return {}; }
  bool is_draining() const override { return draining; }
  bool still_waits_for(uint32_t) override {
    ++tries;
    return in_vain;
  }
  void peer_may_come() override { ++forgotten; }
  bool lends_to_network(uint32_t) const override { return lends; }
  uint64_t unconfirmed_bytes(uint32_t) const override { return unconfirmed; }
  Status torn_way() const override { return way; }

  Obstacle at{.peer = 1, .step = 3};
  uint64_t number = 5;
  bool collective = true;
  std::vector<Message> list;
  bool draining = false;
  bool in_vain = true;
  bool lends = false;
  uint64_t unconfirmed = 0;
  Status way;
  int tries = 0;
  int forgotten = 0;
};

uint64_t word_of(Collective collective) {
  return agreed_word({.collective = collective, .type = DataType::kFloat32});
}

/// Rank 0 of three is in its fifth collective and waits for rank 1.
class StallDiagnosisTest : public testing::Test {
 protected:
  StallDiagnosisTest() { enter(0, 5, word_of(Collective::kAllReduce)); }

  void enter(uint32_t rank, uint64_t sequence, uint64_t word, uint64_t count = 8) {
    StatusPage& page = pages_.status(rank);
    page.show_call(sequence, word, count, 0);
    page.sequence.store(sequence);
    page.completed.store(sequence - 1);
  }
  Status check(uint64_t waited_ms = 20) { return diagnosis_.look(waited_ms * kMs, 1000); }
  static void expect(const Status& found, Code code, const std::string& part) {
    EXPECT_EQ(found.code(), code);
    EXPECT_NE(found.text().find(part), std::string::npos) << found.text();
  }
  /// A message of 40 bytes and tag 3 is expected, and another has come.
  void receive(const Message& came, uint64_t first_bytes, uint64_t expected_bytes = 40) {
    call_.collective = false;
    call_.list = {message(DataType::kFloat32, 3, expected_bytes)};
    call_.at.word = flag::make(0, message_signature(came), first_bytes);
    call_.at.expected =
        flag::make(0, message_signature(call_.list[0]), std::min<uint64_t>(expected_bytes, 16384));
  }
  static Message message(DataType type, uint16_t tag, uint64_t bytes) {
    return {.bytes = bytes,
            .peer = 1,
            .seed = message_seed(type, tag, bytes),
            .history = 0x1234567,
            .type = type,
            .tag = tag};
  }

  RankPages pages_{3};
  FakeCall call_;
  StallDiagnosis diagnosis_{pages_.of(0), call_};
};

// Goal: a wait is looked at every 20 ms, from 20 ms on, and anew after the call has moved.
TEST_F(StallDiagnosisTest, AWaitIsLookedAtNowAndThen) {
  EXPECT_FALSE(diagnosis_.is_due(19 * kMs));
  EXPECT_TRUE(diagnosis_.is_due(20 * kMs));
  EXPECT_FALSE(diagnosis_.is_due(39 * kMs));
  EXPECT_TRUE(diagnosis_.is_due(40 * kMs));
  EXPECT_FALSE(diagnosis_.is_due(1 * kMs));
  EXPECT_TRUE(diagnosis_.is_due(20 * kMs));
}

// Goal: nothing is wrong with a peer that is behind, or inside the same call.
TEST_F(StallDiagnosisTest, APeerThatCanComeIsWaitedFor) {
  EXPECT_TRUE(check());
  enter(1, 5, word_of(Collective::kAllReduce));
  EXPECT_TRUE(check());
  EXPECT_EQ(call_.tries, 0);
  EXPECT_EQ(call_.forgotten, 2);
}

// Goal: the three ways to be gone are told apart.
TEST_F(StallDiagnosisTest, AnAbsenceIsNamed) {
  StatusPage& peer = pages_.status(1);
  peer.presence.store(StatusPage::kDied);
  expect(check(), Code::kPeerLost, "the process of rank 1 has ended");
  peer.presence.store(StatusPage::kSilent);
  expect(check(), Code::kPeerLost, "rank 1 has given no sign of life");
  peer.presence.store(StatusPage::kLeft);
  expect(check(), Code::kPeerLost,
         "rank 0 waits in all_reduce(float32, sum, count 8) for rank 1, which has left");
  call_.collective = false;
  expect(check(), Code::kPeerLost, "rank 0 waits in send/recv for rank 1, which has left");
}

// Goal: what a peer sent before it went counts first, and so does what the network still reads or takes.
TEST_F(StallDiagnosisTest, WhatWasSentCountsFirst) {
  pages_.status(1).presence.store(StatusPage::kDied);
  call_.in_vain = false;
  EXPECT_TRUE(check());
  EXPECT_EQ(call_.tries, 1);
  call_.in_vain = true;
  call_.draining = true;
  EXPECT_TRUE(check());
  call_.draining = false;
  call_.lends = true;
  expect(check(), Code::kPeerLost, "has ended");
  pages_.status(1).presence.store(StatusPage::kHere);
  enter(1, 6, word_of(Collective::kAllReduce));
  EXPECT_TRUE(check());
  call_.lends = false;
  expect(check(), Code::kMismatch, "rank 1 is in or past collective 6");
}

// Goal: ranks in different calls of one number, and a rank that is past this one, are a mismatch.
TEST_F(StallDiagnosisTest, OtherCallsAreAMismatch) {
  enter(1, 5, word_of(Collective::kBroadcast), 16);
  expect(check(), Code::kMismatch,
         "rank 0 is in collective 5, all_reduce(float32, sum, count 8); rank 1 is in or past collective 5, "
         "broadcast(float32, root 0, count 16): all ranks must make the same calls");
  EXPECT_EQ(call_.tries, 0);
  enter(1, 5, word_of(Collective::kAllReduce));
  pages_.status(1).completed.store(5);
  expect(check(), Code::kMismatch,
         "rank 0 and rank 1 are both in collective 5, all_reduce(float32, sum, count 8), but an "
         "earlier call of the two differed");
}

// Goal: a collective here and a send or receive there that wait for each other are found after three looks of
// the peer, once all is there that this rank has sent.
TEST_F(StallDiagnosisTest, CrossedWaitsAreFound) {
  StatusPage& peer = pages_.status(1);
  enter(1, 4, word_of(Collective::kAllReduce));
  peer.completed.store(4);
  peer.in_messages.store(1);
  for (int look = 0; look < 3; ++look) {
    pages_.show_wait(1, 0, 0);
    EXPECT_TRUE(check());
  }
  call_.unconfirmed = 1;
  pages_.show_wait(1, 0, 0);
  EXPECT_TRUE(check()) << "the count of looks begins anew";
  call_.unconfirmed = 0;
  for (int look = 0; look < 3; ++look) {
    EXPECT_TRUE(check());
    pages_.show_wait(1, 0, 0);
  }
  expect(check(), Code::kMismatch,
         "rank 0 waits for rank 1 in collective 5, all_reduce(float32, sum, count 8); rank 1 waits for "
         "rank 0 in a send or recv");
}

// Goal: a torn way is told after five looks, if nobody says more by then.
TEST_F(StallDiagnosisTest, ATornWayIsTold) {
  call_.way = {Code::kPeerLost, "the connection to rank 1 is torn"};
  for (int look = 0; look < 4; ++look) EXPECT_TRUE(check());
  expect(check(), Code::kPeerLost, "the connection to rank 1 is torn");
  call_.way = Status::ok();
  EXPECT_TRUE(check());
  call_.way = {Code::kPeerLost, "torn"};
  EXPECT_TRUE(check());
}

// Goal: the error of a message says in what it differs, as far as that can be known.
TEST_F(StallDiagnosisTest, AMessagesDifferenceIsSaid) {
  const auto found = [this] { return diagnosis_.mismatch_with(1); };
  receive(message(DataType::kFloat32, 4, 40), 40);
  expect(found(), Code::kMismatch,
         "a message from rank 1 to rank 0 does not match: its tag is 4, tag 3 was expected");
  receive(message(DataType::kInt32, 3, 40), 40);
  expect(found(), Code::kMismatch, "its type is int32, float32 was expected");
  receive(message(DataType::kFloat32, 3, 24), 24);
  expect(found(), Code::kMismatch,
         "its first part has 24 bytes, 40 were expected (40 bytes of float32 with tag 3)");
  Message later = message(DataType::kFloat32, 3, 40);
  ++later.history;
  receive(later, 40);
  expect(found(), Code::kMismatch, "an earlier message of the two ranks did not match");
  receive(message(DataType::kFloat32, 4, 100'000), 16384, 100'000);
  expect(found(), Code::kMismatch, "its tag is 4, tag 3 was expected");
  receive(message(DataType::kInt32, 4, 100'000), 16384, 100'000);
  expect(found(), Code::kMismatch,
         "its type is int32, float32 was expected, and its tag is 4, tag 3 was expected");
  receive(message(DataType::kFloat32, 3, 200'000), 16384, 100'000);
  expect(found(), Code::kMismatch, "its count is not the expected one (100000 bytes of float32 with tag 3)");
  call_.at.expected = flag::make(0, 1, 16384);
  expect(found(), Code::kMismatch, "does not match: its count is not the expected one;");
}

// Goal: inside an all_to_all_v of both ranks, messages are compared, else the calls.
TEST_F(StallDiagnosisTest, InsideAnAllToAllVMessagesAreComparedElseCalls) {
  receive(message(DataType::kFloat32, 3, 24), 24);
  call_.collective = true;
  expect(diagnosis_.mismatch_with(1), Code::kMismatch, "rank 1 is in or past collective 0");
  enter(1, 5, word_of(Collective::kAllReduce));
  expect(diagnosis_.mismatch_with(1), Code::kMismatch, "its first part has 24 bytes, 40 were expected;");
  enter(1, 6, word_of(Collective::kBarrier));
  expect(diagnosis_.mismatch_with(1), Code::kMismatch, "its first part has 24 bytes, 40 were expected;");
}

// Goal: the deadline's error follows from rank to rank, to the one that nobody keeps waiting.
TEST_F(StallDiagnosisTest, TheDeadlineFollowsFromRankToRank) {
  enter(1, 5, word_of(Collective::kAllReduce));
  pages_.show_wait(1, 2, 4);
  EXPECT_TRUE(check(999));
  expect(check(1000), Code::kTimeout,
         "no progress for 1.0 s: rank 0 waits at step 3 of all_reduce(float32, sum, count 8) to receive from "
         "rank 1; rank 1 is in collective 5, all_reduce(float32, sum, count 8), step 4, waiting for rank 2; "
         "rank 2 has made no collective call");
  call_.at.sending = true;
  expect(check(1500), Code::kTimeout, "no progress for 1.5 s: rank 0 waits at step 3 of");
  expect(check(1500), Code::kTimeout, "to send to rank 1;");
}

// Goal: sends and receives that wait in a circle are told how to stop that.
TEST_F(StallDiagnosisTest, ACircleOfMessagesIsTold) {
  call_.collective = false;
  pages_.status(1).in_messages.store(1);
  pages_.show_wait(1, 0, 0);
  expect(check(1000), Code::kTimeout,
         "rank 0 waits at step 3 of send/recv to receive from rank 1; rank 1 is in send/recv, step 0, "
         "waiting for rank 0; they wait for each other: sends and receives that cross belong between "
         "tutti_group_start");
}

// Goal: a rank that gets no processor is in no circle. Its page still says that it waits, though the message
// has come. A busy machine once ended jobs with that error.
TEST_F(StallDiagnosisTest, ARankThatDoesNotLookIsInNoCircle) {
  call_.collective = false;
  pages_.status(1).in_messages.store(1);
  pages_.status(1).waited_ms.store(100);
  pages_.show_wait(1, 0, 0);
  for (uint64_t ms = 20; ms < 900; ms += 20) EXPECT_TRUE(check(ms)) << ms;
  pages_.status(1).beat.store(1000);
  expect(check(920), Code::kMismatch, "ranks wait for each other in a circle");
}

// Goal: a rank that waits for a message of any rank closes no circle, and the deadline's text tells of it.
TEST_F(StallDiagnosisTest, AWaitForAnyRankEndsTheChain) {
  call_.collective = false;
  pages_.status(1).in_messages.store(1);
  pages_.status(1).waited_ms.store(100);
  for (uint64_t ms = 20; ms < 900; ms += 20) {
    pages_.show_wait(1, kAnyRank, 0);
    EXPECT_TRUE(check(ms)) << ms;
  }
  expect(check(1000), Code::kTimeout,
         "to receive from rank 1; rank 1 is in send/recv, waiting for a message of any rank");
}

std::shared_ptr<ControlPlane> open_plane(ControlThread& control, std::vector<ControlPlane::Peer> sockets,
                                         const std::function<StatusCopy()>& report) {
  return *ControlPlane::open(control, std::move(sockets), 0,
                             {.on_alert = [](uint32_t, const Status&) {},
                              .on_left = [](uint32_t) {},
                              .on_lost = [](uint32_t, bool, const Status&) {},
                              .report = [report](uint32_t) { return report(); },
                              .on_members = [](uint32_t, std::span<const std::byte>) {}});
}

/// What rank 0 knows of rank 1 on another host, and the control plane of each of the two.
struct TwoHosts {
  explicit TwoHosts(const std::function<StatusCopy()>& report) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near = open(1, ends[0], [] { return StatusCopy(); });
    if (report) {
      far = open(0, ends[1], report);
    } else {
      silent = FileDescriptor(ends[1]);
    }
    memory[1].is_remote = true;
    peers.set_hosts({0, 1});
    peers.set_own_page(pages.header(0));
    peers.set_memory(memory);
    peers.set_control_plane(near);
  }
  ~TwoHosts() {
    near->close();
    if (far) far->close();
  }
  std::shared_ptr<ControlPlane> open(uint32_t peer, int end, const std::function<StatusCopy()>& report) {
    std::vector<ControlPlane::Peer> sockets;
    sockets.push_back({.rank = peer, .socket = FileDescriptor(end)});
    return open_plane(*control, std::move(sockets), report);
  }

  std::unique_ptr<ControlThread> control = std::move(*ControlThread::start());
  std::shared_ptr<ControlPlane> near;
  std::shared_ptr<ControlPlane> far;
  FileDescriptor silent;
  RankPages pages{2};
  std::vector<PeerSegment> memory = pages.of(0).memory();
  Peers peers{0, 2};
};

// Goal: of a rank on another host that does not answer the error says so; the rank's word that it leaves
// counts without an answer.
TEST_F(StallDiagnosisTest, ARankThatDoesNotAnswerIsToldOf) {
  TwoHosts hosts(nullptr);
  StallDiagnosis diagnosis(hosts.peers, call_);
  EXPECT_TRUE(diagnosis.look(20 * kMs, 1000));
  expect(diagnosis.look(1000 * kMs, 1000), Code::kTimeout, "rank 1, on another host, does not answer");
  hosts.pages.status(1).presence.store(StatusPage::kLeft);
  expect(diagnosis.look(20 * kMs, 1000), Code::kPeerLost, "for rank 1, which has left");
}

// Each silent rank of the chain kept the alert back for 2 s. Method: rank 1 has told once that it waits for
// rank 2, and answers no more. Rank 2 would answer if it were asked.
TEST_F(StallDiagnosisTest, AfterTheFirstSilentRankNobodyIsWaitedFor) {
  const auto control = std::move(*ControlThread::start());
  std::vector<ControlPlane::Peer> sockets;
  std::vector<std::shared_ptr<ControlPlane>> far;
  std::vector<PeerSegment> memory = pages_.of(0).memory();
  for (const uint32_t rank : {1u, 2u}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    sockets.push_back({.rank = rank, .socket = FileDescriptor(ends[0])});
    std::vector<ControlPlane::Peer> back;
    back.push_back({.rank = 0, .socket = FileDescriptor(ends[1])});
    StatusCopy copy;
    copy.in_messages = 1;
    copy.waits_for = rank == 1 ? 3 : 0;
    far.push_back(open_plane(*control, std::move(back), [copy] { return copy; }));
    memory[rank].is_remote = true;
  }
  const auto near = open_plane(*control, std::move(sockets), [] { return StatusCopy(); });
  Peers peers(0, 3);
  peers.set_hosts({0, 1, 2});
  peers.set_own_page(pages_.header(0));
  peers.set_memory(memory);
  peers.set_control_plane(near);
  ASSERT_TRUE(peers.ask(1).is_current);
  far[0]->close();
  expect(StallDiagnosis(peers, call_).look(1000 * kMs, 1000), Code::kTimeout,
         "waiting for rank 2; rank 2, on another host, has not been asked before");
  near->close();
  far[1]->close();
}

// Goal: a rank in a send whose bytes the network has not confirmed is not taken for one that waits for this
// rank's next call: a lost packet is sent again after half a second. Soft-RoCE on a busy machine ended jobs
// with that error. Method: rank 1's page says so in each answer, with one more check each time.
TEST_F(StallDiagnosisTest, UnconfirmedBytesOfThePeerGiveItTime) {
  std::atomic<uint32_t> answers = 0;
  std::atomic<uint64_t> unconfirmed = 100;
  TwoHosts hosts([&] {
    StatusCopy copy;
    copy.sequence = copy.completed = 4;
    copy.in_messages = 1;
    copy.waits_for = 1;
    copy.unconfirmed_bytes = unconfirmed;
    copy.beat = ++answers;
    return copy;
  });
  StallDiagnosis diagnosis(hosts.peers, call_);
  hosts.pages.status(0).sequence.store(5);
  while (answers < 20) EXPECT_TRUE(diagnosis.look(20 * kMs, 1000));
  unconfirmed = 0;
  Status found;
  while (found) found = diagnosis.look(20 * kMs, 1000);
  expect(found, Code::kMismatch, "the two ranks make these calls in different orders");
}

}  // namespace
}  // namespace tutti::test
