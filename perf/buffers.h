// The memory of operations: for each rank one ring for sending and one for receiving.
//
// A benchmark that sends one buffer repeatedly measures its cache. So each iteration takes the next slot of a
// ring. All rings of this host together cover four times its largest cache. --hot uses one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/result.h"
#include "perf/options.h"
#include "perf/report.h"
#include "tutti/tutti.h"

namespace tutti::perf {

struct RingLayout {
  size_t stride_bytes = 64;  ///< distance between slots, a multiple of the cache line
  size_t slot_count = 1;

  size_t bytes() const { return stride_bytes * slot_count; }
};

/// The ring for messages of `message_bytes` (the larger of send and receive), each after `shift_bytes`. At
/// least `least_slots`, because operations of one group must not share memory.
RingLayout ring_layout(size_t message_bytes, size_t shift_bytes, size_t footprint_bytes, size_t least_slots);

/// With how many ranks, itself included, one of the ranks [first, first + count) shares the memory of its
/// device or host; the most of any of them.
int most_sharing_memory(std::span<const RankInfo> ranks, size_t first, size_t count);

/// The bytes that one rank's arena should cover: --footprint or 4 x largest cache / ranks; 0 with --hot.
size_t ring_footprint(const Options& options, size_t cache_bytes, int rank_count);

/// Bytes of the largest cache of any CPU, from sysfs; 32 MiB if sysfs does not tell. `cpus`: sysfs's folder
/// of CPUs.
size_t last_level_cache_bytes(const std::string& cpus = "/sys/devices/system/cpu");

/// MemAvailable of /proc/meminfo; 0 when unknown.
uint64_t available_memory_bytes();

uint64_t resident_bytes();

/// Owns one block of page-aligned memory, private or from the symmetric heap.
class Arena {
 public:
  Arena() = default;
  /// `symmetric`: allocate with tutti_mem_alloc. Errors: kOutOfMemory, kSystemError, errors of
  /// tutti_mem_alloc.
  static Result<Arena> create(size_t bytes, bool symmetric);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
  bool symmetric_ = false;
};

class Rings {
 public:
  /// Starts at the slot that holds byte `place` of the arenas.
  Rings(char* send, char* recv, RingLayout layout, size_t shift_bytes, size_t place)
      : send_(send + shift_bytes),
        recv_(recv + shift_bytes),
        layout_(layout),
        offset_(place / layout.stride_bytes % layout.slot_count * layout.stride_bytes) {}

  char* send() const { return send_ + offset_; }
  char* recv() const { return recv_ + offset_; }
  size_t place() const { return offset_; }
  /// Moves to the next slot; after the last slot, to the first.
  void advance() {
    offset_ += layout_.stride_bytes;
    if (offset_ >= layout_.bytes()) offset_ = 0;
  }

 private:
  char* send_;
  char* recv_;
  RingLayout layout_;
  size_t offset_;
};

}  // namespace tutti::perf
