// Sim: a transport inside one process whose clock, delays and faults come from a seed.
//
// Every link has two rings, the writer's and the reader's, and a pump that carries messages from one to the
// other and credits back, as a network transport's does. The pump works on events of a virtual clock: a
// message is on its way for a seeded number of ticks, overtakes messages of other links but never of its own,
// and its credit may be withheld; a rank gets its turns after seeded pauses. A rank can be slow or stop for
// good, a link can tear in the middle of a message. Nothing else is random: one seed is one history, whatever
// the machine. When no event is left, nothing can ever happen again: a deadlock is found exactly, without a
// deadline.
//
// A reference travels as the address that the writer committed and is read or pulled when the reader's step
// runs, so a writer that completes too early is caught as soon as its owner writes to the buffer.
//
// Idea: deterministic simulation as FoundationDB and TigerBeetle use it (packet simulator with a seeded
// clock).
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

/// Seeded numbers that are the same on every platform (SplitMix64: Steele, Lea & Flood, "Fast splittable
/// pseudorandom number generators", 2014).
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// In [0, bound); 0 for bound 0. Not exactly uniform, which no user here needs.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  bool one_in(uint64_t n) { return n != 0 && below(n) == 0; }

 private:
  uint64_t state_;
};

/// Times are in ticks of the virtual clock.
struct SimOptions {
  uint32_t rank_count = 2;
  uint64_t seed = 1;
  uint32_t slots = 8;  ///< of a link; power of two
  uint32_t slot_bytes = 256;
  uint64_t first_number = 0;   ///< every link's first message has this number; for tests of its wrap-around
  bool pull = false;           ///< ranks pass for processes of their own, whose memory the others pull from
  uint32_t turn_ticks = 8;     ///< longest pause between what wakes a rank and its turn
  uint32_t delay_ticks = 16;   ///< longest way of a message or credit
  uint32_t stall_ticks = 0;    ///< what a stalled message or credit takes on top
  uint32_t stall_one_in = 16;  ///< how many messages or credits there are for each stalled one; 0: none
};

/// The links of all ranks and the pump between them. Single-threaded. Use: wake every rank once; then, while
/// next_turn() names a rank, let that rank work on its links and call pump(rank), and wake(rank) if it can go
/// on without anything new arriving.
class SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options);

  /// Ends of links, made when first asked for; they live as long as the network. Both ends of one link have
  /// the same arguments. `channel` is any number. Ranks are below rank_count.
  SendLink* send_link(uint32_t writer, uint32_t reader, uint32_t channel);
  RecvLink* recv_link(uint32_t writer, uint32_t reader, uint32_t channel);
  /// The ring that `writer` publishes to all other ranks.
  SendLink* publish_link(uint32_t writer);
  RecvLink* published_by(uint32_t writer, uint32_t reader);

  /// The rank's pauses become `factor` times as long.
  void slow_rank(uint32_t rank, uint32_t factor);
  /// The rank stops for good after it has had `turns` more turns, or after its first `messages` messages have
  /// left it. Later messages and credits stay in its rings, in what order across its links is seeded; what
  /// had left it arrives.
  void stop_rank_after_turns(uint32_t rank, uint64_t turns);
  void stop_rank_after_messages(uint32_t rank, uint64_t messages);
  /// The link carries this many messages and half of the next one, then nothing in either direction.
  void tear_link(uint32_t writer, uint32_t reader, uint32_t channel, uint64_t messages);
  bool stopped(uint32_t rank) const { return ranks_[rank].stopped; }
  /// Ends the stop: the rank goes on where it was, as if it had only been very slow.
  void revive_rank(uint32_t rank);

  /// Gives the rank a turn in the near future, unless one is due already.
  void wake(uint32_t rank);
  /// Lets time pass until a rank's turn; empty when nothing can happen any more.
  std::optional<uint32_t> next_turn();
  /// Takes what the rank has committed and released since its last turn.
  void pump(uint32_t rank);

  uint64_t now() const { return now_; }
  uint64_t messages_sent(uint32_t rank) const { return ranks_[rank].messages; }
  const SimOptions& options() const { return options_; }

 private:
  struct FreeRing {
    void operator()(std::byte* ring) const;
  };
  using Ring = std::unique_ptr<std::byte[], FreeRing>;

  /// The writing end of a link, or of a published ring.
  struct Source {
    Ring ring;
    SendLink link;
  };
  /// The way from one writer to one reader, and the reader's end.
  struct Wire {
    uint32_t writer = 0;
    uint32_t reader = 0;
    Source* source = nullptr;
    uint32_t credit = 0;  ///< this reader's among the source's
    Ring ring;
    RecvLink link;
    std::vector<std::byte> bounce;
    Cell* cells = nullptr;  ///< of `ring`
    std::byte* slots = nullptr;
    uint64_t taken = 0;      ///< messages that have left the writer
    uint64_t delivered = 0;  ///< messages that have reached the reader
    uint64_t message_due = 0;
    uint64_t returned = 0;  ///< credits taken from the reader
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
    uint64_t order = 0;  ///< of making: no two events are alike
    EventKind kind = EventKind::kTurn;
    uint32_t rank = 0;     ///< kTurn
    Wire* wire = nullptr;  ///< kMessage, kCredit
    uint64_t value = 0;    ///< kCredit: messages given back

    friend bool operator<(const Event& a, const Event& b) {  // the earliest event has the highest priority
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
