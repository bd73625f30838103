// The hub: collects the ranks of one unique id and serves their all-gathers, driven by events on the control
// thread.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "comm/bootstrap.h"
#include "comm/bootstrap_messages.h"
#include "core/clock.h"
#include "core/version.h"
#include "meet/event_loop.h"
#include "meet/rendezvous.h"
#include "transports/shm/segment.h"

namespace tutti {
namespace {

using bootstrap::Header;
using bootstrap::Join;
using bootstrap::Kind;

// A rank that does not read for this long is given up.
constexpr uint64_t kSendPatienceMs = 2000;

/// Serves one id. Owned by the handlers that the control thread holds for its sockets.
class HubServer : public std::enable_shared_from_this<HubServer> {
 public:
  HubServer(ControlThread& control, const UniqueId& id, FileDescriptor listener)
      : control_(control), id_(id), listener_(std::move(listener)) {}

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
    options.on_end = [this] { network_over_ = true; };
    auto point = Rendezvous::open(*loop_, std::move(options));
    TUTTI_TRY(point.status());
    point_ = std::move(*point);
    return control_.watch(loop_->descriptor(), EPOLLIN, [self = shared_from_this()](uint32_t) {
      self->loop_->run_ready();
      if (self->network_over_) self->close();
    });
  }

 private:
  struct Connection {
    FileDescriptor socket;
    bool joined = false;
    bool refused = false;  ///< has been told why; open until it hangs up, so that it can read that
    uint32_t rank = 0;
    bool waiting = false;  ///< its blob for the current all-gather is here
    Introduction blob;
  };

  void accept() {
    for (;;) {
      FileDescriptor socket = local_accept(listener_);
      if (!socket.is_open()) return;
      const int fd = socket.get();
      Connection& connection = connections_[fd];
      connection.socket = std::move(socket);
      const Status watched =
          control_.watch(fd, EPOLLIN, [self = shared_from_this(), fd](uint32_t) { self->read(fd); });
      if (!watched) connections_.erase(fd);
    }
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
    if (!handle(found->second, *message)) drop(fd);
  }

  /// False: the connection is not one of ours, or breaks the rules.
  bool handle(Connection& connection, LocalMessage& message) {
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
        connection.blob.bytes.assign(body.begin(), body.end());
        connection.blob.files = std::move(message.files);
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
    if (hello.version != kVersionCode) {
      return refuse(connection, Code::kVersionMismatch,
                    format("rank %u runs tutti version %u, the maker of the unique id version %u", hello.rank,
                           hello.version, kVersionCode));
    }
    if (hello.rank_count > kMaxCommRanks || hello.rank >= hello.rank_count) return false;
    if (rank_count_ == 0) rank_count_ = hello.rank_count;
    if (hello.rank_count != rank_count_) {
      return refuse(connection, Code::kInvalidArgument,
                    format("rank %u says that there are %u ranks, others say %u", hello.rank,
                           hello.rank_count, rank_count_));
    }
    for (const auto& [fd, other] : connections_) {
      if (other.joined && other.rank == hello.rank) {
        return refuse(connection, Code::kInvalidArgument, format("rank %u has joined twice", hello.rank));
      }
    }
    connection.joined = true;
    connection.rank = hello.rank;
    if (elsewhere_) send(connection, Kind::kElsewhere, Code::kOk, "");
    if (!failure_.is_ok()) send(connection, Kind::kFail, failure_.code(), std::string(failure_.text()));
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
    for (auto& [fd, connection] : connections_) {
      if (connection.joined) send(connection, Kind::kElsewhere, Code::kOk, "");
    }
  }

