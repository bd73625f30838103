// SimNetwork: a network inside one process, with clock, delays and faults from a seed.
//
// Each link has two rings, the writer's and the reader's. Events of a virtual clock carry messages one way
// and credits back. Delays are seeded. Messages of one link keep their order, messages of different links do
// not. A rank gets turns after seeded pauses; it can be slow or stop. A link can tear in the middle of a
// message. One seed is one history on every machine. When no event is left, nothing can happen any more: so
// deadlocks are found exactly, without a deadline.
//
// A reference travels as the writer's address. The reader's step reads or pulls from there. So a writer that
// completes too early is caught as soon as its owner writes to the buffer.
//
// Idea: deterministic simulation in FoundationDB and TigerBeetle (packet simulator with a seeded clock).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "transports/link.h"

namespace tutti {

/// Seeded numbers, the same on every platform (SplitMix64: Steele, Lea & Flood, "Fast splittable pseudorandom
/// number generators", 2014).
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// In [0, bound); 0 for bound 0. Not exactly uniform.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  bool one_in(uint64_t n) { return n != 0 && below(n) == 0; }

 private:
  uint64_t state_;
};

/// Times are ticks of the virtual clock.
struct SimOptions {
  uint32_t rank_count = 2;
  uint64_t seed = 1;
  uint32_t slots = 8;  ///< of a link; power of two
  uint32_t slot_bytes = 256;
  uint64_t first_number = 0;   ///< number of every link's first message, to test its wrap-around
  bool pull = false;           ///< ranks act as separate processes, and pull from each other
  uint32_t turn_ticks = 8;     ///< longest pause between a rank's wake-up and its turn
  uint32_t delay_ticks = 16;   ///< longest travel time of a message or credit
  uint32_t stall_ticks = 0;    ///< extra time of a stalled message or credit
  uint32_t stall_one_in = 16;  ///< one in so many messages or credits stalls; 0: none
};

/// Single-threaded. Wake every rank once. While next_turn() names a rank, let it work on its links and call
/// progress(rank); call wake(rank) if it can go on although nothing new arrives.
class SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options);

  /// The ends of a link, made at the first call; valid as long as the network. Both ends have the same
  /// arguments, with any `channel`.
  SendLink* send_link(uint32_t writer, uint32_t reader, uint32_t channel);
  RecvLink* recv_link(uint32_t writer, uint32_t reader, uint32_t channel);
  /// The ring that `writer` publishes to all other ranks.
  SendLink* publish_link(uint32_t writer);
  RecvLink* published_by(uint32_t writer, uint32_t reader);

  void slow_rank(uint32_t rank, uint32_t factor);
  /// Stops the rank after `turns` more turns, or after its first `messages` messages, which still arrive.
  /// Later messages and credits stay in its rings. The seed decides the order across links.
  void stop_rank_after_turns(uint32_t rank, uint64_t turns);
  void stop_rank_after_messages(uint32_t rank, uint64_t messages);
  /// The link carries so many messages and half of the next one, then nothing in either direction.
  void tear_link(uint32_t writer, uint32_t reader, uint32_t channel, uint64_t messages);
  bool stopped(uint32_t rank) const { return ranks_[rank].stopped; }
  /// The rank goes on as if it had only been very slow.
  void revive_rank(uint32_t rank);

  /// Gives the rank a turn soon, unless one is due.
  void wake(uint32_t rank);
  /// Advances the clock to a rank's turn. Empty if nothing can happen any more.
  std::optional<uint32_t> next_turn();
  /// Takes what the rank has committed and released since its last turn.
  void progress(uint32_t rank);

  uint64_t now() const { return now_; }
  uint64_t messages_sent(uint32_t rank) const { return ranks_[rank].messages; }
  const SimOptions& options() const { return options_; }

 private:
  struct FreeRing {
    void operator()(std::byte* ring) const;
  };
  using Ring = std::unique_ptr<std::byte[], FreeRing>;

  struct Source {
    Ring ring;
    SendLink link;
  };
  /// One writer's path to one reader.
  struct Wire {
    uint32_t writer = 0;
    uint32_t reader = 0;
    Source* source = nullptr;
    uint32_t credit = 0;  ///< index among the source's credits
    Ring ring;
    RecvLink link;
    std::vector<std::byte> bounce;
    Cell* cells = nullptr;
    std::byte* slots = nullptr;
    uint64_t taken = 0;      ///< messages that have left the writer
    uint64_t delivered = 0;  ///< messages that have reached the reader
    uint64_t message_due = 0;
    uint64_t returned = 0;
    uint64_t credit_due = 0;
    uint64_t tear_at = UINT64_MAX;  ///< the number of the message that never arrives
    bool torn = false;
  };
  struct Rank {
    std::vector<Wire*> outgoing;
    std::vector<Wire*> incoming;
    uint32_t slowness = 1;
    uint64_t turns_left = UINT64_MAX;
    uint64_t messages = 0;
    uint64_t messages_most = UINT64_MAX;
    bool turn_due = false;
    bool stopped = false;
  };
  enum class EventKind : uint8_t { kTurn, kMessage, kCredit };
  struct Event {
    uint64_t time = 0;
    uint64_t order = 0;  ///< of creation: no two events are equal
    EventKind kind = EventKind::kTurn;
    uint32_t rank = 0;     ///< kTurn
    Wire* wire = nullptr;  ///< kMessage, kCredit
    uint64_t value = 0;    ///< kCredit: released messages

    friend bool operator<(const Event& a, const Event& b) {  // the earliest event first
      return std::tie(a.time, a.order) > std::tie(b.time, b.order);
    }
  };

  RingShape shape(uint32_t readers) const;
  Ring make_ring(uint32_t readers) const;
  Source& make_source(uint32_t writer, uint32_t readers);
  std::unique_ptr<Wire> make_wire(uint32_t writer, uint32_t reader, Source& source, uint32_t credit);
  Wire& wire(uint32_t writer, uint32_t reader, uint32_t channel);
  void publish(uint32_t writer);

  void push(Event event);
  uint64_t travel_ticks();
  void take_messages(Rank& rank);
  void take_messages_until_stop(Rank& rank);
  void take_message(Wire& wire);
  void take_credits(Rank& rank);
  void deliver(Wire& wire);
  void tear(Wire& wire);

  SimOptions options_;
  SimRandom random_;
  uint64_t now_ = 0;
  uint64_t event_count_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::unique_ptr<Wire>>
      wires_;  ///< writer, reader, channel
  std::vector<std::vector<std::unique_ptr<Wire>>>
      published_;  ///< by writer, then by reader (null for itself)
};

}  // namespace tutti
