// HostExecutor: ranks of one process that the test polls in turns, without a communicator around them.
#include "comm/host_executor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "health/loss.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"
#include "transports/tcp/tcp_transport.h"

namespace tutti::test {
namespace {

constexpr SegmentShape kShape{
    .rank_count = 2, .published = 2, .channels = channels_of_stripes(2), .slots = 8, .slot_bytes = 256};
// More than the slots of a link hold.
constexpr uint64_t kLong = 2000;

/// Two ranks on one host, each with its executor.
class HostExecutorTest : public testing::Test {
 protected:
  HostExecutorTest() {
    heap_.reset(*SymmetricHeap::create(1 << 20));
    config_.reference_bytes = UINT64_MAX;
    config_.stripe_bytes = 2000;
  }

  HostExecutorOptions options(uint32_t rank) {
    return {.peers = pages_.of(rank), .config = config_, .heap = *heap_, .shape = kShape};
  }
  void make_ranks() {
    for (uint32_t rank = 0; rank < 2; ++rank) ranks_[rank] = std::make_unique<HostExecutor>(options(rank));
  }
  HostExecutor& rank(uint32_t number) {
    if (ranks_[number] == nullptr) make_ranks();
    return *ranks_[number];
  }
  static std::unique_ptr<BoundCall> bind(HostExecutor& executor, uint64_t count) {
    return bind_sum(executor, sum_of(count), 2);
  }
  static Status run_again(HostExecutor& executor, BoundCall& bound, Sum& numbers) {
    if (executor.run_short(bound, numbers.send.data(), numbers.recv.data())) return Status::ok();
    return executor.run_rest(bound, numbers.send.data(), numbers.recv.data());
  }
  static bool has_ended(Progress progress) {
    return progress == Progress::kDone || progress == Progress::kMismatch;
  }
  /// Polls both ranks in turns until both have ended.
  std::array<Progress, 2> poll_both() {
    std::array<Progress, 2> ends = {Progress::kMoved, Progress::kMoved};
    while (!has_ended(ends[0]) || !has_ended(ends[1])) {
      for (uint32_t i = 0; i < 2; ++i) {
        if (!has_ended(ends[i])) ends[i] = rank(i).poll();
      }
    }
    return ends;
  }
  /// Rank 0 gives up rank 1, which is stopped in a call, and gets its buffers back.
  void give_up_rank_1() {
    EXPECT_TRUE(pages_.of(0).lose(1, StatusPage::kSilent, silent_status(1)));
    EXPECT_EQ(rank(0).wait().code(), Code::kPeerLost);
    EXPECT_TRUE(rank(0).buffers_are_free());
  }
  /// Waits on that rank until it fails.
  Status wait_until_failed(uint32_t number) {
    for (;;) {
      EXPECT_FALSE(has_ended(rank(number).poll()));
      TUTTI_TRY(rank(number).wait());
    }
  }

  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{kShape};
  std::array<std::unique_ptr<HostExecutor>, 2> ranks_;
};

// Goal: polls in turns move a call of many slots to its end on both ranks, and the pages tell of the call
// from its beginning to its end.
TEST_F(HostExecutorTest, PollsMoveACallToItsEnd) {
  std::array numbers = {Sum(kLong, 0), Sum(kLong, 1)};
  std::array bound = {bind(rank(0), kLong), bind(rank(1), kLong)};
  EXPECT_FALSE(rank(0).has_begun());
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  EXPECT_TRUE(rank(0).has_begun());
  EXPECT_EQ(pages_.status(0).sequence.load(), 1u);
  EXPECT_EQ(pages_.status(0).runs[0].call.load(), bound[0]->word);
  EXPECT_EQ(pages_.status(0).runs[0].count.load(), kLong);
  EXPECT_EQ(poll_both(), (std::array{Progress::kDone, Progress::kDone}));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(rank(i).finish(Progress::kDone));
    EXPECT_FALSE(rank(i).has_begun());
    EXPECT_TRUE(numbers[i].is_right(2)) << "rank " << i;
    EXPECT_EQ(pages_.status(i).completed.load(), 1u);
  }
}

// Goal: a rank that waits shows for whom and where, and takes that back when its call has ended.
TEST_F(HostExecutorTest, AWaitShowsWhatItWaitsFor) {
  std::array numbers = {Sum(kLong, 0), Sum(kLong, 1)};
  std::array bound = {bind(rank(0), kLong), bind(rank(1), kLong)};
  ASSERT_TRUE(rank(0).begin(*bound[0], numbers[0].call()));
  while (pages_.status(0).waits_for.load() == 0) {
    EXPECT_FALSE(has_ended(rank(0).poll()));
    ASSERT_TRUE(rank(0).wait());
  }
  EXPECT_EQ(pages_.status(0).waits_for.load(), 2u) << "rank 1";
  EXPECT_GT(pages_.status(0).beat.load(), 0u);
  ASSERT_TRUE(rank(1).begin(*bound[1], numbers[1].call()));
  EXPECT_EQ(poll_both(), (std::array{Progress::kDone, Progress::kDone}));
  EXPECT_TRUE(rank(0).finish(Progress::kDone));
  EXPECT_EQ(pages_.status(0).waits_for.load(), 0u);
}

// Goal: a rank that waits for a message of any rank shows that, until the message has come.
TEST_F(HostExecutorTest, AWaitForAnyRankIsShown) {
  make_ranks();
  std::thread waiting([&] {
    const Result<uint32_t> sender = rank(0).await_sender(7);
    ASSERT_TRUE(sender) << sender.status().text();
    EXPECT_EQ(*sender, 1u);
  });
  while (pages_.status(0).waits_for.load() == 0) std::this_thread::yield();
  EXPECT_EQ(describe_status(0, StatusCopy::of(pages_.status(0))),
            "rank 0 is in send/recv, waiting for a message of any rank");
  uint64_t sent = 42;
  EXPECT_TRUE(
      rank(1).run(Message{.buffer = &sent, .bytes = sizeof(sent), .peer = 0, .sending = true, .seed = 7}));
  waiting.join();
  EXPECT_EQ(pages_.status(0).waits_for.load(), 0u);
}

// Goal: the deadline of set_timeout ends a call that waits in vain, on all ranks, and names the call.
TEST_F(HostExecutorTest, TheDeadlineEndsACall) {
  Sum numbers(kLong);
  const auto bound = bind(rank(0), kLong);
  rank(0).set_timeout(1);
  ASSERT_TRUE(rank(0).begin(*bound, numbers.call()));
  const Status ended = wait_until_failed(0);
  EXPECT_EQ(ended.code(), Code::kTimeout);
  EXPECT_NE(ended.text().find("of all_reduce(int32, sum, count 2000) to"), std::string::npos) << ended.text();
  EXPECT_EQ(pages_.of(1).error().text(), ended.text());
  EXPECT_FALSE(rank(0).has_begun());
  EXPECT_EQ(pages_.status(0).waits_for.load(), 0u);
}

// Goal: what a peer raises ends the wait of this rank, and no further call of the short path begins.
TEST_F(HostExecutorTest, AnErrorOfAPeerEndsAWait) {
  Sum numbers(2);
  const auto bound = bind(rank(0), 2);
  ASSERT_TRUE(rank(0).begin(*bound, numbers.call()));
  EXPECT_FALSE(has_ended(rank(0).poll()));
  pages_.of(1).raise({Code::kAborted, "rank 1 called tutti_comm_abort"});
  const Status ended = rank(0).wait();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_EQ(run_again(rank(0), *bound, numbers).text(), ended.text());
  EXPECT_EQ(pages_.status(0).sequence.load(), 1u) << "the call was not entered";
}

// Goal: ranks in different calls find out by the first message, on whichever side that comes.
TEST_F(HostExecutorTest, DifferentCallsAreAMismatch) {
  std::array numbers = {Sum(10), Sum(11)};
  std::array bound = {bind(rank(0), 10), bind(rank(1), 11)};
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  uint32_t finder = 0;
  while (rank(finder).poll() != Progress::kMismatch) finder = 1 - finder;
  const Status found = rank(finder).finish(Progress::kMismatch);
  EXPECT_EQ(found.code(), Code::kMismatch);
  EXPECT_NE(found.text().find("count 10"), std::string::npos) << found.text();
  EXPECT_NE(found.text().find("count 11"), std::string::npos) << found.text();
  EXPECT_EQ(rank(1 - finder).wait().text(), found.text());
}

// Goal: after a failure the buffers are the caller's once no peer can read them: a peer that was referred to
// them may, as long as that peer is in a call.
TEST_F(HostExecutorTest, BuffersAreFreeOnceNoPeerCanReadThem) {
  config_.reference_bytes = kShape.slot_bytes / 2;
  std::vector<std::byte> bytes(4096);
  const MessageCall send{
      .messages = {{.buffer = bytes.data(), .bytes = bytes.size(), .peer = 1, .sending = true}}, .shape = {}};
  ASSERT_TRUE(rank(0).begin(send));
  EXPECT_TRUE(rank(0).has_begun());
  EXPECT_FALSE(has_ended(rank(0).poll()));
  pages_.status(1).in_messages.store(1);
  const Status ended = rank(0).fail({Code::kAborted, "given up"});
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_FALSE(rank(0).has_begun());
  EXPECT_FALSE(rank(0).buffers_are_free());
  pages_.status(1).in_messages.store(0);
  EXPECT_TRUE(rank(0).buffers_are_free());
}

// Goal: a failed call that has referred no peer to its buffers gives them back at once.
TEST_F(HostExecutorTest, CopiedBuffersAreFreeAtOnce) {
  Sum numbers(kLong);
  const auto bound = bind(rank(0), kLong);
  ASSERT_TRUE(rank(0).begin(*bound, numbers.call()));
  EXPECT_FALSE(has_ended(rank(0).poll()));
  pages_.status(1).sequence.store(1);
  EXPECT_EQ(rank(0).fail({Code::kAborted, "given up"}).code(), Code::kAborted);
  EXPECT_TRUE(rank(0).buffers_are_free());
}

// A rank that was stopped in a call and ran again went on writing results into a buffer that its owner had
// got back.
TEST_F(HostExecutorTest, ALostRankWritesIntoNoBufferThatIsFree) {
  config_.reference_bytes = config_.direct_write_bytes = 1;
  std::array numbers = {Sum(kLong, 0), Sum(kLong, 1)};
  std::array<std::unique_ptr<BoundCall>, 2> bound;
  for (uint32_t i = 0; i < 2; ++i) {
    bound[i] = bind_sum(rank(i), sum_of(kLong), 2, false, "direct_two_shot");
    ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  }
  EXPECT_FALSE(has_ended(rank(0).poll()));
  give_up_rank_1();
  const std::vector<int32_t> before = numbers[0].recv;
  EXPECT_EQ(rank(1).poll(), Progress::kMoved) << "it does not know yet";
  EXPECT_EQ(numbers[0].recv, before);
  EXPECT_EQ(rank(1).wait().code(), Code::kPeerLost);
}

// A rank that was stopped in a call and ran again read a buffer that its owner had got back, and returned the
// new bytes as the result.
TEST_F(HostExecutorTest, ALostRankReturnsNoBytesOfABufferThatIsFree) {
  config_.reference_bytes = 1;
  constexpr uint64_t kCount = 256;
  CallShape shape = sum_of(kCount);
  shape.collective = Collective::kBroadcast;
  std::array numbers = {Sum(kCount, 0), Sum(kCount, 1)};
  std::array<std::unique_ptr<BoundCall>, 2> bound;
  for (uint32_t i = 0; i < 2; ++i) {
    bound[i] = bind_sum(rank(i), shape, 2);
    ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  }
  EXPECT_FALSE(has_ended(rank(0).poll()));
  give_up_rank_1();
  std::ranges::fill(numbers[0].send, -2);
  EXPECT_EQ(rank(1).poll(), Progress::kDone);
  EXPECT_EQ(rank(1).finish(Progress::kDone).code(), Code::kPeerLost);
  EXPECT_FALSE(rank(1).has_begun());
}

// The same of a message, where the alert has not reached the rank: its page shows that others gave it up.
TEST_F(HostExecutorTest, ALostRankReturnsNoMessageByReference) {
  config_.reference_bytes = kShape.slot_bytes / 2;
  std::array<std::byte, 1024> sent{};
  std::array<std::byte, 1024> got{};
  ASSERT_TRUE(rank(0).begin(
      {.messages = {{.buffer = sent.data(), .bytes = 1024, .peer = 1, .sending = true}}, .shape = {}}));
  ASSERT_TRUE(rank(1).begin({.messages = {{.buffer = got.data(), .bytes = 1024, .peer = 0}}, .shape = {}}));
  EXPECT_FALSE(has_ended(rank(0).poll()));
  pages_.of(0).mark_lost(1, StatusPage::kSilent);
  EXPECT_EQ(rank(1).poll(), Progress::kDone);
  EXPECT_EQ(rank(1).finish(Progress::kDone).code(), Code::kPeerLost);
  EXPECT_FALSE(rank(1).has_begun());
}

// A rank that only receives took the short path, which looks at the alert once, also where a message may come
// by reference. A failed peer could take its buffer back unseen.
TEST_F(HostExecutorTest, NoReferenceIsReadOnTheShortPath) {
  CallShape shape = sum_of(50);
  shape.collective = Collective::kBroadcast;
  Sum numbers(shape.count);
  for (const bool may_refer : {true, false}) {
    config_.reference_bytes = shape.count * sizeof(int32_t) + (may_refer ? 0 : 1);
    const auto bound = bind_sum(rank(1), shape, 2);
    EXPECT_FALSE(rank(1).run_short(*bound, numbers.send.data(), numbers.recv.data())) << "nothing has come";
    EXPECT_EQ(rank(1).has_begun(), !may_refer);
  }
}

// A rank that found an alert of which only the beginning was written went on with the call after 200 ms.
TEST_F(HostExecutorTest, AnAlertThatNobodyCompletesEndsACallThatMayRefer) {
  config_.reference_bytes = 1;
  pages_.header(0).alert.state.store(Alert::claimed_by(1));
  Sum numbers(kLong);
  const auto bound = bind(rank(0), kLong);
  const Status begun = rank(0).begin(*bound, numbers.call());
  EXPECT_EQ(begun.code(), Code::kAborted);
  EXPECT_FALSE(rank(0).has_begun());
  for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(pages_.of(i).error().text(), begun.text());
}

// Goal: groups of messages: to a peer and back, and to the rank itself, which meets its own receive.
TEST_F(HostExecutorTest, AGroupOfMessagesIsExchanged) {
  std::array<std::array<char, 3000>, 2> sent;
  std::array<std::array<char, 3000>, 2> got;
  std::array<char, 5> own = {'o', 'w', 'n', '!', '\0'};
  std::array<char, 5> copy{};
  for (uint32_t i = 0; i < 2; ++i) {
    sent[i].fill(static_cast<char>('a' + i));
    MessageCall call{.messages = {{.buffer = sent[i].data(), .bytes = 3000, .peer = 1 - i, .sending = true},
                                  {.buffer = got[i].data(), .bytes = 3000, .peer = 1 - i}},
                     .shape = {}};
    if (i == 0) {
      call.messages.push_back({.buffer = own.data(), .bytes = own.size(), .peer = 0, .sending = true});
      call.messages.push_back({.buffer = copy.data(), .bytes = copy.size(), .peer = 0});
    }
    ASSERT_TRUE(rank(i).begin(call));
    EXPECT_EQ(pages_.status(i).in_messages.load(), 1u);
  }
  EXPECT_EQ(poll_both(), (std::array{Progress::kDone, Progress::kDone}));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(rank(i).finish(Progress::kDone));
    EXPECT_EQ(pages_.status(i).in_messages.load(), 0u);
    EXPECT_EQ(got[i], sent[1 - i]);
  }
  EXPECT_EQ(copy, own);
  EXPECT_EQ(pages_.status(0).sequence.load(), 0u) << "messages are no collective";
}

