// Executor: runs the calls of a rank. There are three: on the host (comm/host_executor.h), on a CUDA device
// (device/device_executor.h), and staged through host memory (device/staged_executor.h).
//
// A communicator binds each shape of call once, then begins, polls and finishes calls one at a time, from one
// thread at a time. Other threads stop a call through Peers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "algorithms/algorithm.h"
#include "algorithms/priced_choice.h"
#include "core/result.h"
#include "engine/call.h"
#include "engine/geometry.h"
#include "engine/operation.h"
#include "plan/price.h"

namespace tutti {

/// A shape of call, bound to a plan. Each executor derives its own.
struct BoundCall {
  virtual ~BoundCall() = default;

  CallShape shape;
  uint64_t word = 0;            ///< agreed_word(shape)
  uint64_t counts = 0;          ///< counts_digest of the call
  uint64_t signature_seed = 0;  ///< hash of `word`, the count and `counts`
  uint64_t input_bytes = 0;     ///< bytes of the send buffer that the plan reads
  uint64_t output_bytes = 0;    ///< bytes of the receive buffer that the plan writes
  const Algorithm* algorithm = nullptr;
  uint32_t choice_row = UINT32_MAX;   ///< row of the choice table; UINT32_MAX: the caller named the algorithm
  const PricedRow* priced = nullptr;  ///< of the communicator's JobTopology; null: the table alone has chosen
  bool wants_packets = false;         ///< as in BindRequest
  std::optional<Price> price;         ///< set by the first explain
};

struct BindRequest {
  Request request;             ///< what the algorithm was chosen for
  uint64_t block_bytes = 0;    ///< of one block; variable counts: all blocks that every rank knows
  bool wants_packets = false;  ///< an executor without packets ignores this flag
  const VariableBlocks* blocks = nullptr;  ///< null: equal blocks
};

/// Bytes of the call's longest buffer. Equal on all ranks: carriage and stripes depend on this number.
uint64_t message_bytes(const BoundCall& call, const BindRequest& request);
Geometry stripe_geometry(const Plan& plan, const BindRequest& request, Stripe stripe);

class Executor {
 public:
  virtual ~Executor() = default;

  /// What algorithms may rely on. Equal on all ranks.
  virtual Facts facts() const = 0;
  /// The most that a rank can send another in packets in such a call; 0: no packets. Equal on all ranks.
  virtual uint64_t short_bytes(const Request& request) const = 0;
  /// Binds `call`, whose shape, word, seed, algorithm and row are set. Errors: kOutOfMemory, kSystemError.
  virtual Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) = 0;

  /// Returns the call with buffers that this executor can use. Errors: kOutOfMemory, kSystemError.
  virtual Result<Call> take_in(Call call) = 0;
  /// Begins a call from take_in. Errors: the communicator's own error, kOutOfMemory, kSystemError.
  virtual Status begin(BoundCall& bound, const Call& call) = 0;
  virtual Status begin(const MessageCall& call) = 0;
  /// Goes as far as possible without waiting. After kDone or kMismatch, call `finish`.
  virtual Progress poll() = 0;
  /// The next wait starts from zero.
  virtual void moved() = 0;
  /// Waits a little, between polls that moved nothing. A failure ends the call.
  virtual Status wait() = 0;
  /// Errors: kMismatch, or the error that ended the call.
  virtual Status finish(Progress progress) = 0;
  /// `begin`, then `poll` and `wait` until `finish`.
  virtual Status run(BoundCall& bound, const Call& call) = 0;
  virtual Status run(const MessageCall& call) = 0;

  /// Ends the call under way on all ranks. Returns the error of this rank's later calls. The buffers may
  /// still be in use: see buffers_are_free.
  virtual Status fail(const Status& why) = 0;
  /// Whether a call is under way, so that peers may wait for the rest of it.
  virtual bool has_begun() const = 0;
  /// After a failure: true once no live peer uses the call's buffers, or all peers had time enough to stop.
  virtual bool buffers_are_free() const = 0;

  /// True: the calls come from a progress thread beside computing callers. That thread never spins.
  virtual void wait_beside_callers(bool beside) = 0;
  /// The deadline of later calls. Any thread.
  virtual void set_timeout(uint64_t timeout_ms) = 0;
  /// No call will follow. Waits until the network has taken what was sent and the threads have ended. Errors:
  /// kMismatch (a message that no call receives, or other calls than a peer's).
  virtual Status leave() = 0;

  /// Call before the links are freed. Waits, for a bounded time, until nothing uses them; else keeps them for
  /// good.
  virtual void close() = 0;

  /// How the executor runs a call, for people: ", 4 threads a rank". May be empty.
  virtual std::string explain(const BoundCall& bound) const = 0;
};

/// Polls and waits until `finish`, in the calling thread.
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
