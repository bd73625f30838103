// BootstrapServers, and the one of one unique id: it collects the ranks and serves their all-gathers, driven
// by events on the control thread. A server that has failed stays open for ranks that come late, until all
// have heard why.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "bootstrap/bootstrap_messages.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/server.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/version.h"

namespace tutti {
namespace {

using bootstrap::Header;
using bootstrap::Join;
using bootstrap::Kind;

// A rank that does not read for this long is given up.
constexpr uint64_t kSendPatienceMs = 2000;
// Meetings that have failed, and not been heard of by all: a program that tries again and again holds no more
// descriptors than these take.
constexpr size_t kFailuresKept = 16;

/// "1, 3": the ranks that are not marked.
std::string list_without(const std::vector<bool>& marked) {
  std::string text;
  for (size_t rank = 0; rank < marked.size(); ++rank) {
    if (!marked[rank]) add_to_list(text, std::to_string(rank));
  }
  return text;
}

}  // namespace

/// Serves one id. Owned by the handlers that the control thread holds for its sockets.
class BootstrapServer : public std::enable_shared_from_this<BootstrapServer> {
 public:
  BootstrapServer(BootstrapServers& bootstrap_servers, const UniqueId& id, FileDescriptor listener,
                  uint64_t remember_ms)
      : servers_(bootstrap_servers),
        control_(bootstrap_servers.control_),
        id_(id),
        listener_(std::move(listener)),
        remember_ms_(remember_ms) {}

  Status listen() {
    return control_.watch(listener_.get(), EPOLLIN,
                          [self = shared_from_this()](uint32_t) { self->accept(); });
  }

  /// Serves ranks that come over the network, too.
  Status listen_to_network(Listener listener) {
    auto loop = EventLoop::create();
    TUTTI_TRY(loop.status());
    loop_ = std::move(*loop);
    RendezvousOptions options;
    options.credentials = credentials_of(id_);
    options.listener = std::move(listener);
    options.on_begin = [this] { send_elsewhere(); };
    options.on_fail = [this](const Status& why) { fail_all(why.code(), std::string(why.text())); };
    options.on_end = [this] { over_ = true; };
    options.remember_ms = remember_ms_;
    options.joins = &joins_;
    auto point = Rendezvous::open(*loop_, std::move(options));
    TUTTI_TRY(point.status());
    point_ = std::move(*point);
    return watch_loop();
  }

  /// A damaged id says nothing about this meeting.
  bool is_of(const UniqueId& id) const { return equal_secrets(id.key, id_.key); }

  /// What a rank of this process says that has no connection here any more.
  void fail(const BootstrapOptions& rank, const Status& why) {
    const auto self = shared_from_this();
    joins_.expect(rank.rank_count);
    joins_.gone(rank.rank);
    fail_all(why.code(), std::string(why.text()));
    settle();
  }

  /// Forgets a failure that not all have heard of.
  void close() {
    const auto self = shared_from_this();
    close_loop();
    // Ranks that have connected, but not been read yet, learn why nobody serves them.
    if (!failure_.is_ok()) accept();
    control_.forget(listener_.get());
    listener_.reset();
    for (auto& [other, connection] : connections_) {
      if (!failure_.is_ok() && !connection.refused) {
        send(connection, Kind::kFail, failure_.code(), std::string(failure_.text()));
      }
      control_.forget(other);
    }
    connections_.clear();
    servers_.end(id_);
  }

 private:
  struct Connection {
    FileDescriptor socket;
    bool joined = false;
    bool refused = false;    ///< has been told why; open until it hangs up, so that it can read that
    bool counts = false;     ///< has said its rank, with the key
    bool is_second = false;  ///< of its rank
    bool was_sent_elsewhere = false;
    uint32_t rank = 0;
    bool waiting = false;  ///< its blob for the current all-gather is here
    std::vector<std::byte> blob;
  };

  Status watch_loop() {
    return control_.watch(loop_->descriptor(), EPOLLIN, [self = shared_from_this()](uint32_t) {
      self->loop_->run_ready();
      self->close_if_over();
    });
  }

  void close_if_over() {
    if (over_ && listener_.is_open()) close();
  }

