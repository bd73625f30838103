// Heartbeat: shows in shared memory that a process of this host runs. Existence is not enough: a stopped
// process keeps its descriptors open.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "health/heartbeat_clock.h"
#include "net/control_thread.h"

namespace tutti {

class Heartbeat {
 public:
  /// A rank of another process, and the counter of that process.
  struct Peer {
    uint32_t rank = 0;
    const std::atomic<uint32_t>* heartbeat = nullptr;
  };
  /// The control thread calls this once per peer. It must not throw.
  using OnSilent = std::function<void(uint32_t rank, const Status& why)>;

  /// Counts `own` up while this object lives. Errors: kSystemError.
  static Result<std::unique_ptr<Heartbeat>> start(ControlThread& control, uint64_t heartbeat_ms,
                                                  std::atomic<uint32_t>& own, const std::vector<Peer>& peers,
                                                  OnSilent on_silent);
  ~Heartbeat();
  /// Call once all peers have started: from now on a peer is silent if its counter stands still for
  /// `heartbeat_ms`. Any thread.
  void expect_beats();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  struct Watched {
    Peer peer;
    uint32_t seen = 0;
    uint64_t moved_ns = 0;
    bool is_silent = false;
  };

  Heartbeat(ControlThread& control, uint64_t heartbeat_ms, std::atomic<uint32_t>& own, OnSilent on_silent)
      : control_(control), clock_(heartbeat_ms), own_(own), on_silent_(std::move(on_silent)) {}
  void beat();

  ControlThread& control_;
  HeartbeatClock clock_;
  std::atomic<uint32_t>& own_;
  OnSilent on_silent_;
  FileDescriptor timer_;
  std::vector<Watched> watched_;
  bool expects_beats_ = false;  ///< like watched_, used only while the control thread is held
};

}  // namespace tutti
