// Shrink, by trying every order of events: ranks that agree, meet, notice deaths and die, at any step of each
// other, over links that deliver late. The rule is the library's own (comm/shrink_state.h); all around it is
// a model of src/comm/shrink.cc and of the bootstrap, in which whatever is not promised may happen.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "comm/shrink_state.h"
#include "core/hash.h"
#include "tests/support/scope.h"

namespace tutti {
namespace {

constexpr size_t kRanksMax = 4;
constexpr uint8_t kAttemptsMax = 4;
/// What a rank that has not looked at a peer knows of it.
constexpr uint8_t kUnknown = 0xff;

using Mask = uint8_t;
constexpr Mask bit(size_t rank) {
  return static_cast<Mask>(1u << rank);
}

/// One decision, and the bootstrap that follows it. Each of its two exchanges is complete when all have given
/// their part; then each member is told, or, when anybody dies or fails, perhaps not.
struct Attempt {
  uint8_t leader;
  Mask members;
  Mask introduced;
  Mask ready;
  Mask failed;
};

/// Attempts are named by their number, from 1 on; 0: none.
struct RankModel {
  uint8_t phase;
  uint8_t held;
  uint8_t meets_in;
  uint8_t tried;
  Mask noticed;  ///< of those that are gone
  Mask is_gone;  ///< 1: died, 2: left, as it may when it is through
  std::array<uint8_t, kRanksMax> seen;
  std::array<uint8_t, kRanksMax> decision;  ///< the last that has come, by its leader
};

struct World {
  std::array<RankModel, kRanksMax> ranks;
  std::array<Attempt, kAttemptsMax> attempts;
  uint8_t attempt_count;
  uint8_t deaths_left;

  Attempt& attempt(uint8_t number) { return attempts[number - 1u]; }
  const Attempt& attempt(uint8_t number) const { return attempts[number - 1u]; }
};
static_assert(std::has_unique_object_representations_v<World>);

using Rule =
    std::function<ShrinkStep(uint64_t held, bool leads, std::span<const std::optional<ShrinkState>>)>;

struct Options {
  size_t rank_count = 2;
  uint8_t deaths = 1;
  /// A leader may decide again and again on somebody whose death it has not noticed: what follows so many
  /// decisions is left out.
  uint8_t attempts = kAttemptsMax;
  Rule rule = shrink_step;
  bool believes_old_looks = false;   ///< a mistake: what was seen counts in a later agreement, too
  bool drops_when_it_meets = false;  ///< a mistake: who follows a new decision gives up what it holds before
};

uint8_t packed(const RankModel& rank) {
  return static_cast<uint8_t>(rank.held << 2 | rank.phase);
}

std::optional<ShrinkState> unpacked(uint8_t seen) {
  if (seen == kUnknown) return std::nullopt;
  return ShrinkState::unpack(seen);
}

class Explorer {
 public:
  explicit Explorer(Options options) : options_(std::move(options)) {}

  /// What the first wrong world is like; empty when there is none.
  std::string run() {
    World start{};
    start.deaths_left = options_.deaths;
    for (RankModel& rank : start.ranks) {
      rank.phase = ShrinkState::kAgreeing;
      rank.seen.fill(kUnknown);
    }
    visit(start);
    while (!open_.empty() && wrong_.empty()) {
      const World world = open_.back();
      open_.pop_back();
      explore(world);
    }
    return wrong_;
  }

  size_t world_count() const { return seen_.size(); }

 private:
  size_t count() const { return options_.rank_count; }

  void visit(World world) {
    has_next_ = true;
    forget_what_cannot_matter(world);
    if (seen_.insert(hash_bytes(&world, sizeof(world), kHashSeed)).second) open_.push_back(world);
  }

  /// Worlds that go on in the same ways become one.
  void forget_what_cannot_matter(World& world) const {
    Mask gone = 0;
    for (size_t rank = 0; rank < count(); ++rank) {
      RankModel& mine = world.ranks[rank];
      if (mine.is_gone != 0) gone |= bit(rank);
      if (mine.is_gone != 0 || mine.phase == ShrinkState::kThrough) {
        mine = {mine.phase, mine.held, 0, 0, 0, mine.is_gone, {}, {}};
      }
      for (size_t peer = 0; peer < count(); ++peer) {
        if ((mine.noticed & bit(peer)) == 0) continue;
        mine.seen[peer] = kUnknown;
        mine.decision[peer] = 0;
      }
    }
    for (Attempt& attempt : world.attempts) {
      const Mask out = static_cast<Mask>((attempt.failed | gone) & attempt.members & ~attempt.ready);
      // Not all can become ready any more.
      if (out != 0) attempt = {attempt.leader, attempt.members, 0, 0, attempt.members};
    }
  }

