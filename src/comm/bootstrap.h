// Bootstrap: how the ranks of a new communicator meet and tell each other what they are.
//
// The process that made the unique id runs a Hub on its control thread. Every rank of its host connects,
// proves that it knows the id's key, and then takes part in all-gathers of small blobs; the first one may
// carry file descriptors. What any rank reports as a failure reaches all of them, with its text.
//
// The hub of an id that names network addresses also serves the rendezvous there (meet/rendezvous.h). When a
// rank comes that way, not all ranks are on this host: the hub sends those that it has there too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/control.h"
#include "comm/local_socket.h"
#include "core/result.h"
#include "meet/endpoint.h"
#include "meet/stop.h"
#include "meet/unique_id.h"

namespace tutti {

/// Serves one id until all its ranks have met and left, or for ever if they never come.
class Hub {
 public:
  /// Makes an id and listens for it on `control`; the hub frees itself when its ranks have left. With
  /// `network` the ranks may be on several hosts; where this host has no network, it serves its own ranks
  /// only. Errors: kSystemError, kInvalidArgument (interfaces).
  static Result<UniqueId> open(ControlThread& control, const std::optional<ListenOptions>& network);
};

/// One rank's blob, with its descriptors (of the first all-gather).
struct Introduction {
  std::vector<std::byte> bytes;
  std::vector<FileDescriptor> files;
};

/// One rank's connection to the hub.
class Meeting {
 public:
  /// Connects and introduces `rank` of `rank_count`. Errors: kInvalidArgument (rank taken, counts differ),
  /// kVersionMismatch, kPeerLost, kSystemError, kAborted (by `stop`, which may be null and must outlive the
  /// meeting).
  static Result<Meeting> join(const UniqueId& id, uint32_t rank_count, uint32_t rank, uint64_t deadline_ns,
                              SetUpStop* stop);

  /// Every rank's blob, by rank. Blocks until all have called it; the `last` one ends the meeting. Blobs of
  /// one exchange have equal sizes, at most 512 bytes, and carry equally many files, at most 4. Errors: as
  /// join, kTimeout naming the absent ranks, and whatever `fail` said on another rank.
  Result<std::vector<Introduction>> all_gather(std::span<const std::byte> blob, std::span<const int> files,
                                               bool last);

  /// Tells all ranks that this one gives up, and why.
  void fail(const Status& why);

  /// After an all_gather that failed: the ranks are on several hosts, and meet at the id's network addresses.
  bool is_elsewhere() const { return elsewhere_; }

 private:
  Meeting(FileDescriptor connection, uint32_t rank_count, uint64_t deadline_ns, SetUpStop* stop)
      : connection_(std::move(connection)), rank_count_(rank_count), deadline_ns_(deadline_ns), stop_(stop) {}
  Status absent_ranks();

  FileDescriptor connection_;
  uint32_t rank_count_ = 0;
  uint64_t deadline_ns_ = 0;
  bool elsewhere_ = false;
  struct Disarm {
    void operator()(SetUpStop* stop) const { stop->disarm(); }
  };
  std::unique_ptr<SetUpStop, Disarm> stop_;  ///< borrowed; disarmed before the connection closes
};

}  // namespace tutti
