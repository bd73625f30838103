#include "bootstrap/data_port.h"

#include <sys/epoll.h>

#include <algorithm>
#include <string>

namespace tutti {
namespace {

// Connections from peers that this rank has not asked for yet.
constexpr size_t kEarlyMax = 65536;

}  // namespace

Result<std::unique_ptr<DataPort>> DataPort::open(uint32_t rank, const Credentials& credentials,
                                                 const ListenOptions& listen) {
  std::unique_ptr<DataPort> port(new DataPort(rank, credentials));
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  port->loop_ = std::move(*loop);
  auto listener = listen_at(listen);
  TUTTI_TRY(listener.status());
  port->endpoints_ = pack_endpoints(listener->endpoints);
  DataPort* raw = port.get();
  AcceptorOptions acceptor;
  acceptor.credentials = credentials;
  acceptor.judge = [raw](const Claim& claim) {
    if (claim.to != raw->rank_) return HandshakeResult::kWrongRank;
    const bool fits = claim.purpose == Purpose::kData && claim.from < raw->rank_ &&
                      raw->arrived_.size() < kEarlyMax &&
                      !raw->arrived_.contains({claim.from, claim.channel});
    return fits ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
  };
  acceptor.on_peer = [raw](const Claim& claim, FileDescriptor socket) {
    raw->arrived_[{claim.from, claim.channel}] = std::move(socket);
  };
  acceptor.on_starved = [raw](const Status& why) {
    if (raw->failure_) raw->failure_ = why;
  };
  auto opened = Acceptor::open(*port->loop_, std::move(listener->socket), std::move(acceptor));
  TUTTI_TRY(opened.status());
  port->acceptor_ = std::move(*opened);
  return port;
}

DataPort::~DataPort() = default;

Status DataPort::check(std::span<const DataRequest> requests) const {
  std::vector<Name> names;
  for (const DataRequest& request : requests) names.emplace_back(request.peer, request.channel);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return {Code::kInvalidArgument,
            format("channel %u to rank %u is asked for twice", twice->second, twice->first)};
  }
  for (const Name& name : names) {
    if (served_.contains(name)) {
      return {Code::kInvalidArgument,
              format("channel %u to rank %u has been connected before", name.second, name.first)};
    }
    if (name.first == rank_) {
      return {Code::kInvalidArgument, format("rank %u asks for a connection to itself", rank_)};
    }
  }
  return Status::ok();
}

std::unique_ptr<Connector> DataPort::dial(const DataRequest& request, uint64_t deadline_ns) {
  auto endpoints = unpack_endpoints(request.endpoints);
  if (!endpoints) {
    failure_ = endpoints.status();
    return nullptr;
  }
  const auto own = list_interface_addresses();
  ConnectorOptions options;
  options.who = format("rank %u", request.peer);
  options.endpoints = own ? with_scopes(std::move(*endpoints), *own) : std::move(*endpoints);
  options.claim = {.purpose = Purpose::kData, .from = rank_, .to = request.peer, .channel = request.channel};
  options.credentials = credentials_;
  options.deadline_ns = deadline_ns;
  return Connector::start(*loop_, std::move(options), [this, request](Result<FileDescriptor> socket) {
    if (socket) {
      arrived_[{request.peer, request.channel}] = std::move(*socket);
    } else if (failure_) {
      failure_ = Status(socket.status().code(), format("rank %u cannot connect: %s", rank_,
                                                       std::string(socket.status().text()).c_str()));
    }
  });
}

Status DataPort::absent(std::span<const DataRequest> requests) const {
  std::string who;
  for (const DataRequest& request : requests) {
    if (arrived_.contains({request.peer, request.channel})) continue;
    add_to_list(who, std::to_string(request.peer));
  }
  return {Code::kTimeout,
          format("rank %u was not connected to all peers before the deadline; these are missing: %s", rank_,
                 who.c_str())};
}

Result<std::vector<FileDescriptor>> DataPort::connect(std::span<const DataRequest> requests,
                                                      uint64_t deadline_ns, BootstrapClient* client) {
  TUTTI_TRY(check(requests));
  failure_ = Status::ok();
  bool late = false;
  if (client != nullptr) {
    TUTTI_TRY(client->check());
    TUTTI_TRY(client->add_alarm());
    TUTTI_TRY(loop_->watch(client->descriptor(), EPOLLIN, [this, client](uint32_t) {
      const Status health = client->check();
      if (failure_) failure_ = health;
    }));
  }
  EventLoop::Timer timer = loop_->call_at(deadline_ns, [&late] { late = true; });
  std::vector<std::unique_ptr<Connector>> dialers;
  for (const DataRequest& request : requests) {
    // A later deadline, so that this call reports the missing peers itself.
    if (request.peer > rank_) dialers.push_back(dial(request, deadline_ns + 1'000'000'000));
  }
  const auto complete = [&] {
    return std::all_of(requests.begin(), requests.end(), [&](const DataRequest& request) {
      return arrived_.contains({request.peer, request.channel});
    });
  };
  loop_->run_until([&] { return late || !failure_ || complete(); });
  loop_->cancel(timer);
  if (client != nullptr) loop_->forget(client->descriptor());
  dialers.clear();
  Status end = failure_;
  if (!complete() && late && end) end = absent(requests);
  std::vector<FileDescriptor> sockets;
  for (const DataRequest& request : requests) {
    const auto found = arrived_.find({request.peer, request.channel});
    if (found == arrived_.end()) continue;
    sockets.push_back(std::move(found->second));
    served_.insert(found->first);
    arrived_.erase(found);
  }
  if (!end) return end;
  return sockets;
}

}  // namespace tutti