// Goal: a message that fits into a slot is sent before its receive begins.
TEST_F(HostExecutorTest, AShortMessageIsSentAhead) {
  uint64_t sent = 42;
  uint64_t got = 0;
  EXPECT_TRUE(
      rank(0).run(Message{.buffer = &sent, .bytes = sizeof(sent), .peer = 1, .sending = true, .seed = 7}));
  sent = 0;
  EXPECT_TRUE(rank(1).run(Message{.buffer = &got, .bytes = sizeof(got), .peer = 0, .seed = 7}));
  EXPECT_EQ(got, 42u);
}

// Goal: a bound call runs again and again on other buffers, short and long.
TEST_F(HostExecutorTest, ABoundCallRunsAgain) {
  constexpr int kTurns = 20;
  make_ranks();
  for (const uint64_t count : {uint64_t{2}, kLong}) {
    std::array<bool, 2> is_right = {true, true};
    const auto body = [&](uint32_t number) {
      HostExecutor& executor = rank(number);
      const auto bound = bind(executor, count);
      Sum first(count, static_cast<int>(number));
      is_right[number] = executor.run(*bound, first.call()).is_ok() && first.is_right(2);
      for (int turn = 0; turn < kTurns; ++turn) {
        Sum next(count, static_cast<int>(number));
        const Status ran = run_again(executor, *bound, next);
        is_right[number] = is_right[number] && ran.is_ok() && next.is_right(2);
      }
    };
    {
      const std::jthread other(body, 1);
      body(0);
    }
    EXPECT_TRUE(is_right[0] && is_right[1]) << count;
  }
  EXPECT_EQ(pages_.status(0).sequence.load(), 2u * (kTurns + 1));
  EXPECT_EQ(pages_.status(0).completed.load(), 2u * (kTurns + 1));
}

