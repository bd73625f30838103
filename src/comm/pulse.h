// Pulse: ranks of one host see in shared memory that each other's processes run, not only that they exist: a
// process that is stopped keeps its descriptors open.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/beat_clock.h"
#include "comm/control.h"
#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

class Pulse {
 public:
  /// A rank of another process, and where its process counts.
  struct Peer {
    uint32_t rank = 0;
    const std::atomic<uint32_t>* pulse = nullptr;
  };
  /// Called on the control thread, once a peer.
  using OnSilent = std::function<void(uint32_t rank, const Status& why)>;

  /// Counts `own` up as long as it lives. Errors: kSystemError.
  static Result<std::unique_ptr<Pulse>> start(ControlThread& control, uint64_t heartbeat_ms,
                                              std::atomic<uint32_t>& own, const std::vector<Peer>& peers,
                                              OnSilent on_silent);
  ~Pulse();
  /// All peers have started theirs: from now on one whose counter stands still for `heartbeat_ms` is silent.
  /// Any thread.
  void expect_beats();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  struct Watched {
    Peer peer;
    uint32_t seen = 0;
    uint64_t moved_ns = 0;
    bool is_silent = false;
  };

  Pulse(ControlThread& control, uint64_t heartbeat_ms, std::atomic<uint32_t>& own, OnSilent on_silent)
      : control_(control), clock_(heartbeat_ms), own_(own), on_silent_(std::move(on_silent)) {}
  void beat();

  ControlThread& control_;
  BeatClock clock_;
  std::atomic<uint32_t>& own_;
  OnSilent on_silent_;
  FileDescriptor timer_;
  std::vector<Watched> watched_;
  bool expects_beats_ = false;  ///< touched while the control thread is held only; so is watched_
};

}  // namespace tutti
