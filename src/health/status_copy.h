// StatusCopy: a snapshot of a rank's status page, for ranks that cannot map the page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transports/shm/segment.h"

namespace tutti {

/// A copy of CallRun.
struct CallRunCopy {
  uint64_t first = 0;  ///< 0: no run
  uint64_t call = 0;
  uint64_t count = 0;
  uint64_t counts = 0;

  bool is_same_call(const CallRunCopy& other) const {
    return call == other.call && count == other.count && counts == other.counts;
  }
};

struct StatusCopy {
  uint64_t sequence = 0;
  uint64_t completed = 0;
  uint64_t history = 0;
  uint64_t shrink = 0;
  uint64_t unconfirmed_bytes = 0;  ///< sent by this rank, but not confirmed by the reader's host
  uint32_t waits_for = 0;
  uint32_t step = 0;
  uint32_t waited_ms = 0;
  uint32_t beat = 0;
  uint32_t in_messages = 0;
  uint32_t presence = 0;
  std::array<CallRunCopy, kCallRuns> runs{};  ///< newest first

  /// The collective `sequence`, or the last one.
  const CallRunCopy& call() const { return runs[0]; }
  /// Null if the page no longer shows collective `number`.
  const CallRunCopy* call_at(uint64_t number) const;

  /// call() is `sequence` only if the rank had not finished that collective when the runs were read. So
  /// `completed` is read last.
  static StatusCopy of(const StatusPage& page) {
    StatusCopy copy;
    copy.sequence = page.sequence.load(std::memory_order_acquire);
    copy.history = page.history.load(std::memory_order_acquire);
    copy_runs(page, copy);
    copy.waits_for = page.waits_for.load(std::memory_order_acquire);
    copy.step = page.step.load(std::memory_order_acquire);
    copy.waited_ms = page.waited_ms.load(std::memory_order_acquire);
    copy.in_messages = page.in_messages.load(std::memory_order_acquire);
    copy.beat = page.beat.load(std::memory_order_acquire);
    copy.presence = page.presence.load(std::memory_order_acquire);
    copy.shrink = page.shrink.load(std::memory_order_acquire);
    copy.completed = page.completed.load(std::memory_order_acquire);
    return copy;
  }

 private:
  static void copy_runs(const StatusPage& page, StatusCopy& copy);
};

/// Whether a peer that has finished collective `number` has another history than `history`, that of this
/// rank. False while the peer is in another collective. `Page`: StatusPage, or a test's.
template <class Page>
bool shows_other_history(const Page& theirs, uint64_t number, uint64_t history) {
  // A rank stores sequence, history, completed. So after `completed` the history is that of this collective
  // or of a later one, and a later one then shows in `sequence`.
  if (theirs.completed.load(std::memory_order_acquire) != number) return false;
  const uint64_t their_history = theirs.history.load(std::memory_order_acquire);
  return theirs.sequence.load(std::memory_order_acquire) == number && their_history != history;
}

/// "rank 3 is in collective 17, all_reduce(float32, sum, count 8), step 2, waiting for rank 1".
std::string describe_status(uint32_t rank, const StatusCopy& status);

inline constexpr size_t kStatusCopyBytes = 64 + 32 * kCallRuns;

/// For another host of any byte order.
std::array<std::byte, kStatusCopyBytes> encode(const StatusCopy& copy);
StatusCopy decode_status(std::span<const std::byte, kStatusCopyBytes> bytes);

}  // namespace tutti