// Goal: long calls go to the threads of the rank, short ones do not, and a striped call ends as one.
TEST_F(HostExecutorTest, ALongCallIsSharedWithWorkers) {
  for (uint32_t i = 0; i < 2; ++i) {
    auto workers = Workers::start(1);
    ASSERT_TRUE(workers.is_ok()) << workers.status().text();
    HostExecutorOptions wanted = options(i);
    wanted.threads = 2;
    wanted.workers = std::move(*workers);
    ranks_[i] = std::make_unique<HostExecutor>(std::move(wanted));
  }
  EXPECT_EQ(rank(0).explain(*bind(rank(0), 2)), "");
  std::array numbers = {Sum(kLong, 0), Sum(kLong, 1)};
  std::array bound = {bind(rank(0), kLong), bind(rank(1), kLong)};
  EXPECT_EQ(rank(0).explain(*bound[0]), ", 2 threads a rank");
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  EXPECT_EQ(poll_both(), (std::array{Progress::kDone, Progress::kDone}));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(rank(i).finish(Progress::kDone));
    EXPECT_TRUE(numbers[i].is_right(2)) << "rank " << i;
    EXPECT_TRUE(rank(i).leave());
  }
}

// Goal: a striped call that fails takes its stripes back from the workers first.
TEST_F(HostExecutorTest, AFailureRecallsTheWorkers) {
  auto workers = Workers::start(1);
  ASSERT_TRUE(workers.is_ok()) << workers.status().text();
  HostExecutorOptions wanted = options(0);
  wanted.threads = 2;
  wanted.workers = std::move(*workers);
  ranks_[0] = std::make_unique<HostExecutor>(std::move(wanted));
  const auto bound = bind(rank(0), kLong);
  {
    Sum numbers(kLong);
    ASSERT_TRUE(rank(0).begin(*bound, numbers.call()));
    EXPECT_EQ(rank(0).fail({Code::kAborted, "given up"}).code(), Code::kAborted);
    EXPECT_TRUE(rank(0).buffers_are_free());
  }
  EXPECT_TRUE(rank(0).leave());
}

// Goal: a rank that leaves reports that a peer has made other collectives.
TEST_F(HostExecutorTest, ARankThatLeavesFindsAnotherHistory) {
  make_ranks();
  pages_.status(1).history.store(1);
  EXPECT_EQ(rank(0).leave().code(), Code::kMismatch);
}

// A rank that learns of a failure as it enters a call ends the call without counting it in its history. A
// peer that left before it was told of the failure reported a mismatch.
TEST_F(HostExecutorTest, ARankThatHasFailedHasNoOtherHistory) {
  make_ranks();
  pages_.status(1).history.store(1);
  raise_alert(pages_.header(1).alert, Code::kAborted, 1, "rank 1 called tutti_comm_abort");
  EXPECT_TRUE(rank(0).leave());
}

// Goal: what algorithms may rely on follows from the ranks' places, equally on all ranks.
TEST_F(HostExecutorTest, FactsFollowFromWhereTheRanksAre) {
  for (uint32_t i = 0; i < 2; ++i) {
    const Facts facts = rank(i).facts();
    EXPECT_TRUE(facts.can_publish);
    EXPECT_TRUE(facts.can_reference) << "threads of one process";
    EXPECT_EQ(facts.host_count, 1u);
    EXPECT_EQ(facts.slots, kShape.slots / 2) << "half of the slots serve one round";
    EXPECT_EQ(facts.slot_bytes, kShape.slot_bytes);
  }
}

