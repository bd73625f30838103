// Slice costs: what a slice costs a rank on a core, by its bytes, as probes have measured it. Straight lines
// join the measured sizes. This is PLogP (Kielmann, Bal, Verstoep 2000): overheads of sender and receiver,
// latency and gap as functions of the size; here with a curve for each way of carrying bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "topology/fact.h"

namespace tutti::topology {

/// What a curve's probe did with each slice. The other end of each is a buffer in the nearest cache, unless
/// it says memory. All cores of the probe worked at once. Stores go past the caches where the library's
/// trials choose so (transports/store_trials.h, engine/result_trials.h).
enum class SliceWork : uint8_t {
  kCopy,           ///< copied it inside the nearest cache
  kRead,           ///< copied it out of memory
  kWrite,          ///< copied it to memory
  kReduce,         ///< added two of them
  kSend,           ///< copied it into the slot of a link to another core, and told so
  kReceive,        ///< copied it out of such a slot, when it had long arrived
  kSendOwn,        ///< kSend, to a rank on the same core
  kReceiveOwn,     ///< kReceive, from a rank on the same core
  kPass,           ///< sent it out of memory to a core that waited, into its memory: half a ping-pong
  kStream,         ///< sent one after the other to a core that waits for each: from one to the next
  kCopyMemory,     ///< copied it from memory to memory
  kSendMemory,     ///< kSend, out of memory
  kReceiveMemory,  ///< kReceive, to memory
  kReduceMemory,   ///< added it in a slot and one in memory, to memory
  kSocketSend,     ///< gave it to a TCP socket whose other end is a core of this machine
  kSocketReceive,  ///< took it from such a socket
  kSocketPass,     ///< kPass, over such a socket
  kSocketStream,   ///< kStream, over such a socket
};
inline constexpr size_t kSliceWorks = 18;
inline constexpr size_t kMemoryWorks = 14;  ///< those before the sockets

/// "copy", "send_own": as files name them.
std::string_view work_name(SliceWork work);

struct SlicePoint {
  uint32_t bytes = 0;
  Fact ns = {};

  friend bool operator==(const SlicePoint&, const SlicePoint&) = default;
};

struct SliceCosts {
  std::array<std::vector<SlicePoint>, kSliceWorks> curves;  ///< each in the order of bytes
  Fact turn_ns = {};   ///< a rank that has nothing to do gives its core to the next rank
  Fact call_ns = {};   ///< of a call that moves next to nothing
  Fact apart_ns = {};  ///< a cache line between the probe's cores, one way; 0: unknown

  /// Every curve but those of sockets is there, and turn_ns and call_ns.
  bool are_known() const;
  bool know_sockets() const;
  /// Microseconds. Beyond the last point as steep as before it; 0 without points.
  double us(SliceWork work, double bytes) const;
  /// What `work` takes beyond kCopy, which is in every slice once; at least 0.
  double beyond_copy_us(SliceWork work, double bytes) const;
  /// The two works at once, over their sum: less than 1 where they overlap.
  double part_of(SliceWork both, SliceWork one, SliceWork other, double bytes) const;
  /// kReduceMemory over the sum of its parts.
  double part_of_reduce(double bytes) const;

  friend bool operator==(const SliceCosts&, const SliceCosts&) = default;
};

struct NamedSliceFact {
  std::string_view name;
  Fact SliceCosts::*field;
};
/// All facts beside the curves: as files name them.
inline constexpr std::array<NamedSliceFact, 3> kSliceFacts = {
    {{"turn", &SliceCosts::turn_ns}, {"call", &SliceCosts::call_ns}, {"apart", &SliceCosts::apart_ns}}};

}  // namespace tutti::topology
