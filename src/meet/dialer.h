// Dialer: the connecting side of authenticated connections. Tries every address of a listener, each a moment
// after the one before (the idea of RFC 8305), until one of them has let this rank in; says of each why it
// did not.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "meet/endpoint.h"
#include "meet/event_loop.h"
#include "meet/handshake.h"

namespace tutti {

using ResolveFunction = std::function<Result<std::vector<Endpoint>>(const HostPort&)>;

struct DialOptions {
  std::string who;                  ///< for messages: "rank 4", "the meeting point"
  std::vector<Endpoint> endpoints;  ///< where it listens; or
  HostPort name;                    ///< a name to be resolved, when `endpoints` is empty
  Claim claim;
  Credentials credentials;
  uint64_t deadline_ns = 0;
  /// The listener may not be there yet: a name that is not known and a refused connection are tried again
  /// until the deadline.
  bool patient = false;
  ResolveFunction resolve = tutti::resolve;  ///< runs on a thread of its own: name services block
};

class Dialer {
 public:
  /// With a non-blocking socket, TCP_NODELAY set, that has passed the handshake, or: kPeerLost: no address
  /// can be reached (each is named with its reason); kTimeout; what the handshake said (handshake.h).
  using OnDone = std::function<void(Result<FileDescriptor>)>;

  /// `on_done` is called once, from the loop, and may destroy the dialer.
  static std::unique_ptr<Dialer> start(EventLoop& loop, DialOptions options, OnDone on_done);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

 private:
  struct Attempt {
    Endpoint endpoint;
    FileDescriptor socket;
    std::unique_ptr<ConnectorHandshake> handshake;
    bool connected = false;
    EventLoop::Timer deadline;
  };
  using Place = std::list<Attempt>::iterator;
  struct Resolution;

  Dialer(EventLoop& loop, DialOptions options, OnDone on_done)
      : loop_(loop), options_(std::move(options)), on_done_(std::move(on_done)) {}
  void begin_round();
  void begin_resolving();
  void end_resolving();
  void try_next();
  void ready(Place place, uint32_t events);
  /// Where the attempt stands after what has come.
  Status advance(Attempt& attempt, uint32_t events);
  void fail(Place place, const Status& why);
  void drop(Place place);
  void end_round();
  Status unreachable(Code code, const char* what) const;
  void finish(Result<FileDescriptor> result);

  EventLoop& loop_;
  DialOptions options_;
  OnDone on_done_;
  std::vector<Endpoint> targets_;     ///< of this round
  std::vector<std::string> reasons_;  ///< of this round: "host:port (why)"
  Status last_;                       ///< of this round: the failure that says most
  bool transient_ = false;            ///< of this round: some failure may pass
  size_t next_ = 0;
  int rounds_ = 0;
  int key_refusals_ = 0;
  std::list<Attempt> attempts_;
  std::shared_ptr<Resolution> resolution_;
  EventLoop::Timer stagger_;
  EventLoop::Timer retry_;
  EventLoop::Timer deadline_;
};

}  // namespace tutti