/// A connection whose state the test sets. It takes messages, but has not sent them.
class StuckConnection final : public Connection {
 public:
  bool advance() override { return false; }
  void advance_fully() override {}
  bool drained() const override { return is_drained; }
  uint64_t unconfirmed_bytes() const override { return 0; }
  PeerState state() const override { return at; }
  const Status& status() const override { return lost; }
  void withdraw() override {}
  void finish() override {}

  bool is_drained = false;
  PeerState at = PeerState::kOpen;
  Status lost = {Code::kPeerLost, "rank 1 is lost: its frames are malformed"};
};

class StuckTransport final : public Transport {
 public:
  explicit StuckTransport(StuckConnection& connection) : connection_(connection) {}
  const TransportTraits& traits() const override { return traits_; }
  std::optional<LinkCost> reach(const RankDescription&, const RankDescription&) const override {
    return std::nullopt;
  }
  Result<Connection*> connect(PeerHandover) override { return static_cast<Connection*>(&connection_); }
  bool progress() override { return false; }
  bool arm_wait(std::vector<pollfd>&) override { return false; }

 private:
  TransportTraits traits_;
  StuckConnection& connection_;
};

/// Rank 0, whose only peer is on another host, behind a StuckConnection.
class TornHostExecutorTest : public HostExecutorTest {
 protected:
  TornHostExecutorTest() {
    std::vector<PeerSegment> memory = pages_.of(0).memory();
    memory[1] = {.segment = memory[1].segment, .is_remote = true};
    pages_.of(0).set_hosts({0, 1});
    pages_.of(0).set_memory(memory);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    far_ = FileDescriptor(ends[1]);
    std::vector<ControlPlane::Peer> planes;
    planes.push_back({.rank = 1, .socket = FileDescriptor(ends[0])});
    plane_ = *ControlPlane::open(*control_, std::move(planes), 0, {});
    pages_.of(0).set_control_plane(plane_);
    NetworkConnections::Transports transports;
    transports.push_back(std::make_unique<StuckTransport>(connection_));
    std::vector<NetworkConnections::Peer> peers(1);
    peers[0].rank = 1;
    auto network =
        NetworkConnections::open(std::move(transports), std::move(peers), kShape.peer_ring(), 2, {});
    EXPECT_TRUE(network.is_ok()) << network.status().text();
    ranks_[0] = std::make_unique<HostExecutor>(HostExecutorOptions{.peers = pages_.of(0),
                                                                   .config = config_,
                                                                   .heap = *heap_,
                                                                   .shape = kShape,
                                                                   .network = std::move(*network)});
    rank(0).set_timeout(5000);
  }
  ~TornHostExecutorTest() override {
    ranks_ = {};
    plane_->close();
  }

