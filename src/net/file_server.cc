#include "net/file_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.h"

namespace tutti {
namespace {

// An answer is one small message into an empty socket. It waits only if a peer forces it to.
constexpr uint64_t kNoWaiting = 0;
constexpr uint64_t kRetryMs = 2;

/// Waits for `fd`, for the bootstrap, or until `until_ns`. Errors: as FetchOptions::check.
Status await(const FetchOptions& options, int fd, uint64_t until_ns) {
  const uint64_t now = now_ns();
  const uint64_t left_ms = until_ns > now ? std::min<uint64_t>((until_ns - now) / 1'000'000 + 1, 60'000) : 0;
  std::array<pollfd, 2> polls = {{{.fd = options.bootstrap_fd, .events = POLLIN, .revents = 0},
                                  {.fd = fd, .events = POLLIN, .revents = 0}}};
  poll(polls.data(), polls.size(), static_cast<int>(left_ms));  // returning early does no harm
  return options.check();
}

Result<LocalMessage> ask(const FetchOptions& options) {
  const auto connection = local_connect(options.name, options.deadline_ns, options.check);
  TUTTI_TRY(connection.status());
  TUTTI_TRY(local_send(connection->get(), options.secret, {}, options.deadline_ns));
  for (;;) {
    TUTTI_TRY(await(options, connection->get(), options.deadline_ns));
    auto answer = local_receive(connection->get(), kNoWaiting);
    if (answer || answer.status().code() != Code::kTimeout) return answer;
    if (now_ns() >= options.deadline_ns) return Status(Code::kTimeout, "no answer before the deadline");
  }
}

}  // namespace

Result<std::unique_ptr<FileServer>> FileServer::start(ControlThread& control, const std::string& name) {
  std::unique_ptr<FileServer> server(new FileServer(control));
  auto listener = local_listen(name);
  TUTTI_TRY(listener.status());
  server->listener_ = std::move(*listener);
  server->keep_spare();
  if (!server->spare_.is_open()) return system_error("fcntl(F_DUPFD_CLOEXEC)", errno);
  TUTTI_TRY(
      control.watch(server->listener_.get(), EPOLLIN, [raw = server.get()](uint32_t) { raw->accept(); }));
  return server;
}

void FileServer::offer(const FileSecret& secret, std::vector<int> files) {
  const std::scoped_lock lock(mutex_);
  offers_[secret] = std::move(files);
}

void FileServer::withdraw(const FileSecret& secret) {
  const std::scoped_lock lock(mutex_);
  offers_.erase(secret);
}

void FileServer::accept() {
  const auto take = [this](FileDescriptor visitor) {
    const int fd = visitor.get();
    visitors_[fd] = std::move(visitor);
    const Status watched =
        contained([&] { return control_.watch(fd, EPOLLIN, [this, fd](uint32_t) { answer(fd); }); });
    if (!watched) visitors_.erase(fd);
  };
  accept_waiting(control_, listener_, take);
  if (!visitors_.empty()) return;
  spare_.reset();
  if (FileDescriptor visitor = local_accept(listener_); visitor.is_open()) {
    take(std::move(visitor));
  } else {
    keep_spare();
  }
}

void FileServer::keep_spare() {
  if (!spare_.is_open()) spare_ = FileDescriptor(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
}

/// A visitor asks once, then closes.
void FileServer::answer(int fd) {
  const auto message = local_receive(fd, kNoWaiting);
  if (!message && message.status().code() == Code::kTimeout) return;
  FileSecret secret{};
  if (message && message->bytes.size() == secret.size()) {
    std::memcpy(secret.data(), message->bytes.data(), secret.size());
    const std::scoped_lock lock(mutex_);
    if (const auto found = offers_.find(secret); found != offers_.end()) {
      const Status sent = local_send(fd, std::span(secret), found->second, kNoWaiting);
      // The kernel limits the descriptors in transit per user: the visitor asks again, unless it has gone.
      if (sent.code() == Code::kSystemError) (void)local_send(fd, std::span(secret), {}, kNoWaiting);
    }
  }
  control_.forget(fd);
  visitors_.erase(fd);
  keep_spare();
}

Result<std::vector<FileDescriptor>> fetch_files(const FetchOptions& options) {
  for (;;) {
    auto answer = ask(options);
    TUTTI_TRY(answer.status());
    if (answer->files.size() == options.count) return std::move(answer->files);
    if (answer->bytes.empty()) {
      return Status(Code::kPeerLost, "its process no longer offers the files");
    }
    if (now_ns() >= options.deadline_ns) {
      return Status(
          Code::kSystemError,
          "too many descriptors are in transit between processes of this user: raise the limit (ulimit -n)");
    }
    constexpr int kNothing = -1;
    TUTTI_TRY(await(options, kNothing, std::min(options.deadline_ns, deadline_after_ms(kRetryMs))));
  }
}

}  // namespace tutti
