// NetworkMeeting: a rank's part in a meeting across hosts, for a caller that waits. The counterpart of comm's
// Meeting, which serves one host and carries file descriptors: join, all_gather, fail.
//
// A meeting point is served by a Rendezvous (rendezvous.h) on some process's event loop; to serve one from a
// thread that has an epoll of its own, watch EventLoop::descriptor() there and call run_ready().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"
#include "meet/endpoint.h"
#include "meet/event_loop.h"
#include "meet/member.h"
#include "meet/rendezvous.h"
#include "meet/stop.h"
#include "meet/unique_id.h"

namespace tutti {

/// Where ranks meet and what they prove themselves with.
struct MeetingPoint {
  Credentials credentials;
  std::vector<Endpoint> endpoints;  ///< or
  HostPort name;                    ///< resolved when `endpoints` is empty
  /// Whoever serves it may come later than this rank: tried until the deadline.
  bool patient = false;
  /// Set where this rank serves the meeting point itself, as long as it takes part. When the meeting fails it
  /// stays in the failing call until all ranks have heard why: kStayMs at most, and not past the deadline.
  std::optional<Listener> serve;
};

/// The meeting point of an id; it listens already. Errors: kInvalidArgument: the id is of one host only.
Result<MeetingPoint> meeting_point_of(const UniqueId& id);

/// The meeting point "tutti://host:port", which rank 0 serves: there the port is opened on all addresses. The
/// key comes from `secret` (Config::key). Errors: kInvalidArgument (the text; no secret), kSystemError (the
/// port is taken).
Result<MeetingPoint> meeting_point_of_url(std::string_view url, std::string_view secret, bool serve);

struct NetworkMeetingOptions {
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  ListenOptions listen;
  SetUpStop* stop = nullptr;  ///< may be null; outlives the meeting
};

class NetworkMeeting {
 public:
  /// Connects and introduces this rank. Blocks until the meeting point knows it. Errors: kInvalidArgument
  /// (rank taken, counts differ, key refused), kVersionMismatch, kPeerLost (naming every address and why),
  /// kTimeout, kSystemError, kAborted.
  static Result<NetworkMeeting> join(MeetingPoint point, const NetworkMeetingOptions& options);
  ~NetworkMeeting();
  NetworkMeeting(NetworkMeeting&&) noexcept;
  NetworkMeeting& operator=(NetworkMeeting&&) = delete;

  /// Every rank's blob, by rank. Blocks until all have called it; the `last` one ends the meeting. Blobs of
  /// one exchange have equal sizes, at most 512 bytes. Errors: as join, kTimeout naming the absent ranks, and
  /// whatever `fail` said on another rank.
  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> blob, bool last);

  /// Tells all ranks that this one gives up, and why. Blocks for a second at most, or stays
  /// (MeetingPoint::serve).
  void fail(const Status& why);

  /// For who waits for something else meanwhile: readable when check() has something to do.
  int descriptor() const;
  /// Deals with what has come, without waiting. Errors: what `fail` said on another rank; kAborted.
  Status check();

 private:
  NetworkMeeting() = default;
  Status end(const Status& why);
  void stay(const Status& why);
  void run_until(const std::function<bool()>& done);
  void run_until_late(uint64_t late_ns, const std::function<bool()>& done);

  /// In one allocation of their own: callbacks point at them while the meeting is moved.
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti
