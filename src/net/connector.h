// Connector: the connecting side of authenticated connections. It tries a listener's addresses one after the
// other, with a short delay (as in RFC 8305), until one admits this rank. Otherwise it reports why each
// failed.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/handshake.h"

namespace tutti {

using ResolveFunction = std::function<Result<std::vector<Endpoint>>(const HostPort&)>;

struct ConnectorOptions {
  std::string who;  ///< for messages: "rank 4", "the rendezvous"
  std::vector<Endpoint> endpoints;
  HostPort name;  ///< resolved if `endpoints` is empty
  Claim claim;
  Credentials credentials;
  uint64_t deadline_ns = 0;
  /// The listener may not exist yet: retries an unknown name or refused connection until the deadline.
  bool patient = false;
  ResolveFunction resolve = tutti::resolve;  ///< on its own thread, because name services block
};

class Connector {
 public:
  /// Gets a non-blocking socket, TCP_NODELAY set, handshake passed. Errors: kPeerLost (no address can be
  /// reached, with the reasons); kTimeout; of the handshake (handshake.h).
  using OnDone = std::function<void(Result<FileDescriptor>)>;

  /// Calls `on_done` once, from the loop. `on_done` may destroy the connector.
  static std::unique_ptr<Connector> start(EventLoop& loop, ConnectorOptions options, OnDone on_done);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

 private:
  struct Attempt {
    Endpoint endpoint;
    FileDescriptor socket;
    std::unique_ptr<ConnectorHandshake> handshake;
    bool connected = false;
    EventLoop::Timer deadline;
  };
  using AttemptEntry = std::list<Attempt>::iterator;
  struct Resolution;

  Connector(EventLoop& loop, ConnectorOptions options, OnDone on_done)
      : loop_(loop), options_(std::move(options)), on_done_(std::move(on_done)) {}
  void begin_round();
  void begin_resolving();
  void end_resolving();
  void try_next();
  void ready(AttemptEntry attempt, uint32_t events);
  Status advance(Attempt& attempt, uint32_t events);
  void fail(AttemptEntry attempt, const Status& why);
  void drop(AttemptEntry attempt);
  void say_farewell(int socket) const;
  void end_round();
  Status unreachable(Code code, const char* what) const;
  void finish(Result<FileDescriptor> result);

  EventLoop& loop_;
  ConnectorOptions options_;
  OnDone on_done_;
  std::vector<Endpoint> targets_;     ///< of this round
  std::vector<std::string> reasons_;  ///< of this round: "host:port (why)"
  Status last_;                       ///< of this round: the most telling failure
  Status final_;                      ///< of this round: a refusal that stays
  bool transient_ = false;            ///< of this round: some failure may be temporary
  bool silent_ = false;               ///< of this round: an address did not answer
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
