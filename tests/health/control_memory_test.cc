// A control thread that runs out of memory goes on: it loses no message and no death, and does later what it
// could not do. Any allocation that failed there once ended the process.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "health/control_plane.h"
#include "health/heartbeat.h"
#include "net/frame.h"
#include "tests/support/control_shortage.h"

namespace tutti::test {
namespace {

// Beats are 25 ms apart: a control thread that pauses for memory is not taken for a stopped one.
constexpr uint64_t kHeartbeatMs = 100;
// Beats are 5 ms apart.
constexpr uint64_t kShortHeartbeatMs = 20;
constexpr uint64_t kNoHeartbeat = 0;

/// The far end of a control connection.
class FarEnd {
 public:
  explicit FarEnd(FileDescriptor socket) : socket_(std::move(socket)) {
    // What never comes fails the test, and does not hang it.
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  void send(const std::vector<Frame>& frames) {
    std::vector<std::byte> bytes;
    for (const Frame& frame : frames) {
      FrameHeader header = frame.header;
      header.body_bytes = static_cast<uint32_t>(frame.body.size());
      const auto head = encode(header);
      bytes.insert(bytes.end(), head.begin(), head.end());
      bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
    }
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// The next frame; of the default kind, kFail, if none comes.
  Frame receive() {
    while (!reader_.is_whole()) {
      const auto room = reader_.room();
      const ssize_t got = recv(socket_.get(), room.data(), room.size(), 0);
      if (got <= 0 || !reader_.fill(static_cast<size_t>(got))) return {};
    }
    return reader_.take();
  }
  /// Takes what comes before, which nobody looks at.
  bool is_hung_up() {
    std::byte byte{};
    ssize_t got = 1;
    while (got > 0) got = recv(socket_.get(), &byte, 1, 0);
    return got == 0;
  }
  void hang_up() { socket_.reset(); }

 private:
  FileDescriptor socket_;
  FrameReader reader_{0};
};

std::pair<FileDescriptor, FileDescriptor> make_ends() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// What a peer's death, or its silence, was told as.
struct Fate {
  std::promise<Status> why;
  std::atomic<int> told = 0;
  void lose(const Status& reason) {
    if (told++ == 0) why.set_value(reason);
  }
};

/// A control plane with one peer, rank 1, whose end the test holds.
class ControlMemoryTest : public testing::Test {
 protected:
  ~ControlMemoryTest() override {
    if (plane_ != nullptr) plane_->close();
  }

  ControlPlane::Handlers handlers() {
    return {.on_alert =
                [this](uint32_t, const Status& why) {
                  note(FrameKind::kAlert);
                  alert_ = why;
                },
            .on_left = [this](uint32_t) { note(FrameKind::kLeft); },
            .on_lost = [this](uint32_t, bool, const Status& why) { fate_.lose(why); },
            .report = [](uint32_t) { return StatusCopy(); },
            .on_members =
                [this](uint32_t, std::span<const std::byte> members) {
                  members_ = std::vector<std::byte>(members.begin(), members.end());
                  note(FrameKind::kMembers);
                },
            .on_renew =
                [this](uint32_t, const Frame& frame) {
                  renewal_ = Frame(frame).body;
                  note(FrameKind::kRenew);
                }};
  }

  /// `heartbeat_ms`: as for ControlPlane::open.
  Status open(uint64_t heartbeat_ms) {
    auto [near, far] = make_ends();
    far_ = std::make_unique<FarEnd>(std::move(far));
    std::vector<ControlPlane::Peer> peers;
    peers.push_back({.rank = 1, .socket = std::move(near)});
    auto opened = ControlPlane::open(*control_, std::move(peers), heartbeat_ms, handlers());
    TUTTI_TRY(opened.status());
    plane_ = std::move(*opened);
    return Status::ok();
  }

  std::unique_ptr<ControlThread> control_ = std::move(*ControlThread::start());
  std::unique_ptr<FarEnd> far_;
  std::shared_ptr<ControlPlane> plane_;
  Fate fate_;
  // Of the control thread, which allocates only what the handlers keep:
  std::array<FrameKind, 8> heard_{};
  size_t heard_count_ = 0;
  Status alert_;
  std::vector<std::byte> members_;
  std::vector<std::byte> renewal_;

 private:
  void note(FrameKind kind) {
    if (heard_count_ < heard_.size()) heard_[heard_count_] = kind;
    ++heard_count_;
  }
};

// Goal: beats go on after any failed allocation. Method: in each turn a later allocation of the control
// thread fails, until none does within so many beats that the queue of messages grows.
TEST_F(ControlMemoryTest, BeatsGoOn) {
  ASSERT_TRUE(open(kShortHeartbeatMs));
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(*control_, turn);
    for (int beat = 0; beat < 12; ++beat) ASSERT_EQ(far_->receive().header.kind, FrameKind::kBeat) << turn;
    has_failed = shortage.has_failed();
  }
  EXPECT_EQ(fate_.told, 0);
}

// Goal: messages are handled once each and in their order, whatever allocation fails for any of them. Method:
// a question before and behind all others tells when they have been handled.
TEST_F(ControlMemoryTest, MessagesAreHandledOnceAndInOrder) {
  ASSERT_TRUE(open(kNoHeartbeat));
  const std::string reason = "rank 1 has found out that the calls of all ranks differ";
  bool has_failed = true;
  for (uint32_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(*control_, turn);
    far_->send({{.header = {.kind = FrameKind::kAsk, .number = 2 * turn}, .body = {}},
                {.header = {.kind = FrameKind::kAlert, .code = static_cast<uint32_t>(Code::kMismatch)},
                 .body = bytes_of(reason)},
                {.header = {.kind = FrameKind::kMembers}, .body = bytes_of("the members")},
                {.header = {.kind = FrameKind::kRenew}, .body = bytes_of("where to connect")},
                {.header = {.kind = FrameKind::kLeft}, .body = {}},
                {.header = {.kind = FrameKind::kAsk, .number = 2 * turn + 1}, .body = {}}});
    for (uint32_t answer = 0; answer < 2; ++answer) {
      const Frame report = far_->receive();
      ASSERT_EQ(report.header.kind, FrameKind::kReport) << turn;
      EXPECT_EQ(report.header.number, 2 * turn + answer);
      EXPECT_EQ(report.body.size(), kStatusCopyBytes);
    }
    has_failed = shortage.has_failed();
    const auto hold = control_->hold();
    ASSERT_EQ(std::exchange(heard_count_, 0), 4u) << turn;
    EXPECT_EQ(heard_[0], FrameKind::kAlert);
    EXPECT_EQ(heard_[1], FrameKind::kMembers);
    EXPECT_EQ(heard_[2], FrameKind::kRenew);
    EXPECT_EQ(heard_[3], FrameKind::kLeft);
    EXPECT_EQ(alert_.code(), Code::kMismatch);
    EXPECT_EQ(alert_.text(), reason);
    EXPECT_EQ(members_, bytes_of("the members"));
    EXPECT_EQ(renewal_, bytes_of("where to connect"));
  }
  EXPECT_EQ(fate_.told, 0);
}

// Goal: an answer is taken once, whatever allocation fails.
TEST_F(ControlMemoryTest, AnAnswerIsCounted) {
  ASSERT_TRUE(open(kNoHeartbeat));
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    ControlShortage shortage(*control_, turn);
    EXPECT_EQ(plane_->ask(1), turn + 1);
    ASSERT_EQ(far_->receive().header.kind, FrameKind::kAsk);
    far_->send({{.header = {.kind = FrameKind::kReport}, .body = std::vector<std::byte>(kStatusCopyBytes)},
                {.header = {.kind = FrameKind::kAsk}, .body = {}}});
    ASSERT_EQ(far_->receive().header.kind, FrameKind::kReport) << "all before has been handled";
    EXPECT_EQ(plane_->view(1).answers, turn + 1);
    has_failed = shortage.has_failed();
  }
}

// Goal: a death is told while there is no memory at all.
TEST_F(ControlMemoryTest, ADeathIsTold) {
  ASSERT_TRUE(open(kNoHeartbeat));
  const ControlShortage shortage(*control_, 0, UINT64_MAX);
  far_->hang_up();
  const Status why = fate_.why.get_future().get();
  EXPECT_EQ(why.code(), Code::kPeerLost);
  EXPECT_NE(why.text().find("has ended"), why.text().npos) << why.text();
}

// Goal: the same behind messages for which memory is short: once there is memory, all come in their order.
TEST_F(ControlMemoryTest, AnAlertBeforeADeathIsTold) {
  ASSERT_TRUE(open(kNoHeartbeat));
  {
    const ControlShortage shortage(*control_, 0, UINT64_MAX);
    far_->send({{.header = {.kind = FrameKind::kAlert, .code = static_cast<uint32_t>(Code::kMismatch)},
                 .body = bytes_of("calls differ")}});
    far_->hang_up();
  }
  EXPECT_EQ(fate_.why.get_future().get().code(), Code::kPeerLost);
  const auto hold = control_->hold();
  EXPECT_EQ(heard_count_, 1u);
  EXPECT_EQ(alert_.text(), "calls differ");
}

// Goal: silence is told while there is no memory at all, once.
TEST_F(ControlMemoryTest, ASilentPeerIsLost) {
  ASSERT_TRUE(open(kHeartbeatMs));
  const ControlShortage shortage(*control_, 0, UINT64_MAX);
  plane_->expect_beats();
  const Status why = fate_.why.get_future().get();
  EXPECT_EQ(why.code(), Code::kPeerLost);
  EXPECT_NE(why.text().find("no sign of life"), why.text().npos) << why.text();
  EXPECT_EQ(fate_.told, 1);
}

// The same for a process of this host.
TEST_F(ControlMemoryTest, AStoppedProcessIsLost) {
  std::atomic<uint32_t> own = 0;
  const std::atomic<uint32_t> other = 0;
  auto heartbeat = Heartbeat::start(*control_, kHeartbeatMs, own, {{.rank = 1, .heartbeat = &other}},
                                    [this](uint32_t, const Status& why) { fate_.lose(why); });
  ASSERT_TRUE(heartbeat.status().is_ok()) << heartbeat.status().text();
  const ControlShortage shortage(*control_, 0, UINT64_MAX);
  (*heartbeat)->expect_beats();
  const Status why = fate_.why.get_future().get();
  EXPECT_EQ(why.code(), Code::kPeerLost);
  EXPECT_NE(why.text().find("no sign of life"), why.text().npos) << why.text();
}

// Goal: a control plane that cannot be opened leaves no connection behind. Method: each allocation of the
// opening fails in turn; this thread makes them.
TEST_F(ControlMemoryTest, AnOpeningFailsWhole) {
  for (uint64_t turn = 0;; ++turn) {
    Status opened;
    {
      const FailingAllocations shortage(turn);
      opened = contained([this] { return open(kHeartbeatMs); });
    }
    const bool has_failed = FailingAllocations::have_failed();
    ASSERT_EQ(opened.code(), has_failed ? Code::kOutOfMemory : Code::kOk) << turn;
    if (!has_failed) break;
    if (far_ != nullptr) {
      EXPECT_TRUE(far_->is_hung_up()) << turn;
    }
    far_.reset();
  }
  EXPECT_EQ(far_->receive().header.kind, FrameKind::kBeat);
}

}  // namespace
}  // namespace tutti::test
