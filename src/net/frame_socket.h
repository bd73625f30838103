// FrameSocket: a connection that carries frames, on an event loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/file_descriptor.h"
#include "core/fork_guard.h"
#include "net/event_loop.h"
#include "net/frame.h"

namespace tutti {

class FrameSocket {
 public:
  using Body = std::shared_ptr<const std::vector<std::byte>>;
  /// A handler may destroy the FrameSocket that calls it.
  struct Handlers {
    /// If it throws, the frame comes again, as the handler has left it.
    std::function<void(Frame&)> on_frame;
    std::function<void(Status why)> on_closed;  ///< once, even if it throws: hang-up, error, invalid frames
  };

  /// `socket` is non-blocking.
  static Result<std::unique_ptr<FrameSocket>> open(EventLoop& loop, FileDescriptor socket,
                                                   size_t body_bytes_max, Handlers handlers);
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  /// What the kernel does not take now is sent later. The body is shared, because one table goes to many
  /// children. Sets `header.body_bytes`.
  void send(FrameHeader header, Body body = nullptr);
  bool is_drained() const { return queue_.empty() || closed_; }
  uint64_t sent_count() const { return sent_count_; }

 private:
  struct Outgoing {
    std::array<std::byte, kFrameHeaderBytes> header;
    Body body;
    size_t done = 0;  ///< bytes that the kernel has
  };

  FrameSocket(EventLoop& loop, FileDescriptor socket, size_t body_bytes_max, Handlers handlers)
      : loop_(loop),
        socket_(std::move(socket)),
        guard_(socket_.get()),
        reader_(body_bytes_max),
        handlers_(std::move(handlers)) {}
  void ready(uint32_t events);
  void read();
  Status receive();
  void deliver();
  /// False if the connection broke.
  bool write();
  /// Tells the loop what to wait for.
  void await();
  void close(Status why);

  EventLoop& loop_;
  FileDescriptor socket_;
  ForkGuard guard_;
  FrameReader reader_;
  Handlers handlers_;
  std::deque<Outgoing> queue_;
  bool awaits_room_ = false;  ///< the loop waits for room to send
  bool closed_ = false;
  uint64_t sent_count_ = 0;
  /// Expires with this object, which a handler may destroy.
  std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace tutti
