// World: ranks that share one simulated device, each with the memory that a communicator would give it:
// rings, exposed buffer, state, signals, a Program. A call launches every rank's part and launches again what
// left unfinished, as a host does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/cuda/bind.h"
#include "engine/cuda/program.h"
#include "engine/links.h"
#include "tests/engine/raw_links.h"
#include "tests/simt/multicast.h"
#include "tests/simt/scheduler.h"
#include "transports/link.h"

namespace tutti::test {

using Kernel = void (*)(cuda::Launch);

struct WorldOptions {
  uint32_t ranks = 2;
  RingShape shape{.slots = 8, .slot_bytes = 256};
  bool multicast = false;  ///< ranks have multicast memory
  /// Ranks find each other's memory by address, or by place: of the ranks whose bit is set buffers lie in a
  /// registered memory, up to `registered_bytes` of each.
  bool by_location = false;
  uint32_t registered_ranks = UINT32_MAX;
  uint64_t registered_bytes = UINT64_MAX;
  uint32_t threads = 16;  ///< of a block
  uint64_t poll_limit = UINT64_MAX;
  uint64_t most_turns = 2'000'000;  ///< of the device in one call
  bool together = false;            ///< one grid runs all ranks' parts
  uint32_t stay_blocks = 0;         ///< not 0: launches stay, and have no more blocks a rank
  simt::Options device{};
  Kernel kernel = nullptr;
  Kernel short_kernel = nullptr;  ///< runs programs of short calls
};

/// What a rank's call works on.
struct CallBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  const void* scale = nullptr;
};

class World {
 public:
  static constexpr uint32_t kStripes = 4;
  static constexpr uint32_t kMostSlotsPerSlice = 4;

  explicit World(const WorldOptions& options);
  ~World();

  cuda::LinkIndex& links(uint32_t rank);
  /// As if every ring that has been asked for had carried `number` messages. For the wrap-around of their
  /// numbers.
  void begin_at(uint64_t number);
  /// The rank's mailboxes, by peer.
  std::vector<cuda::MailLink> mail(uint32_t rank) const;
  /// From now on the rank's calls run this.
  void set_program(uint32_t rank, const cuda::Image& image);
  /// One call of every rank. Empty: all have ended, and the caller sees what they did; else who waits where.
  std::string call(const std::vector<CallBuffers>& buffers);
  /// `count` calls of every rank, each of which begins its next one when its last has ended, wherever the
  /// others are. `prepare` says what a rank's next call works on and may set its program.
  std::string calls(uint32_t count, const std::function<CallBuffers(uint32_t rank, uint32_t call)>& prepare);
  /// Runs `body` in one block behind everything that the rank has launched so far.
  void launch_behind(uint32_t rank, std::function<void()> body);

  cuda::LaunchEnd launch_end(uint32_t rank) const;  ///< of its last launch
  cuda::Signals& signals(uint32_t rank);
  /// What the launch or round that has left last has told the rank's host.
  cuda::LaunchReport report(uint32_t rank);
  cuda::RankState& state(uint32_t rank);
  cuda::Program& program(uint32_t rank);
  cuda::SendLink& send_link(uint32_t rank, uint32_t peer, uint32_t channel);
  cuda::RecvLink& receive_link(uint32_t rank, uint32_t peer, uint32_t channel);
  /// Launches so far, of all ranks.
  uint64_t launches() const { return launches_; }
  simt::Scheduler& device() { return device_; }
  /// Launches one rank's part and runs the device until nothing moves any more; launches nothing again.
  void launch_alone(uint32_t rank, const CallBuffers& buffers, bool first = true);
  /// Sets on_turn: the rank's host asks for an end in the device's fifth turn.
  void abort_amid(uint32_t rank);
  /// What the rank's last launch says, as its host would read it now.
  cuda::LaunchEnd look(uint32_t rank);

  /// Called after every turn of the device; may write what the kernels poll.
  std::function<void()> on_turn;
  /// Called where no order of the fibers goes on; returns whether the device takes more turns all the same.
  std::function<bool()> on_stuck;
  /// Called at the moment at which a rank's host learns that its call has ended, the others still running.
  std::function<void(uint32_t rank)> on_ended;

 private:
  struct Rank;
  class Index;

  void make_multicast_memory();
  void forget_contributions(uint32_t rank);
  RingMemory& ring_memory(uint32_t writer, uint32_t reader, uint32_t channel);
  Kernel kernel_of(uint32_t rank) const;
  std::string run_until_all(const std::function<bool()>& have_ended);
  void launch(uint32_t rank, bool first);
  cuda::Launch new_launch(uint32_t parts) const;
  void launch_together();
  Reach reach(uint32_t rank, const void* buffer) const;
  cuda::Part part(uint32_t rank, uint32_t first_block) const;
  bool snapshot_of(uint32_t rank);

  WorldOptions options_;
  simt::Scheduler device_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::unique_ptr<RingMemory>> rings_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<simt::MulticastMemory> multicast_;
  std::vector<CallBuffers> buffers_;
  uint64_t launches_ = 0;
};

}  // namespace tutti::test