  void accept() {
    accept_waiting(control_, listener_, [this](FileDescriptor socket) {
      const int fd = socket.get();
      Connection& connection = connections_[fd];
      connection.socket = std::move(socket);
      const Status watched =
          control_.watch(fd, EPOLLIN, [self = shared_from_this(), fd](uint32_t) { self->read(fd); });
      if (!watched) connections_.erase(fd);
    });
  }

  void read(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    auto message = local_receive(fd, 0);
    if (!message) {
      if (message.status().code() != Code::kTimeout) lose(fd);
      return;
    }
    if (message->bytes.empty()) return lose(fd);
    if (!handle(found->second, *message)) lose(fd);
  }

  /// False: the connection is not one of ours, or breaks the rules.
  bool handle(Connection& connection, const LocalMessage& message) {
    Header header;
    if (message.bytes.size() < sizeof(header)) return false;
    std::memcpy(&header, message.bytes.data(), sizeof(header));
    if (connection.refused) return true;
    if (!connection.joined) return header.kind == Kind::kJoin && join(connection, message);
    const std::span<const std::byte> body = std::span(message.bytes).subspan(sizeof(header));
    switch (header.kind) {
      case Kind::kGather:
        if (connection.waiting || body.size() > bootstrap::kMaxBlobBytes) return false;
        connection.waiting = true;
        last_ = header.last != 0;
        connection.blob.assign(body.begin(), body.end());
        gather();
        return true;
      case Kind::kFail:
        fail_all(static_cast<Code>(header.code),
                 std::string(reinterpret_cast<const char*>(body.data()), body.size()));
        return true;
      case Kind::kAbsent: send(connection, Kind::kAbsent, Code::kOk, absent()); return true;
      case Kind::kJoin:
      case Kind::kElsewhere: break;
    }
    return false;
  }

  bool join(Connection& connection, const LocalMessage& message) {
    Join hello;
    if (message.bytes.size() != sizeof(hello)) return false;
    std::memcpy(&hello, message.bytes.data(), sizeof(hello));
    if (hello.magic != bootstrap::kMagic) return false;
    if (!equal_secrets(hello.key, id_.key)) {
      send(connection, Kind::kFail, Code::kInvalidArgument,
           "argument id has another key than the unique id that was made: it was damaged on its way");
      connection.refused = true;
      return true;
    }
    if (hello.rank_count > kMaxCommRanks || hello.rank >= hello.rank_count) return false;
    connection.counts = true;
    connection.rank = hello.rank;
    joins_.expect(hello.rank_count);
    if (!failure_.is_ok()) {
      connection.joined = true;
      send(connection, Kind::kFail, failure_.code(), std::string(failure_.text()));
      return true;
    }
    if (hello.version != kVersionCode) {
      return refuse(connection, Code::kVersionMismatch,
                    format("rank %u runs tutti version %u, the maker of the unique id version %u", hello.rank,
                           hello.version, kVersionCode));
    }
    if (rank_count_ == 0) rank_count_ = hello.rank_count;
    if (hello.rank_count != rank_count_) {
      return refuse(connection, Code::kInvalidArgument,
                    format("rank %u says that there are %u ranks, others say %u", hello.rank,
                           hello.rank_count, rank_count_));
    }
    for (const auto& [fd, other] : connections_) {
      if (other.joined && other.rank == hello.rank) {
        connection.is_second = true;
        return refuse(connection, Code::kInvalidArgument, format("rank %u has joined twice", hello.rank));
      }
    }
    connection.joined = true;
    if (elsewhere_) send_elsewhere(connection);
    return true;
  }

  /// A wrong set-up is everybody's failure: nobody should wait for the deadline.
  bool refuse(Connection& connection, Code code, const std::string& text) {
    send(connection, Kind::kFail, code, text);
    connection.refused = true;
    fail_all(code, text);
    return true;
  }

  /// A rank has come over the network: the ranks of this host go there too.
  void send_elsewhere() {
    elsewhere_ = true;
    // After a failure the ranks of this host have been told here.
    if (!failure_.is_ok()) return;
    for (auto& [fd, connection] : connections_) {
      if (connection.joined) send_elsewhere(connection);
    }
  }

  void send_elsewhere(Connection& connection) {
    connection.was_sent_elsewhere = true;
    send(connection, Kind::kElsewhere, Code::kOk, "");
  }