  void begin_send() {
    const Message message{.buffer = sent_.data(), .bytes = sent_.size(), .peer = 1, .sending = true};
    ASSERT_TRUE(rank(0).begin({.messages = {message}, .shape = {}}));
  }
  static void expect_lost(const Status& status) {
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.text().find("its frames are malformed"), std::string::npos) << status.text();
  }

  std::unique_ptr<ControlThread> control_ = std::move(*ControlThread::start());
  FileDescriptor far_;  ///< of the control connection: rank 1 is there, and says nothing
  std::shared_ptr<ControlPlane> plane_;
  StuckConnection connection_;
  std::array<std::byte, 200> sent_{};
};

// The connection ended for good while the call waited for the network: the call took its bytes for sent, and
// returned success.
TEST_F(TornHostExecutorTest, ACallWhoseBytesAreLostFails) {
  begin_send();
  EXPECT_FALSE(has_ended(rank(0).poll())) << "the network has not taken the message";
  connection_.at = PeerState::kTorn;
  expect_lost(wait_until_failed(0));
}

// A later call that only sends filled the ring of a torn connection, and returned success.
TEST_F(TornHostExecutorTest, NoMessageIsSentToATornConnection) {
  connection_.at = PeerState::kTorn;
  connection_.is_drained = true;
  begin_send();
  expect_lost(wait_until_failed(0));
}

