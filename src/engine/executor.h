// Executor: where the calls of a rank run. There are three: on the host (comm/host_executor.h), on a CUDA
// device (device/device_executor.h), and staged through host memory (device/staged_executor.h).
//
// A communicator binds each shape of call once (bind) and then begins, polls and finishes calls, one at a
// time. One thread at a time uses an executor; fail_all-like calls of other threads go through Peers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "algorithms/algorithm.h"
#include "core/result.h"
#include "engine/call.h"
#include "engine/geometry.h"
#include "engine/operation.h"

namespace tutti {

/// A shape of call, bound to a plan. Each executor derives what it needs to run the plan.
struct BoundCall {
  virtual ~BoundCall() = default;

  CallShape shape;
  uint64_t word = 0;            ///< agreed_word(shape)
  uint64_t signature_seed = 0;  ///< of `word` and the count
  uint64_t input_bytes = 0;     ///< of the caller's send buffer that the plan reads
  uint64_t output_bytes = 0;    ///< of the caller's receive buffer that the plan writes
  const Algorithm* algorithm = nullptr;
  uint32_t choice_row = UINT32_MAX;  ///< of the choice table; none: the algorithm was given
};

/// What `bind` needs besides the shape.
struct BindRequest {
  Request request;             ///< that the algorithm was chosen for
  uint64_t block_bytes = 0;    ///< of one block; variable counts: of all blocks that every rank knows
  bool wants_packets = false;  ///< the choice table says so; an executor without packets ignores it
  const VariableBlocks* blocks = nullptr;  ///< null: equal blocks
};

/// Bytes of the call's longest buffer, which carriage and stripes depend on; equal on all ranks.
uint64_t message_bytes(const BoundCall& call, const BindRequest& request);
/// How one stripe of the call is cut.
Geometry stripe_geometry(const Plan& plan, const BindRequest& request, Stripe stripe);

class Executor {
 public:
  virtual ~Executor() = default;

  /// What algorithms may count on. Equal on all ranks.
  virtual Facts facts() const = 0;
  /// Largest message that packets carry; 0: there are none. Equal on all ranks.
  virtual uint64_t short_bytes() const = 0;
  /// Binds `call`, whose shape, word, seed, algorithm and row are set. Errors: kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) = 0;

  /// The call as this executor runs it: on buffers that it can work on. Errors: kOutOfMemory, kSystemError.
  virtual Result<Call> take_in(Call call) = 0;
  /// Begins a call of take_in whose shape `bind` has bound here. Errors: what has put the communicator in
  /// error, kOutOfMemory, kSystemError.
  virtual Status begin(BoundCall& bound, const Call& call) = 0;
  /// Begins a group of messages.
  virtual Status begin(const MessageCall& call) = 0;
  /// Goes as far as it can without waiting. After kDone or kMismatch: `finish`.
  virtual Progress poll() = 0;
  /// Something moved: the next wait begins anew.
  virtual void moved() = 0;
  /// Between polls that moved nothing: waits a little. A failure ends the call, with the reason.
  virtual Status wait() = 0;
  /// Ends the call. Errors: kMismatch and whatever has failed.
  virtual Status finish(Progress progress) = 0;
  /// `begin`, then poll and wait until `finish`.
  virtual Status run(BoundCall& bound, const Call& call) = 0;
  virtual Status run(const MessageCall& call) = 0;

  /// Ends the call under way with an error that every rank gets; returns the error that all calls of this
  /// rank report. The call's buffers may still be in use: buffers_are_free.
  virtual Status fail(const Status& why) = 0;
  /// Whether a call is under way, so that peers may wait for the rest of it.
  virtual bool has_begun() const = 0;
  /// After a failure: whether no live peer uses the call's buffers any more, or all had time enough to stop.
  virtual bool buffers_are_free() const = 0;

  /// While true, calls come from a progress thread beside computing callers: that thread never spins.
  virtual void wait_beside_callers(bool beside) = 0;
  /// Deadline of the calls that begin from now on. Any thread.
  virtual void set_timeout(uint64_t timeout_ms) = 0;
  /// No call will follow: waits until the network has what was sent, and threads have ended.
  virtual void leave() = 0;

  /// Before the links go: waits, for a bounded time, until nothing uses them, or keeps for good what may.
  virtual void close() = 0;

  /// ", 4 threads a rank": how it runs a bound call, for people; empty where there is nothing to say.
  virtual std::string explain(const BoundCall& bound) const = 0;
};

/// `begin`, polls and `finish` of a call that has begun, in the calling thread.
template <class AnyExecutor>
Status drive(AnyExecutor& executor) {
  for (;;) {
    const Progress progress = executor.poll();
    if (progress == Progress::kDone || progress == Progress::kMismatch) [[likely]]
      return executor.finish(progress);
    if (progress == Progress::kMoved) executor.moved();
    TUTTI_TRY(executor.wait());
  }
}

}  // namespace tutti