  void gather() {
    if (elsewhere_ || !failure_.is_ok()) return;
    uint32_t ready = 0;
    for (const auto& [fd, connection] : connections_)
      ready += connection.joined && connection.waiting ? 1 : 0;
    if (ready < rank_count_) return;
    close_loop();
    std::vector<Connection*> by_rank(rank_count_);
    for (auto& [fd, connection] : connections_) {
      if (connection.joined) by_rank[connection.rank] = &connection;
    }
    const size_t blob_bytes = by_rank[0]->blob.size();
    for (const Connection* connection : by_rank) {
      if (connection->blob.size() != blob_bytes) {
        return fail_all(Code::kVersionMismatch,
                        format("rank %u introduces itself in another form than rank 0", connection->rank));
      }
    }
    constexpr uint32_t kRanksPerMessage = (kMaxMessageBytes - sizeof(Header)) / bootstrap::kMaxBlobBytes;
    for (uint32_t first = 0; first < rank_count_; first += kRanksPerMessage) {
      send_blobs(by_rank, first, std::min(kRanksPerMessage, rank_count_ - first));
    }
    finished_ = last_;
    for (Connection* connection : by_rank) {
      connection->waiting = false;
      connection->blob = {};
    }
  }

  void send_blobs(const std::vector<Connection*>& by_rank, uint32_t first, uint32_t count) {
    const Header header{.kind = Kind::kGather,
                        .first_rank = first,
                        .count = count,
                        .blob_bytes = static_cast<uint32_t>(by_rank[first]->blob.size())};
    std::vector<std::byte> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    for (uint32_t rank = first; rank < first + count; ++rank) {
      const std::vector<std::byte>& blob = by_rank[rank]->blob;
      bytes.insert(bytes.end(), blob.begin(), blob.end());
    }
    for (Connection* connection : by_rank) {
      // A rank that cannot be told hangs up later; that is where it is reported.
      (void)local_send(connection->socket.get(), bytes, {}, deadline_after_ms(kSendPatienceMs));
    }
  }

  /// Who keeps the others waiting; empty: nobody.
  std::string absent() const {
    std::vector<bool> here(rank_count_, false);
    std::vector<bool> ready(rank_count_, false);
    for (const auto& [fd, connection] : connections_) {
      if (!connection.joined || connection.rank >= rank_count_) continue;
      here[connection.rank] = true;
      ready[connection.rank] = connection.waiting;
    }
    const std::string missing = list_without(here);
    if (!missing.empty())
      return format("of %u ranks, these have not joined: %s", rank_count_, missing.c_str());
    const std::string late = list_without(ready);
    if (late.empty()) return "";
    return format("all %u ranks have joined, but then these have not come: %s", rank_count_, late.c_str());
  }

  void send(Connection& connection, Kind kind, Code code, const std::string& text) {
    const Header header{.kind = kind, .code = static_cast<int32_t>(code)};
    std::vector<std::byte> bytes(sizeof(header) + text.size());
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
    (void)local_send(connection.socket.get(), bytes, {}, deadline_after_ms(kSendPatienceMs));
  }

  void fail_all(Code code, const std::string& text) {
    if (!failure_.is_ok()) return;
    failure_ = Status(code, text);
    for (auto& [fd, connection] : connections_) {
      if (connection.joined) send(connection, Kind::kFail, code, text);
    }
    if (point_ != nullptr) {
      point_->fail(code, text);
    } else {
      start_clock();
    }
    servers_.remember(id_);
  }

  /// Of how long a failure is kept, where no rendezvous does it.
  void start_clock() {
    auto loop = EventLoop::create();
    if (!loop) return;
    loop_ = std::move(*loop);
    loop_->call_at(loop_->now() + remember_ms_ * 1'000'000, [this] { over_ = true; });
    if (!watch_loop()) loop_.reset();
  }

  /// The connection has closed: a rank that leaves before everybody has all it needs has failed.
  void lose(int fd) {
    const Connection& connection = connections_.at(fd);
    if (connection.joined && !finished_ && !elsewhere_) {
      fail_all(Code::kPeerLost, format("rank %u ended while the communicator was set up", connection.rank));
    }
    drop(fd);
  }

  void drop(int fd) {
    const auto self = shared_from_this();
    const Connection& connection = connections_.at(fd);
    const bool counts = connection.counts;
    if (counts && !connection.was_sent_elsewhere) {
      connection.is_second ? joins_.gone_under_another_name() : joins_.gone(connection.rank);
    }
    control_.forget(fd);
    connections_.erase(fd);
    if (counts) settle();
  }

