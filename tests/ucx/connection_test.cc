// Goal: a UCX connection keeps its promises whatever UCX and the peer do. Method: a scripted UCX, and a peer
// that is the test. The conformance suite (tests/transports) runs over UCX itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "tests/support/failing_allocations.h"
#include "tests/support/scope.h"
#include "tests/transports/mesh.h"
#include "tests/ucx/lone_connection.h"

namespace tutti::test {
namespace {

using ucx::MessageHead;
using ucx::Note;

std::vector<std::byte> payload(size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

void commit(LoneConnection& under_test, size_t bytes) {
  SendLink& link = under_test.rings[0].send;
  ASSERT_TRUE(link.can_write());
  std::fill_n(link.span(bytes), bytes, std::byte{5});
  link.commit(9, bytes);
}

std::array<std::byte, tcp::kHeaderBytes> header_of(const tcp::Frame& frame) {
  std::array<std::byte, tcp::kHeaderBytes> header{};
  tcp::encode(frame, header.data());
  return header;
}

bool has_text(const LoneConnection&, const Status& status, const char* text) {
  return status.text().find(text) != std::string::npos;
}

TEST(UcxConnectionTest, AFrameGoesOutWithThePeersTokenAndItsPayload) {
  LoneConnection under_test;
  commit(under_test, 1500);
  EXPECT_TRUE(under_test->turn());
  ASSERT_GE(under_test.ucp.sent.size(), 1u);
  const auto& message = under_test.ucp.sent[0];
  const auto head = ucx::decode_message(message.head);
  ASSERT_TRUE(head.is_ok());
  EXPECT_EQ(head->token, 2u);
  EXPECT_EQ(head->connection, 1u);
  EXPECT_EQ(message.data, payload(1500, 5));
}

// UCX may hold the last bytes back, and says so only to the next message.
TEST(UcxConnectionTest, AfterALongFrameAProbeShowsThatItHasLeft) {
  LoneConnection under_test;
  commit(under_test, 1500);
  under_test->turn();
  ASSERT_EQ(under_test.ucp.sent.size(), 2u);
  EXPECT_EQ(ucx::decode_message(under_test.ucp.sent[1].head)->kind, MessageHead::Kind::kProbe);
  EXPECT_TRUE(under_test->drained());
  EXPECT_EQ(under_test->unconfirmed_bytes(), 0u);
}

TEST(UcxConnectionTest, AShortFrameNeedsNoProbeWhileThePeerConfirms) {
  LoneConnection under_test;
  for (uint32_t round = 1; round <= 4 * LoneConnection::kShape.slots; ++round) {
    commit(under_test, 8);
    under_test->turn();
    under_test.message({.received = round}, tcp::Frame{.kind = tcp::FrameKind::kCredit, .credit = round}, {});
  }
  EXPECT_EQ(under_test.ucp.sent.size(), 4 * LoneConnection::kShape.slots);
  EXPECT_TRUE(under_test->drained());
}

TEST(UcxConnectionTest, AMessageThatUcxHoldsIsNotDrainedAndKeepsItsSlot) {
  LoneConnection under_test;
  under_test.ucp.holds_sends = true;
  commit(under_test, 1500);
  under_test->turn();
  EXPECT_FALSE(under_test->drained());
  EXPECT_GT(under_test->unconfirmed_bytes(), 1500u);
  EXPECT_EQ(under_test.rings[0].send.released(), 0u);
  under_test.ucp.end_send(UCS_OK);
  EXPECT_EQ(under_test.rings[0].send.released(), 1u);
  under_test->turn();
  ASSERT_EQ(under_test.ucp.waiting.size(), 1u) << "the probe";
  EXPECT_FALSE(under_test->drained());
  under_test.ucp.end_send(UCS_OK);
  under_test->turn();
  EXPECT_TRUE(under_test->drained());
  EXPECT_EQ(under_test->unconfirmed_bytes(), 0u);
}

TEST(UcxConnectionTest, ARefusedSendTearsTheConnectionWithUcxsWords) {
  for (const bool at_once : {true, false}) {
    LoneConnection under_test;
    if (at_once) under_test.ucp.send_answer = UCS_ERR_ENDPOINT_TIMEOUT;
    under_test.ucp.holds_sends = true;
    commit(under_test, 100);
    under_test->turn();
    if (!at_once) under_test.ucp.end_send(UCS_ERR_ENDPOINT_TIMEOUT);
    under_test->turn();
    EXPECT_EQ(under_test->state(), PeerState::kTorn);
    EXPECT_EQ(under_test->status().code(), Code::kPeerLost);
    EXPECT_TRUE(has_text(under_test, under_test->status(), "rank 7"));
    EXPECT_TRUE(has_text(under_test, under_test->status(), "UCX_NET_DEVICES")) << under_test->status().text();
    EXPECT_TRUE(under_test.ucp.is_closed);
    EXPECT_TRUE(under_test->drained());
  }
}

TEST(UcxConnectionTest, AnEagerPayloadGoesStraightIntoThePostedReceive) {
  LoneConnection under_test;
  std::vector<std::byte> target(1000);
  under_test.rings[0].offer = {.first = 0, .address = target.data(), .bytes = 1000, .slice_bytes = 1000};
  const tcp::Frame frame{.count = 1, .number = 0, .signature = 9, .bytes = 1000};
  EXPECT_EQ(under_test.message({}, frame, payload(1000, 3)), UCS_OK);
  EXPECT_TRUE(under_test.rings[0].recv.has_arrived());
  EXPECT_EQ(target, payload(1000, 3));
}

TEST(UcxConnectionTest, ARendezvousFillsPostedReceivesAndIsPublishedWhenAllIsThere) {
  LoneConnection under_test;
  std::vector<std::byte> target(2000);
  under_test.rings[0].offer = {.first = 0, .address = target.data(), .bytes = 2000, .slice_bytes = 1000};
  const tcp::Frame frame{.count = 3, .number = 0, .signature = 9, .bytes = 1000};
  EXPECT_EQ(under_test.message({}, frame, payload(3000, 0), true), UCS_INPROGRESS);
  ASSERT_EQ(under_test.ucp.fillings.size(), 1u);
  EXPECT_EQ(under_test.ucp.fillings[0].places.size(), 2u) << "the posted receive, and a slot";
  EXPECT_FALSE(under_test.rings[0].recv.has_arrived());
  under_test.ucp.end_filling(UCS_OK, std::byte{4});
  EXPECT_TRUE(under_test.rings[0].recv.has_arrived());
  EXPECT_EQ(target, payload(2000, 4));
}

// Goal: after withdraw() nobody writes to the buffer, even if the peer never ends the rendezvous.
TEST(UcxConnectionTest, AWithdrawnRendezvousThatDoesNotEndClosesTheEndpoint) {
  LoneConnection under_test;
  std::vector<std::byte> target(1000);
  under_test.rings[0].offer = {.first = 0, .address = target.data(), .bytes = 1000, .slice_bytes = 1000};
  const tcp::Frame frame{.count = 1, .number = 0, .signature = 9, .bytes = 1000};
  under_test.message({}, frame, payload(1000, 0), true);
  under_test.rings[0].offer = {};
  under_test->withdraw();
  EXPECT_TRUE(under_test.ucp.is_closed);
  EXPECT_TRUE(under_test.ucp.fillings.empty());
  EXPECT_EQ(under_test->state(), PeerState::kTorn);
  EXPECT_EQ(target, payload(1000, 0));
}

TEST(UcxConnectionTest, WithdrawLeavesARendezvousIntoSlotsAlone) {
  LoneConnection under_test;
  const tcp::Frame frame{.count = 1, .number = 0, .signature = 9, .bytes = 1000};
  under_test.message({}, frame, payload(1000, 0), true);
  under_test->withdraw();
  EXPECT_EQ(under_test->state(), PeerState::kOpen);
  under_test.ucp.end_filling(UCS_OK, std::byte{4});
  EXPECT_TRUE(under_test.rings[0].recv.has_arrived());
}

// The end travels by the socket, and may overtake messages.
TEST(UcxConnectionTest, AnEndWaitsForTheFramesBeforeIt) {
  LoneConnection under_test;
  under_test.note({.kind = Note::Kind::kEnd, .frames = 2});
  under_test.message({}, tcp::Frame{.count = 1, .number = 0, .signature = 9, .bytes = 8}, payload(8, 1));
  under_test->look_at_socket();
  EXPECT_EQ(under_test->state(), PeerState::kOpen);
  under_test.message({}, tcp::Frame{.count = 1, .number = 1, .signature = 9, .bytes = 8}, payload(8, 1));
  under_test->turn();
  EXPECT_EQ(under_test->state(), PeerState::kEnded);
}

// UCX tells of the peer's closed endpoint, perhaps before this rank has looked at the socket.
TEST(UcxConnectionTest, AFailedEndpointAfterTheEndIsAnEnd) {
  for (const bool with_end : {true, false}) {
    LoneConnection under_test;
    if (with_end) under_test.note({.kind = Note::Kind::kEnd, .frames = 0});
    under_test.ucp.fail_endpoint(UCS_ERR_CONNECTION_RESET);
    under_test->turn();
    EXPECT_EQ(under_test->state(), with_end ? PeerState::kEnded : PeerState::kTorn);
  }
}

// Both sides waited until the deadline of set-up: the peer for what this endpoint had lost.
TEST(UcxConnectionTest, AnEndpointThatFailsBeforeThePeerIsReadyEndsTheSetUp) {
  LoneConnection under_test(false);
  under_test.ucp.fail_endpoint(UCS_ERR_ENDPOINT_TIMEOUT);
  const Status status = under_test->greet();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_TRUE(has_text(under_test, status, "rank 7")) << status.text();
}

TEST(UcxConnectionTest, AClosedSocketWithoutAnEndIsALostPeer) {
  LoneConnection under_test;
  under_test.peer = FileDescriptor();
  under_test->look_at_socket();
  EXPECT_EQ(under_test->state(), PeerState::kTorn);
  EXPECT_TRUE(has_text(under_test, under_test->status(), "rank 7"));
}

TEST(UcxConnectionTest, FinishWaitsForThePeersWord) {
  LoneConnection under_test;
  commit(under_test, 8);
  under_test->turn();
  under_test->finish();
  EXPECT_EQ(under_test->unconfirmed_bytes(), 1u);
  std::array<std::byte, ucx::kNoteBytes> bytes{};
  ASSERT_EQ(::recv(under_test.peer.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(*ucx::decode_note(bytes), (Note{.kind = Note::Kind::kEnd, .frames = 1}));
  under_test.note({.kind = Note::Kind::kSeen});
  under_test->look_at_socket();
  under_test->turn();
  EXPECT_EQ(under_test->unconfirmed_bytes(), 0u);
}

TEST(UcxConnectionTest, ABrokenProtocolIsToldWithWhatWasSent) {
  const tcp::Frame good{.count = 1, .number = 0, .signature = 9, .bytes = 8};
  struct Wrong {
    MessageHead head;
    tcp::Frame frame;
    size_t bytes;
    const char* text;
  };
  tcp::Frame channel = good;
  channel.channel = 5;
  tcp::Frame credit = good;
  credit.credit = 3;
  for (const Wrong& wrong : {Wrong{{}, good, 9, "with 9 bytes"}, Wrong{{}, channel, 8, "channel 5"},
                             Wrong{{}, credit, 8, "credit"}, Wrong{{.received = 4}, good, 8, "receipt"}}) {
    LoneConnection under_test;
    under_test.message(wrong.head, wrong.frame, payload(wrong.bytes, 0));
    under_test->turn();
    EXPECT_EQ(under_test->state(), PeerState::kTorn);
    EXPECT_TRUE(has_text(under_test, under_test->status(), wrong.text)) << under_test->status().text();
  }
  LoneConnection under_test;
  under_test.write(std::vector<std::byte>(16, std::byte{1}));
  under_test->look_at_socket();
  EXPECT_EQ(under_test->state(), PeerState::kTorn);
}

/// What UCX tells while memory is short, and what must be under way for it.
struct Told {
  const char* name;
  std::function<void(LoneConnection&)> prepare;
  std::function<void(LoneConnection&)> tell;
};

std::vector<Told> all_told() {
  static const tcp::Frame long_frame{.count = 1, .number = 0, .signature = 9, .bytes = 1000};
  const auto none = [](LoneConnection&) {};
  const auto rendezvous = [](LoneConnection& one) { one.message({}, long_frame, payload(1000, 0), true); };
  const auto held_send = [](LoneConnection& one) {
    one.ucp.holds_sends = true;
    commit(one, 100);
    one->turn();
  };
  static std::vector<std::byte> data;
  data = payload(1000, 0);
  return {
      {"a frame of wrong length", none,
       [](LoneConnection& one) { one->receive({}, header_of(long_frame).data(), data.data(), 999, false); }},
      {"a rendezvous", none,
       [](LoneConnection& one) { one->receive({}, header_of(long_frame).data(), data.data(), 1000, true); }},
      {"a failed rendezvous", rendezvous,
       [](LoneConnection& one) { one.ucp.end_filling(UCS_ERR_CANCELED, {}); }},
      {"a failed send", held_send, [](LoneConnection& one) { one.ucp.end_send(UCS_ERR_CANCELED); }},
      {"a failed endpoint", none,
       [](LoneConnection& one) { one.ucp.fail_endpoint(UCS_ERR_CONNECTION_RESET); }},
  };
}

// Exceptions went through UCX's functions of C. Method: each allocation of each callback fails in its turn.
TEST(UcxConnectionTest, ACallbackWithoutMemoryEndsTheConnectionAndThrowsNothing) {
  for (const Told& told : all_told()) {
    uint64_t turns = 0;
    for (bool has_failed = true; has_failed; ++turns) {
      LoneConnection under_test;
      told.prepare(under_test);
      {
        const FailingAllocations shortage(turns);
        EXPECT_NO_THROW(told.tell(under_test)) << told.name;
        has_failed = FailingAllocations::have_failed();
      }
      if (!has_failed) break;
      under_test->turn();
      EXPECT_EQ(under_test->state(), PeerState::kTorn) << told.name << ", allocation " << turns;
      EXPECT_EQ(under_test->status().code(), Code::kPeerLost) << told.name;
      EXPECT_TRUE(has_text(under_test, under_test->status(), "rank 7")) << told.name;
      EXPECT_FALSE(under_test->is_busy()) << told.name;
    }
    EXPECT_GT(turns, 0u) << told.name << ": allocates nothing";
  }
}

// Goal: no bytes of a peer write outside rings and posted receives, or leave the connection without a
// verdict.
TEST(UcxConnectionTest, AnyFramesAreMessagesOrAnError) {
  std::mt19937_64 random(1);
  for (uint64_t run = 0; run < runs_of_scope(300, 20'000); ++run) {
    LoneConnection under_test;
    std::vector<std::byte> target(3000);
    under_test.rings[0].offer = {.first = 1, .address = target.data(), .bytes = 3000, .slice_bytes = 1000};
    for (int i = 0; i < 20 && under_test->state() == PeerState::kOpen; ++i) {
      const tcp::Frame frame{
          .kind = static_cast<tcp::FrameKind>(random() % 8 == 0),
          .channel = static_cast<uint32_t>(random() % 8 == 0 ? random() % 256 : random() % 2),
          .count = static_cast<uint32_t>(random() % 6),
          .number = random() % 8,
          .bytes = static_cast<uint32_t>(random() % 3 == 0 ? 1000 : random() % 2100),
          .credit = static_cast<uint32_t>(random() % 16 == 0)};
      const size_t bytes = random() % 8 == 0 ? random() % 5000 : size_t{frame.count} * frame.bytes;
      under_test.message({.received = static_cast<uint32_t>(random() % 16 == 0)}, frame, payload(bytes, 1),
                         random() % 2 == 0);
      if (!under_test.ucp.fillings.empty() && random() % 2 == 0)
        under_test.ucp.end_filling(random() % 8 == 0 ? UCS_ERR_CANCELED : UCS_OK, std::byte{2});
      under_test->turn();
      for (auto& ring : under_test.rings) {
        while (ring.recv.has_arrived()) ring.recv.release(ring.recv.word());
      }
    }
    under_test.peer = FileDescriptor();
    under_test->look_at_socket();
    EXPECT_NE(under_test->state(), PeerState::kOpen);
    EXPECT_TRUE(has_text(under_test, under_test->status(), "rank 7"));
  }
}

// The suites of tests/transports run over UCX only where it is installed.
TEST(UcxMeshTest, LongMessagesOfManyChannelsArrive) {
  for (const TransportCase& one : transport_cases()) {
    if (one.name != "ucx") continue;
    Mesh mesh(one, {.shape = {.slots = 8, .slot_bytes = 65536}, .channels = 3});
    Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), 3, 100, true);
    EXPECT_EQ(run_traffic(mesh, traffic, 3), "");
    return;
  }
  GTEST_SKIP() << "UCX is not installed (package libucx0)";
}

}  // namespace
}  // namespace tutti::test
