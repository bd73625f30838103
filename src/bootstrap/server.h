// Bootstrap: how the ranks of a new communicator meet and tell each other what they are.
//
// The process that made the unique id runs a BootstrapServer on its control thread. Every rank of its host
// connects, proves that it knows the id's key, and then takes part in all-gathers of small blobs. What any
// rank reports as a failure reaches all of them, with its text. Descriptors go another way (file_server.h):
// if they went through here, every rank would hold those of all ranks at once.
//
// The server of an id that names network addresses also serves the rendezvous there (meet/rendezvous.h). When
// a rank comes that way, not all ranks are on this host: the server sends those that it has there too.
//
// A failure is kept for ranks that come late, until all have heard of it: by bootstrap_servers, as long as
// their process lives, and by whoever makes ids and fails itself, who stays a little
// (BootstrapServers::stay).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/control_thread.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/join_tracker.h"
#include "bootstrap/local_socket.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"

namespace tutti {

/// A rank's set-up.
struct BootstrapOptions {
  UniqueId id;
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  BootstrapStop* stop = nullptr;  ///< may be null; outlives the set-up
};

struct BootstrapServerOptions {
  /// The ranks may be on several hosts; where this host has no network, it serves its own ranks only.
  std::optional<ListenOptions> network;
  /// How long a failure is kept for ranks that have not come yet.
  uint64_t remember_ms = 120'000;
};

class BootstrapServer;

/// The ids that this process has made and serves.
class BootstrapServers {
 public:
  explicit BootstrapServers(ControlThread& control) : control_(control) {}
  BootstrapServers(const BootstrapServers&) = delete;
  BootstrapServers& operator=(const BootstrapServers&) = delete;

  /// Makes an id and listens for it on the control thread until all its ranks have met and left, or have
  /// heard why they have not; for ever if none comes. Any thread. Errors: kSystemError, kInvalidArgument
  /// (interfaces).
  Result<UniqueId> open(const BootstrapServerOptions& options);

  /// For a rank whose set-up has failed and whose connections are closed. Where this process serves the id,
  /// the meeting fails for `why` unless it has failed or ended before, and the call blocks until all ranks
  /// have heard of it, for kStayMs at most, not past the deadline, and not when stopped. The process may end
  /// then: who comes later finds nobody. Any thread.
  void stay(const BootstrapOptions& rank, const Status& why);

 private:
  friend class BootstrapServer;
  struct Served {
    std::weak_ptr<BootstrapServer> server;
    std::vector<BootstrapStop*> waiters;  ///< stopped when it has ended
  };

  void remember(const UniqueId& id);
  void end(const UniqueId& id);

  ControlThread& control_;
  // All on the control thread, or while it is held.
  std::map<BootstrapTag, Served> served_;  ///< by the nonce of the id
  std::deque<BootstrapTag> failed_;        ///< of these; oldest first
};

/// What every rank has said, by rank.
using Blobs = std::vector<std::vector<std::byte>>;

/// One rank's connection to the server.
class BootstrapClient {
 public:
  /// Connects, by `connect_deadline_ns`, and introduces this rank. Errors: kInvalidArgument (rank taken,
  /// counts differ), kVersionMismatch, kPeerLost, kTimeout (the queue of the id's name is kept full),
  /// kSystemError, kAborted (by the rank's `stop`).
  static Result<BootstrapClient> join(const BootstrapOptions& self, uint64_t connect_deadline_ns);

  /// Every rank's blob, by rank. Blocks until all have called it; the `last` one ends the meeting. Blobs of
  /// one exchange have equal sizes, at most 512 bytes. Errors: as join, kTimeout naming the absent ranks, and
  /// whatever `fail` said on another rank.
  Result<Blobs> all_gather(std::span<const std::byte> blob, bool last);

  /// For who waits for something else between two exchanges: readable when check() has something to do.
  int descriptor() const { return connection_.get(); }
  /// Deals with what has come, without waiting. Errors: as all_gather, but for its deadline.
  Status check();

  /// Tells all ranks that this one gives up, and why.
  void fail(const Status& why);

  /// After an all_gather that failed: the ranks are on several hosts, and meet at the id's network addresses.
  bool is_elsewhere() const { return elsewhere_; }

 private:
  BootstrapClient(FileDescriptor connection, uint32_t rank_count, uint64_t deadline_ns, BootstrapStop* stop)
      : connection_(std::move(connection)), rank_count_(rank_count), deadline_ns_(deadline_ns), stop_(stop) {}
  Result<LocalMessage> receive(uint64_t deadline_ns);
  Status absent_ranks();

  FileDescriptor connection_;
  uint32_t rank_count_ = 0;
  uint64_t deadline_ns_ = 0;
  bool elsewhere_ = false;
  Status failure_;  ///< what has ended the meeting
  struct Disarm {
    void operator()(BootstrapStop* stop) const { stop->disarm(); }
  };
  std::unique_ptr<BootstrapStop, Disarm> stop_;  ///< borrowed; disarmed before the connection closes
};

}  // namespace tutti
