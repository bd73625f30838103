#include "net/frame_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

// Made when the library is loaded, and never destroyed: the end of a connection is told without memory.
const auto* const kClosed = new Status(Code::kPeerLost, "the connection was closed");
const auto* const kBroken = new Status(Code::kPeerLost, "the connection broke");

Status broken(int error_number) noexcept {
  return made_or(*kBroken, [error_number]() -> Status {
    if (error_number == ENOMEM || error_number == ENOBUFS)
      return system_error("receiving from a peer", error_number);
    return {Code::kPeerLost, format("the connection broke: %s", std::strerror(error_number))};
  });
}

}  // namespace

Result<std::unique_ptr<FrameSocket>> FrameSocket::open(EventLoop& loop, FileDescriptor socket,
                                                       size_t body_bytes_max, Handlers handlers) {
  std::unique_ptr<FrameSocket> stream(
      new FrameSocket(loop, std::move(socket), body_bytes_max, std::move(handlers)));
  TUTTI_TRY(loop.watch(stream->socket_.get(), EPOLLIN,
                       [raw = stream.get()](uint32_t events) { raw->ready(events); }));
  return stream;
}

FrameSocket::~FrameSocket() {
  if (!closed_) loop_.forget(socket_.get());
}

void FrameSocket::send(FrameHeader header, Body body) {
  if (closed_) return;
  header.body_bytes = body != nullptr ? static_cast<uint32_t>(body->size()) : 0;
  queue_.push_back({encode(header), std::move(body)});
  ++sent_count_;
  // The loop reports a broken connection when it reads.
  if (queue_.size() == 1 && !write()) queue_.clear();
}

void FrameSocket::ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0 && !write()) queue_.clear();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 || reader_.is_whole()) read();
}

/// One frame per turn, or a part of it, so that a fast peer does not starve others. The rest makes the socket
/// ready again.
void FrameSocket::read() {
  const Status received = reader_.is_whole() ? Status::ok() : receive();
  if (!received) return close(received);
  if (reader_.is_whole()) deliver();
}

/// Takes a header and what there is of its body. Memory comes first: without it the bytes stay in the kernel.
Status FrameSocket::receive() {
  for (int part = 0; part < 2 && !reader_.is_whole(); ++part) {
    const std::span<std::byte> room = reader_.room();
    const ssize_t got = recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got == 0) return *kClosed;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got < 0) return broken(errno);
    TUTTI_TRY(reader_.fill(static_cast<size_t>(got)));
  }
  return Status::ok();
}

void FrameSocket::deliver() {
  const std::weak_ptr<int> alive = alive_;
  Frame frame = reader_.take();
  try {
    // Copied, because the handler may destroy this object.
    const auto on_frame = handlers_.on_frame;
    on_frame(frame);
  } catch (...) {
    // The kernel has no byte of this frame any more that makes the socket ready. Room for output does.
    if (!alive.expired()) {
      reader_.put_back(std::move(frame));
      await();
    }
    throw;
  }
}

bool FrameSocket::write() {
  while (!queue_.empty()) {
    Outgoing& front = queue_.front();
    std::array<iovec, 2> parts{};
    size_t count = 0;
    size_t skip = front.done;
    size_t total = 0;
    const auto add = [&](const std::byte* data, size_t bytes) {
      total += bytes;
      const size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped) parts[count++] = {const_cast<std::byte*>(data) + skipped, bytes - skipped};
    };
    add(front.header.data(), front.header.size());
    if (front.body != nullptr) add(front.body->data(), front.body->size());
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent > 0) front.done += static_cast<size_t>(sent);
    if (front.done == total) {
      queue_.pop_front();
      continue;
    }
    if (sent < 0) break;
  }
  await();
  return true;
}

void FrameSocket::await() {
  const bool is_wanted = !queue_.empty() || reader_.is_whole();
  if (is_wanted != awaits_room_) loop_.change(socket_.get(), is_wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  awaits_room_ = is_wanted;
}

void FrameSocket::close(Status why) {
  if (closed_) return;
  closed_ = true;
  loop_.forget(socket_.get());
  guard_ = ForkGuard();
  socket_.reset();
  queue_.clear();
  // Moved out, because the handler may destroy this object.
  const auto on_closed = std::move(handlers_.on_closed);
  on_closed(std::move(why));
}

}  // namespace tutti