// A rank that waited for a message of any rank never looked at its connections, up to its deadline.
TEST_F(TornHostExecutorTest, AWaitForAnyRankEndsWithATornConnection) {
  connection_.at = PeerState::kTorn;
  expect_lost(rank(0).await_sender(7).status());
}

// Goal: a rank that has left needs no connection: calls between other ranks go on.
TEST_F(TornHostExecutorTest, ATornConnectionToARankThatHasLeftDoesNoHarm) {
  connection_.at = PeerState::kTorn;
  pages_.status(1).presence.store(StatusPage::kLeft);
  begin_send();
  EXPECT_EQ(rank(0).poll(), Progress::kDone);
  EXPECT_TRUE(rank(0).finish(Progress::kDone));
}

/// Two ranks on two hosts, joined by a socket.
class RemoteHostExecutorTest : public HostExecutorTest {
 protected:
  RemoteHostExecutorTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (uint32_t i = 0; i < 2; ++i) {
      std::vector<PeerSegment> memory = pages_.of(i).memory();
      memory[1 - i] = {.segment = memory[1 - i].segment, .is_remote = true};
      peers_[i] = std::make_unique<Peers>(i, 2);
      peers_[i]->set_hosts({0, 1});
      peers_[i]->set_own_page(pages_.header(i));
      peers_[i]->set_memory(memory);
      TransportOptions options{.rank = i, .rank_count = 2, .shape = kShape.peer_ring()};
      options.config.heartbeat_ms = 0;
      NetworkConnections::Transports transports;
      transports.push_back(std::move(*tcp::open_tcp_transport(options)));
      std::vector<NetworkConnections::Peer> peers(1);
      peers[0].rank = 1 - i;
      peers[0].sockets.emplace_back(ends[i]);
      auto network = NetworkConnections::open(std::move(transports), std::move(peers), options.shape, 2, {});
      EXPECT_TRUE(network.is_ok()) << network.status().text();
      ranks_[i] = std::make_unique<HostExecutor>(HostExecutorOptions{.peers = *peers_[i],
                                                                     .config = config_,
                                                                     .heap = *heap_,
                                                                     .shape = kShape,
                                                                     .network = std::move(*network)});
    }
  }

  ~RemoteHostExecutorTest() override { ranks_ = {}; }

  std::array<std::unique_ptr<Peers>, 2> peers_;
};