  /// Closes when nobody has to be served any more.
  void settle() {
    if (elsewhere_) {
      point_->settle();
      return close_if_over();
    }
    const bool any_left = std::any_of(connections_.begin(), connections_.end(),
                                      [](const auto& entry) { return entry.second.joined; });
    if (any_left || (!failure_.is_ok() && !joins_.is_complete())) return;
    close();
  }

  void close_loop() {
    if (loop_ == nullptr) return;
    control_.forget(loop_->descriptor());
    point_.reset();
    loop_.reset();
  }

  BootstrapServers& servers_;
  ControlThread& control_;
  UniqueId id_;
  FileDescriptor listener_;
  uint64_t remember_ms_;
  JoinTracker joins_;
  uint32_t rank_count_ = 0;
  bool last_ = false;      ///< of the current all-gather
  bool finished_ = false;  ///< the last all-gather is done: ranks leave in good order
  Status failure_;
  std::map<int, Connection> connections_;
  std::unique_ptr<EventLoop> loop_;  ///< of point_, or the clock of a failure; null: neither
  std::unique_ptr<Rendezvous> point_;
  bool elsewhere_ = false;  ///< ranks meet at point_
  bool over_ = false;       ///< nobody has to be served any more, or has had the time
};

namespace {

/// Where ranks of other hosts may come to; no endpoints where this host has no network.
Result<Listener> listen_to(const std::optional<ListenOptions>& network) {
  if (!network) return Listener();
  auto listener = listen_at(*network);
  const bool is_wish = network->port_first != 0;
  if (!listener && listener.status().code() == Code::kSystemError && !is_wish) return Listener();
  return listener;
}

}  // namespace

Result<UniqueId> BootstrapServers::open(const BootstrapServerOptions& options) {
  auto point = listen_to(options.network);
  TUTTI_TRY(point.status());
  auto id = make_unique_id(point->endpoints);
  TUTTI_TRY(id.status());
  auto listener = local_listen(local_name_of(*id));
  TUTTI_TRY(listener.status());
  const auto server =
      std::make_shared<BootstrapServer>(*this, *id, std::move(*listener), options.remember_ms);
  const auto hold = control_.hold();
  if (!point->endpoints.empty()) TUTTI_TRY(server->listen_to_network(std::move(*point)));
  if (const Status listening = server->listen(); !listening) {
    server->close();
    return listening;
  }
  served_[id->nonce].server = server;
  return id;
}

void BootstrapServers::stay(const BootstrapOptions& rank, const Status& why) {
  BootstrapStop ended;
  {
    const auto hold = control_.hold();
    const auto found = served_.find(rank.id.nonce);
    const auto server = found == served_.end() ? nullptr : found->second.server.lock();
    if (server == nullptr || !server->is_of(rank.id)) return;
    found->second.waiters.push_back(&ended);
    server->fail(rank, why);
  }
  if (auto loop = EventLoop::create()) {
    const auto end = StopWatch::start(**loop, &ended);
    const auto stop = StopWatch::start(**loop, rank.stop);
    bool is_late = false;
    (*loop)->call_at(std::min(rank.deadline_ns, deadline_after_ms(kStayMs)), [&is_late] { is_late = true; });
    if (end && stop) {
      (*loop)->run_until([&] { return is_late || (*end)->is_stopped() || (*stop)->is_stopped(); });
    }
  }
  const auto hold = control_.hold();
  if (const auto found = served_.find(rank.id.nonce); found != served_.end()) {
    std::erase(found->second.waiters, &ended);
  }
}

/// The oldest failure makes room for one more.
void BootstrapServers::remember(const UniqueId& id) {
  failed_.push_back(id.nonce);
  if (failed_.size() <= kFailuresKept) return;
  // Closing takes it off the list.
  if (const auto oldest = served_.at(failed_.front()).server.lock()) oldest->close();
}

void BootstrapServers::end(const UniqueId& id) {
  std::erase(failed_, id.nonce);
  const auto found = served_.find(id.nonce);
  if (found == served_.end()) return;
  for (BootstrapStop* waiter : found->second.waiters) waiter->stop();
  served_.erase(found);
}

}  // namespace tutti
