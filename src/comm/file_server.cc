#include "comm/file_server.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

namespace tutti {
namespace {

// An answer is one small message into an empty socket: it never waits, unless somebody tries to make it.
constexpr uint64_t kNoWaiting = 0;

}  // namespace

Result<std::unique_ptr<FileServer>> FileServer::start(ControlThread& control, const std::string& name) {
  std::unique_ptr<FileServer> server(new FileServer(control));
  auto listener = local_listen(name);
  TUTTI_TRY(listener.status());
  server->listener_ = std::move(*listener);
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
  accept_waiting(control_, listener_, [this](FileDescriptor visitor) {
    const int fd = visitor.get();
    if (control_.watch(fd, EPOLLIN, [this, fd](uint32_t) { answer(fd); })) visitors_[fd] = std::move(visitor);
  });
}

/// Whoever comes asks once, and closes.
void FileServer::answer(int fd) {
  const auto message = local_receive(fd, kNoWaiting);
  if (!message && message.status().code() == Code::kTimeout) return;
  FileSecret secret{};
  if (message && message->bytes.size() == secret.size()) {
    std::memcpy(secret.data(), message->bytes.data(), secret.size());
    const std::scoped_lock lock(mutex_);
    if (const auto found = offers_.find(secret); found != offers_.end()) {
      // A visitor that has gone needs no answer.
      (void)local_send(fd, std::span(secret), found->second, kNoWaiting);
    }
  }
  control_.forget(fd);
  visitors_.erase(fd);
}

Result<std::vector<FileDescriptor>> fetch_files(const std::string& name, const FileSecret& secret,
                                                size_t count, uint64_t deadline_ns) {
  const auto connection = local_connect(name);
  TUTTI_TRY(connection.status());
  TUTTI_TRY(local_send(connection->get(), secret, {}, deadline_ns));
  auto answer = local_receive(connection->get(), deadline_ns);
  TUTTI_TRY(answer.status());
  if (answer->files.size() != count) {
    return Status(Code::kPeerLost, "its process has given up the communicator's set-up");
  }
  return std::move(answer->files);
}

}  // namespace tutti
