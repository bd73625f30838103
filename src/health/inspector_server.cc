#include "health/inspector_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/fork_guard.h"
#include "net/connector.h"

namespace tutti {
namespace {

constexpr size_t kVisitorsMax = 8;
constexpr uint64_t kVisitNs = 5'000'000'000;
constexpr uint32_t kStrangersMax = 64;
/// The longest report. A visitor that does not read holds this much of the process's memory.
constexpr size_t kReportBytesMost = 1u << 20;

}  // namespace

Credentials inspection_credentials(const Config& config, const UniqueId& id) {
  return config.key.empty() ? credentials_of(id) : credentials_from_text(config.key, "tutti-inspect");
}

Result<std::unique_ptr<InspectorServer>> InspectorServer::open(ControlThread& control,
                                                               const ListenOptions& listen,
                                                               const Credentials& credentials,
                                                               std::function<std::string()> report) {
  std::unique_ptr<InspectorServer> door(new InspectorServer(control, std::move(report)));
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  TUTTI_TRY((*loop)->add_alarm());
  auto listener = listen_at(listen);
  TUTTI_TRY(listener.status());
  const auto hold = control.hold();
  door->loop_ = std::move(*loop);
  door->listener_fd_ = listener->socket.get();
  door->endpoint_ = listener->endpoints[0];
  AcceptorOptions options;
  options.credentials = credentials;
  options.judge = [](const Claim& claim) {
    return claim.purpose == Purpose::kInspect ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
  };
  options.on_peer = [raw = door.get()](const Claim&, FileDescriptor socket) {
    raw->admit(std::move(socket));
  };
  options.pending_max = kStrangersMax;
  auto acceptor = Acceptor::open(*door->loop_, std::move(listener->socket), std::move(options));
  TUTTI_TRY(acceptor.status());
  door->acceptor_ = std::move(*acceptor);
  TUTTI_TRY(control.watch(door->loop_->descriptor(), EPOLLIN,
                          [raw = door.get()](uint32_t) { raw->loop_->run_ready(); }));
  // A child process that lives on would keep the port.
  close_in_child(door->listener_fd_);
  return door;
}

InspectorServer::~InspectorServer() {
  if (loop_ == nullptr) return;  // open() has failed
  const auto hold = control_.hold();
  control_.forget(loop_->descriptor());
  keep_in_child(listener_fd_);
  while (!visitors_.empty()) dismiss(visitors_.begin());
}

void InspectorServer::admit(FileDescriptor socket) {
  if (visitors_.size() >= kVisitorsMax) dismiss(visitors_.begin());
  const VisitorEntry visitor = visitors_.emplace(visitors_.end());
  const Status served = contained([&] { return serve(visitor, std::move(socket)); });
  if (!served) dismiss(visitor);
}

Status InspectorServer::serve(VisitorEntry visitor, FileDescriptor socket) {
  auto opened = FrameSocket::open(
      *loop_, std::move(socket), 0,
      {.on_frame = [this, visitor](const Frame&) { dismiss(visitor); },  // visitors may not send anything
       .on_closed = [this, visitor](const Status&) { dismiss(visitor); }});
  TUTTI_TRY(opened.status());
  visitor->socket = std::move(*opened);
  visitor->deadline = loop_->call_at(loop_->now() + kVisitNs, [this, visitor] { dismiss(visitor); });
  std::string text = report_();
  if (text.size() > kReportBytesMost) text.resize(kReportBytesMost);
  auto parts = static_cast<uint32_t>(text.size() / kMaxFrameText + 1);
  for (size_t at = 0; parts > 0; at += kMaxFrameText) {
    const auto part = std::as_bytes(std::span(text)).subspan(at, std::min(kMaxFrameText, text.size() - at));
    visitor->socket->send({.kind = FrameKind::kText, .number = --parts},
                          std::make_shared<const std::vector<std::byte>>(part.begin(), part.end()));
  }
  return Status::ok();
}

void InspectorServer::dismiss(VisitorEntry visitor) {
  loop_->cancel(visitor->deadline);
  visitors_.erase(visitor);
}

Result<std::string> inspect(const HostPort& where, const Credentials& credentials, uint64_t deadline_ns) {
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  Status failure;
  std::string text;
  bool whole = false;
  std::unique_ptr<FrameSocket> socket;
  const auto read_from = [&](FileDescriptor connection) {
    auto opened = FrameSocket::open(**loop, std::move(connection), 0,
                                    {.on_frame =
                                         [&](const Frame& frame) {
                                           text += frame.text();
                                           whole = frame.header.number == 0;
                                         },
                                     .on_closed = [&](const Status& why) { failure = why; }});
    if (opened) {
      socket = std::move(*opened);
    } else {
      failure = opened.status();
    }
  };
  const std::string who = "the process at " + where.text();
  ConnectorOptions dial;
  dial.who = who;
  dial.name = where;
  dial.claim = {.purpose = Purpose::kInspect, .from = kBootstrapServer, .to = kBootstrapServer, .channel = 0};
  dial.credentials = credentials;
  dial.deadline_ns = deadline_ns;
  const auto connector = Connector::start(**loop, std::move(dial), [&](Result<FileDescriptor> connection) {
    if (!connection) {
      failure = connection.status();
      return;
    }
    read_from(std::move(*connection));
  });
  (*loop)->call_at(deadline_ns, [&] {
    if (failure) failure = Status(Code::kTimeout, who + " did not send its report before the deadline");
  });
  (*loop)->run_until([&] { return whole || !failure; });
  if (!whole) return failure;
  return text;
}

}  // namespace tutti