// Goal: a call between hosts ends, and afterwards the network has taken all of it.
TEST_F(RemoteHostExecutorTest, PollsMoveACallBetweenHosts) {
  EXPECT_FALSE(rank(0).facts().can_publish);
  EXPECT_EQ(rank(0).facts().host_count, 2u);
  std::array numbers = {Sum(kLong, 0), Sum(kLong, 1)};
  std::array bound = {bind(rank(0), kLong), bind(rank(1), kLong)};
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(rank(i).begin(*bound[i], numbers[i].call()));
  EXPECT_EQ(poll_both(), (std::array{Progress::kDone, Progress::kDone}));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(rank(i).finish(Progress::kDone));
    EXPECT_TRUE(numbers[i].is_right(2)) << "rank " << i;
    EXPECT_EQ(rank(i).unconfirmed_bytes(i), 0u) << "a rank on this host";
  }
}

// A rank that hands on blocks of other ranks reads their buffers. With short blocks of its own, the rank
// began the call without another look at the alert.
TEST_F(RemoteHostExecutorTest, ARankThatHandsBlocksOnLooksAtTheAlert) {
  rank(0).gather_blocks(find_algorithm(Collective::kAllToAll, "hierarchical"), kShape.slot_bytes);
  raise_alert(pages_.header(0).alert, Code::kAborted, 1, "rank 1 called tutti_comm_abort");
  std::array<std::byte, 4> own{};
  const Status begun =
      rank(0).begin({.messages = {{.buffer = own.data(), .bytes = own.size(), .peer = 1, .sending = true},
                                  {.buffer = own.data(), .bytes = own.size(), .peer = 1}},
                     .collective = true,
                     .shape = {.collective = Collective::kAllToAll, .variable = true, .count = 1}});
  EXPECT_EQ(begun.code(), Code::kAborted);
  EXPECT_FALSE(rank(0).has_begun());
}

// Goal: after a failure nothing is written to the buffers of the call any more.
TEST_F(RemoteHostExecutorTest, AFailureWithdrawsTheBuffers) {
  Sum numbers(kLong);
  const auto bound = bind(rank(0), kLong);
  ASSERT_TRUE(rank(0).begin(*bound, numbers.call()));
  EXPECT_FALSE(has_ended(rank(0).poll()));
  EXPECT_EQ(rank(0).fail({Code::kAborted, "given up"}).code(), Code::kAborted);
  EXPECT_TRUE(rank(0).buffers_are_free());
  const std::vector<int32_t> before = numbers.recv;
  Sum other(kLong, 1);
  const auto theirs = bind(rank(1), kLong);
  ASSERT_TRUE(rank(1).begin(*theirs, other.call()));
  EXPECT_FALSE(has_ended(rank(1).poll()));
  EXPECT_FALSE(has_ended(rank(0).poll())) << "what has come now is not the caller's";
  EXPECT_EQ(numbers.recv, before);
  // Nothing is sent to a peer that has failed.
  EXPECT_EQ(rank(1).fail({Code::kAborted, "given up"}).code(), Code::kAborted);
}

}  // namespace
}  // namespace tutti::test
