// Frames on a socket: all come, once and in their order, also when memory is short.
#include "net/frame_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "net/event_loop.h"
#include "tests/support/failing_allocations.h"

namespace tutti::test {
namespace {

/// A FrameSocket whose frames the test keeps, and the far end, into which it writes.
class FrameSocketTest : public testing::Test {
 protected:
  void open() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    far_ = FileDescriptor(ends[1]);
    frames_.clear();
    auto opened =
        FrameSocket::open(*loop_, FileDescriptor(ends[0]), kLongBody,
                          {.on_frame = [this](Frame& frame) { frames_.push_back(std::move(frame)); },
                           .on_closed = [this](const Status& why) { closed_ = why; }});
    ASSERT_TRUE(opened.status().is_ok()) << opened.status().text();
    socket_ = std::move(*opened);
  }

  static std::vector<std::byte> stream_of(const std::vector<Frame>& frames) {
    std::vector<std::byte> stream;
    for (const Frame& frame : frames) {
      FrameHeader header = frame.header;
      header.body_bytes = static_cast<uint32_t>(frame.body.size());
      const auto head = encode(header);
      stream.insert(stream.end(), head.begin(), head.end());
      stream.insert(stream.end(), frame.body.begin(), frame.body.end());
    }
    return stream;
  }

  /// Writes what the kernel takes.
  void write(std::span<const std::byte>& stream) {
    const ssize_t sent = send(far_.get(), stream.data(), stream.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) stream = stream.subspan(static_cast<size_t>(sent));
  }

  static constexpr size_t kLongBody = 300'000;
  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::create());
  FileDescriptor far_;
  std::vector<Frame> frames_;
  Status closed_;
  std::unique_ptr<FrameSocket> socket_;
};

// Goal: no allocation that fails loses a frame, or a part of one, or brings one twice. Method: in each turn a
// later allocation fails, until none does, while frames of all lengths are read and kept.
TEST_F(FrameSocketTest, NoFrameIsLostWithoutMemory) {
  const std::vector<Frame> sent = {
      {.header = {.kind = FrameKind::kLeave}, .body = {}},
      {.header = {.kind = FrameKind::kUp, .number = 1},
       .body = std::vector<std::byte>(kLongBody, std::byte{7})},
      {.header = {.kind = FrameKind::kFail}, .body = std::vector<std::byte>(100, std::byte{8})},
      {.header = {.kind = FrameKind::kLeave, .number = 3}, .body = {}}};
  const std::vector<std::byte> stream = stream_of(sent);
  bool has_failed = true;
  for (uint64_t turn = 0; has_failed; ++turn) {
    open();
    std::span<const std::byte> unsent = stream;
    {
      const FailingAllocations shortage(turn);
      while (frames_.size() < sent.size()) {
        write(unsent);
        try {
          ASSERT_TRUE(loop_->run_ready()) << "turn " << turn << ": nothing is ready";
        } catch (const std::bad_alloc&) {
        }
      }
    }
    has_failed = FailingAllocations::have_failed();
    EXPECT_FALSE(loop_->run_ready() && loop_->run_ready()) << "what has been read is not ready";
    ASSERT_EQ(frames_.size(), sent.size()) << turn;
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(frames_[i].header.kind, sent[i].header.kind);
      EXPECT_EQ(frames_[i].header.number, sent[i].header.number);
      EXPECT_EQ(frames_[i].body, sent[i].body) << "turn " << turn << ", frame " << i;
    }
  }
  EXPECT_TRUE(closed_.is_ok());
}

// Goal: the end of a connection, and bytes that are no frame, are told without memory.
TEST_F(FrameSocketTest, AnEndIsToldWithoutMemory) {
  const std::vector<std::byte> garbage(kFrameHeaderBytes, std::byte{0xff});
  for (const bool is_garbage : {false, true}) {
    open();
    std::span<const std::byte> unsent = garbage;
    if (is_garbage) write(unsent);
    far_.reset();
    {
      const FailingAllocations shortage(0, UINT64_MAX);
      EXPECT_TRUE(loop_->run_ready());
    }
    EXPECT_EQ(closed_.code(), is_garbage ? Code::kMismatch : Code::kPeerLost) << closed_.text();
    EXPECT_TRUE(frames_.empty());
  }
}

}  // namespace
}  // namespace tutti::test