  void gather() {
    if (elsewhere_) return;
    uint32_t ready = 0;
    for (const auto& [fd, connection] : connections_)
      ready += connection.joined && connection.waiting ? 1 : 0;
    if (ready < rank_count_) return;
    close_network();
    std::vector<Connection*> by_rank(rank_count_);
    for (auto& [fd, connection] : connections_) {
      if (connection.joined) by_rank[connection.rank] = &connection;
    }
    const size_t blob_bytes = by_rank[0]->blob.bytes.size();
    const size_t blob_files = by_rank[0]->blob.files.size();
    for (const Connection* connection : by_rank) {
      if (connection->blob.bytes.size() != blob_bytes || connection->blob.files.size() != blob_files) {
        return fail_all(Code::kVersionMismatch,
                        format("rank %u introduces itself in another form than rank 0", connection->rank));
      }
    }
    constexpr uint32_t kRanksPerMessage = kMaxMessageFiles / bootstrap::kMaxBlobFiles;
    for (uint32_t first = 0; first < rank_count_; first += kRanksPerMessage) {
      const uint32_t count = std::min(kRanksPerMessage, rank_count_ - first);
      send_blobs(by_rank, first, count, static_cast<uint32_t>(blob_bytes), static_cast<uint32_t>(blob_files));
    }
    finished_ = last_;
    for (Connection* connection : by_rank) {
      connection->waiting = false;
      connection->blob = {};
    }
  }

  void send_blobs(const std::vector<Connection*>& by_rank, uint32_t first, uint32_t count,
                  uint32_t blob_bytes, uint32_t blob_files) {
    const Header header{Kind::kGather, first, count, blob_bytes, blob_files, 0, 0};
    std::vector<std::byte> bytes(sizeof(header));
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::vector<int> files;
    for (uint32_t rank = first; rank < first + count; ++rank) {
      const Introduction& blob = by_rank[rank]->blob;
      bytes.insert(bytes.end(), blob.bytes.begin(), blob.bytes.end());
      for (const FileDescriptor& file : blob.files) files.push_back(file.get());
    }
    for (Connection* connection : by_rank) {
      // A rank that cannot be told hangs up later; that is where it is reported.
      (void)local_send(connection->socket.get(), bytes, files, deadline_after_ms(kSendPatienceMs));
    }
  }

  std::string absent() const {
    std::vector<bool> here(rank_count_, false);
    for (const auto& [fd, connection] : connections_) {
      if (connection.joined) here[connection.rank] = true;
    }
    std::string text;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (!here[rank]) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    }
    return text;
  }

  void send(Connection& connection, Kind kind, Code code, const std::string& text) {
    const Header header{kind, 0, 0, 0, 0, static_cast<int32_t>(code), 0};
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
    if (point_ != nullptr) point_->fail(code, text);
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
    const bool was_rank = connections_.at(fd).joined;
    control_.forget(fd);
    connections_.erase(fd);
    const bool any_left = std::any_of(connections_.begin(), connections_.end(),
                                      [](const auto& entry) { return entry.second.joined; });
    if (was_rank && !any_left && !elsewhere_) close();
  }

  void close() {
    const auto self = shared_from_this();
    close_network();
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
  }

  void close_network() {
    if (loop_ == nullptr) return;
    control_.forget(loop_->descriptor());
    point_.reset();
    loop_.reset();
  }

  ControlThread& control_;
  UniqueId id_;
  FileDescriptor listener_;
  uint32_t rank_count_ = 0;
  bool last_ = false;      ///< of the current all-gather
  bool finished_ = false;  ///< the last all-gather is done: ranks leave in good order
  Status failure_;
  std::map<int, Connection> connections_;
  std::unique_ptr<EventLoop> loop_;  ///< of point_; null: this host only
  std::unique_ptr<Rendezvous> point_;
  bool elsewhere_ = false;  ///< ranks meet at point_
  bool network_over_ = false;
};

/// Where ranks of other hosts may come to; no endpoints where this host has no network.
Result<Listener> listen_to(const std::optional<ListenOptions>& network) {
  if (!network) return Listener();
  auto listener = listen_at(*network);
  const bool is_wish = network->port_first != 0;
  if (!listener && listener.status().code() == Code::kSystemError && !is_wish) return Listener();
  return listener;
}

}  // namespace

Result<UniqueId> Hub::open(ControlThread& control, const std::optional<ListenOptions>& network) {
  auto point = listen_to(network);
  TUTTI_TRY(point.status());
  auto id = make_unique_id(point->endpoints);
  TUTTI_TRY(id.status());
  auto listener = local_listen(local_name_of(*id));
  TUTTI_TRY(listener.status());
  const auto server = std::make_shared<HubServer>(control, *id, std::move(*listener));
  if (!point->endpoints.empty()) TUTTI_TRY(server->listen_to_network(std::move(*point)));
  TUTTI_TRY(server->listen());
  return id;
}

}  // namespace tutti
