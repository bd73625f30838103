#include "health/inspector.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "core/log.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

std::string name_of(int pid) {
  return "tutti-inspect-" + std::to_string(pid);
}

// The signal handler may use nothing else.
std::atomic<int> signalled_fd{-1};

void note_signal(int /*signal*/) {
  const int saved = errno;
  eventfd_write(signalled_fd.load(std::memory_order_relaxed), 1);
  errno = saved;
}

}  // namespace

std::unique_ptr<Inspector> Inspector::start(ControlThread& control, const Config& config, const UniqueId& id,
                                            const std::function<std::string()>& report) {
  std::unique_ptr<Inspector> inspector(new Inspector(control, report));
  if (config.report_signal) {
    const Status awaited = inspector->await_signal();
    if (!awaited) log_line("SIGUSR2 writes no report: " + std::string(awaited.text()));
  }
  inspector->listen_here();
  if (config.inspect_first != 0) inspector->listen_to_network(config, id);
  return inspector;
}

void Inspector::listen_here() {
  auto listener = local_listen(name_of(getpid()));
  if (!listener) return;
  listener_ = std::move(*listener);
  if (!control_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { answer(); })) listener_.reset();
}

void Inspector::listen_to_network(const Config& config, const UniqueId& id) {
  auto door = InspectorServer::open(control_,
                                    {.interfaces = config.socket_ifname,
                                     .port_first = config.inspect_first,
                                     .port_last = config.inspect_last,
                                     .ports_from = "TUTTI_INSPECT_PORTS",
                                     .lowest_first = true},
                                    inspection_credentials(config, id), report_);
  if (!door) {
    log_line("tutti-inspect cannot ask this process over the network: " + std::string(door.status().text()));
    return;
  }
  door_ = std::move(*door);
}

Inspector::~Inspector() {
  for (const FileDescriptor* fd : {&listener_, &signalled_}) {
    if (fd->is_open()) control_.forget(fd->get());
  }
}

Status Inspector::await_signal() {
  signalled_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signalled_.is_open()) return system_error("eventfd", errno);
  signalled_fd = signalled_.get();
  TUTTI_TRY(control_.watch(signalled_.get(), EPOLLIN, [this](uint32_t) {
    const std::string text = report_();
    eventfd_t count = 0;
    eventfd_read(signalled_.get(), &count);
    std::fputs(text.c_str(), stderr);
  }));
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  return sigaction(SIGUSR2, &action, nullptr) == 0 ? Status::ok() : system_error("sigaction", errno);
}

void Inspector::answer() {
  accept_waiting(control_, listener_, [this](const FileDescriptor& visitor) {
    std::string text = report_();
    if (text.size() > kMaxMessageBytes) text.resize(kMaxMessageBytes);
    // The buffer is empty, so one message always fits. A visitor that does not read loses the report.
    (void)local_send(visitor.get(), std::as_bytes(std::span(text)), {}, 0);
  });
}

Result<std::string> inspect(int pid, uint64_t deadline_ns) {
  const auto connection = local_connect(name_of(pid), deadline_ns);
  if (!connection) {
    return Status(
        connection.status().code(),
        format("process %d has no communicator, or is another user's, or runs in another network name space",
               pid));
  }
  const auto answer = local_receive(connection->get(), deadline_ns);
  TUTTI_TRY(answer.status());
  return std::string(reinterpret_cast<const char*>(answer->bytes.data()), answer->bytes.size());
}

}  // namespace tutti
