#include "net/frame_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tutti {

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
  const std::weak_ptr<int> alive = alive_;
  if ((events & EPOLLOUT) != 0 && !write()) queue_.clear();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0 && !alive.expired()) read();
}

void FrameSocket::read() {
  const std::weak_ptr<int> alive = alive_;
  std::array<std::byte, 65536> buffer;
  std::vector<Frame> frames;
  Status end;
  // One read per turn, so that a fast peer does not starve others. The rest makes the socket ready again.
  const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got > 0) {
    end = reader_.feed(std::span(buffer).first(static_cast<size_t>(got)), frames);
  } else if (got == 0) {
    end = Status(Code::kPeerLost, "the connection was closed");
  } else if (errno == EAGAIN || errno == EINTR) {
    return;
  } else if (errno == ENOMEM || errno == ENOBUFS) {
    end = system_error("receiving from a peer", errno);
  } else {
    end = Status(Code::kPeerLost, format("the connection broke: %s", std::strerror(errno)));
  }
  // Copied, because the handler may destroy this object.
  const auto on_frame = handlers_.on_frame;
  for (Frame& frame : frames) {
    if (!alive.expired() && !closed_) on_frame(std::move(frame));
  }
  if (!alive.expired() && !end) close(end);
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
  const bool wanted = !queue_.empty();
  if (wanted != writing_) loop_.change(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  writing_ = wanted;
  return true;
}

void FrameSocket::close(Status why) {
  if (closed_) return;
  closed_ = true;
  loop_.forget(socket_.get());
  guard_ = ForkGuard();
  socket_.reset();
  queue_.clear();
  // Copied, because the handler may destroy this object.
  const auto on_closed = handlers_.on_closed;
  on_closed(std::move(why));
}

}  // namespace tutti