  void explore(const World& world) {
    check_safe(world);
    has_next_ = false;
    for (size_t rank = 0; rank < count(); ++rank) {
      if (world.ranks[rank].is_gone != 0) continue;
      notice(world, rank);
      receive(world, rank);
      if (world.ranks[rank].phase == ShrinkState::kAgreeing) agree(world, rank);
      if (world.ranks[rank].phase == ShrinkState::kBootstrap) meet(world, rank);
    }
    if (!has_next_) check_end(world);
    for (size_t rank = 0; rank < count(); ++rank) {
      if (world.ranks[rank].is_gone == 0) disappear(world, rank);
    }
  }

  void disappear(const World& world, size_t rank) {
    if (world.ranks[rank].phase == ShrinkState::kThrough) {
      World next = world;
      next.ranks[rank].is_gone = 2;
      visit(next);
    }
    if (world.deaths_left == 0) return;
    World next = world;
    next.ranks[rank].is_gone = 1;
    --next.deaths_left;
    visit(next);
  }

  void notice(const World& world, size_t rank) {
    for (size_t peer = 0; peer < count(); ++peer) {
      if (world.ranks[peer].is_gone == 0 || (world.ranks[rank].noticed & bit(peer)) != 0) continue;
      World next = world;
      next.ranks[rank].noticed |= bit(peer);
      visit(next);
    }
  }

  /// Decisions of one leader come in their order, and none after its end has been noticed.
  void receive(const World& world, size_t rank) {
    const RankModel& mine = world.ranks[rank];
    for (size_t leader = 0; leader < rank; ++leader) {
      if ((mine.noticed & bit(leader)) != 0) continue;
      uint8_t number = mine.decision[leader] + 1u;
      while (number <= world.attempt_count && world.attempt(number).leader != leader) ++number;
      if (number > world.attempt_count) continue;
      World next = world;
      next.ranks[rank].decision[leader] = number;
      visit(next);
    }
  }

  void agree(const World& world, size_t rank) {
    const RankModel& mine = world.ranks[rank];
    size_t leader = 0;
    while ((mine.noticed & bit(leader)) != 0) ++leader;
    const bool leads = leader == rank;
    if (leads || mine.held != 0) look(world, rank);
    std::array<std::optional<ShrinkState>, kRanksMax> others;
    size_t other_count = 0;
    for (size_t peer = 0; peer < count(); ++peer) {
      if (peer != rank && (mine.noticed & bit(peer)) == 0) others[other_count++] = unpacked(mine.seen[peer]);
    }
    const bool looks = leads || mine.held != 0;
    const uint64_t held = uint64_t{mine.held} << 2;
    switch (looks ? options_.rule(held, leads, std::span(others).first(other_count)) : ShrinkStep::kWait) {
      case ShrinkStep::kTake: {
        World next = world;
        next.ranks[rank].phase = ShrinkState::kThrough;
        return visit(next);
      }
      case ShrinkStep::kDecide: return decide(world, rank);
      case ShrinkStep::kWait: break;
    }
    const uint8_t decision = leads ? uint8_t{0} : mine.decision[leader];
    if (decision != 0 && decision != mine.tried) follow(world, rank, decision);
  }

  void look(const World& world, size_t rank) {
    for (size_t peer = 0; peer < count(); ++peer) {
      const uint8_t state = packed(world.ranks[peer]);
      if (peer == rank || (world.ranks[rank].noticed & bit(peer)) != 0 ||
          world.ranks[rank].seen[peer] == state)
        continue;
      World next = world;
      next.ranks[rank].seen[peer] = state;
      visit(next);
    }
  }

  void decide(const World& world, size_t rank) {
    has_next_ = true;
    if (world.attempt_count == options_.attempts) return;
    World next = world;
    const auto number = ++next.attempt_count;
    next.attempt(number).leader = static_cast<uint8_t>(rank);
    for (size_t peer = 0; peer < count(); ++peer) {
      if ((world.ranks[rank].noticed & bit(peer)) == 0) next.attempt(number).members |= bit(peer);
    }
    follow(next, rank, number);
  }

  void follow(const World& world, size_t rank, uint8_t number) {
    World next = world;
    RankModel& mine = next.ranks[rank];
    mine.phase = ShrinkState::kBootstrap;
    mine.tried = number;
    mine.meets_in = number;
    if (!options_.believes_old_looks) mine.seen.fill(kUnknown);
    if (options_.drops_when_it_meets) mine.held = 0;
    next.attempt(number).introduced |= bit(rank);
    visit(next);
  }

  void meet(const World& world, size_t rank) {
    const uint8_t number = world.ranks[rank].meets_in;
    const Attempt& attempt = world.attempt(number);
    const bool is_ready = (attempt.ready & bit(rank)) != 0;
    if (!is_ready && attempt.introduced == attempt.members) {
      World next = world;
      next.attempt(number).ready |= bit(rank);
      visit(next);
    }
    if (attempt.ready == attempt.members) {
      World next = world;
      next.ranks[rank].held = number;
      begin_to_agree(next.ranks[rank]);
      visit(next);
    }
    Mask gone = attempt.failed;
    for (size_t peer = 0; peer < count(); ++peer) {
      if (world.ranks[peer].is_gone != 0) gone |= bit(peer);
    }
    if ((gone & attempt.members) == 0) return;
    World next = world;
    next.attempt(number).failed |= bit(rank);
    begin_to_agree(next.ranks[rank]);
    visit(next);
  }

  void begin_to_agree(RankModel& rank) const {
    rank.phase = ShrinkState::kAgreeing;
    rank.meets_in = 0;
    if (!options_.believes_old_looks) rank.seen.fill(kUnknown);
  }

  /// Invariant: once one that lives is through, every member that lives holds the same, or is through as
  /// well.
  void check_safe(const World& world) {
    for (size_t rank = 0; rank < count(); ++rank) {
      const RankModel& mine = world.ranks[rank];
      if (mine.phase != ShrinkState::kThrough || mine.is_gone == 1) continue;
      for (size_t peer = 0; peer < count(); ++peer) {
        const RankModel& theirs = world.ranks[peer];
        if (theirs.is_gone != 1 && theirs.held != mine.held) return report(world, "two communicators");
      }
    }
  }

  /// Nothing can happen any more but deaths.
  void check_end(const World& world) {
    for (size_t rank = 0; rank < count(); ++rank) {
      const RankModel& mine = world.ranks[rank];
      if (mine.is_gone == 0 && mine.phase != ShrinkState::kThrough)
        return report(world, "a rank waits for ever");
    }
  }

  void report(const World& world, const std::string& what) {
    wrong_ = what + ":";
    for (size_t rank = 0; rank < count(); ++rank) {
      const RankModel& mine = world.ranks[rank];
      wrong_ += format(" rank %zu: gone %u, phase %u, holds %u, tried %u;", rank, mine.is_gone, mine.phase,
                       mine.held, mine.tried);
    }
  }

  Options options_;
  std::unordered_set<uint64_t> seen_;
  std::vector<World> open_;
  std::string wrong_;
  bool has_next_ = false;
};

/// Of which rule is the library's.
void expect_one_communicator(const Options& options) {
  Explorer explorer(options);
  EXPECT_EQ(explorer.run(), "") << options.rank_count << " ranks, " << int{options.deaths} << " deaths";
  testing::Test::RecordProperty("worlds", std::to_string(explorer.world_count()));
}

// Goal: whoever dies, at whatever moment, all that live come out in one communicator, and none waits for
// ever.
TEST(ShrinkModelTest, SurvivorsEndInOneCommunicator) {
  expect_one_communicator({.rank_count = 2, .deaths = 1});
  expect_one_communicator({.rank_count = 3, .deaths = 1});
  expect_one_communicator({.rank_count = 3, .deaths = 2});
}

TEST(ShrinkModelTest, FourRanksEndInOneCommunicator) {
  if (test::sanitized()) GTEST_SKIP() << "hundreds of thousands of worlds, and one thread";
  expect_one_communicator({.rank_count = 4, .deaths = 1, .attempts = 2});
  if (!test::full_run()) return;
  expect_one_communicator({.rank_count = 4, .deaths = 1, .attempts = 3});
  expect_one_communicator({.rank_count = 4, .deaths = 2, .attempts = 2});
}

// Goal: the model is able to show what it is to exclude. Method: rules that are wrong, each by one thing.
TEST(ShrinkModelTest, WhoTakesItAtOnceEndsInAnother) {
  const Rule hasty = [](uint64_t held, bool leads, std::span<const std::optional<ShrinkState>> others) {
    return held != 0 ? ShrinkStep::kTake : shrink_step(held, leads, others);
  };
  EXPECT_TRUE(Explorer({.rank_count = 3, .deaths = 1, .rule = hasty}).run().starts_with("two"));
}

TEST(ShrinkModelTest, WhoBelievesAnOldAnswerEndsInAnother) {
  EXPECT_TRUE(Explorer({.rank_count = 4, .deaths = 1, .believes_old_looks = true}).run().starts_with("two"));
}

TEST(ShrinkModelTest, WhoDropsWhatItHoldsTooEarlyEndsInAnother) {
  EXPECT_TRUE(Explorer({.rank_count = 4, .deaths = 2, .drops_when_it_meets = true}).run().starts_with("two"));
}

}  // namespace
}  // namespace tutti
