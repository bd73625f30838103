#include "trainer/schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

using Kind = Action::Kind;

/// Forward passes of a rank before its first backward pass.
size_t warm_up(const Schedule::Shape& shape, size_t rank) {
  const size_t all = shape.micro_batches * shape.chunks;
  const size_t behind = shape.ranks - 1 - rank;
  if (shape.chunks == 1) return std::min(all, behind);
  // Later chunks wait for earlier ones to come around, so the warm-up is longer (Megatron-LM).
  return std::min(all, 2 * behind + (shape.chunks - 1) * shape.ranks);
}

/// The number-th pass of a kind: chunks take turns after a group of `ranks` micro-batches.
Action pass(const Schedule::Shape& shape, Kind kind, size_t number) {
  if (shape.chunks == 1) return {kind, number, 0};
  const size_t group = shape.ranks * shape.chunks;
  const size_t chunk = number % group / shape.ranks;
  return {kind, number / group * shape.ranks + number % shape.ranks,
          kind == Kind::kForward ? chunk : shape.chunks - 1 - chunk};
}

std::vector<std::vector<Action>> alternate(const Schedule::Shape& shape, bool updates_each) {
  const size_t all = shape.micro_batches * shape.chunks;
  std::vector<std::vector<Action>> lists(shape.ranks);
  for (size_t rank = 0; rank < shape.ranks; ++rank) {
    size_t forward = 0;
    while (forward < warm_up(shape, rank)) lists[rank].push_back(pass(shape, Kind::kForward, forward++));
    for (size_t backward = 0; backward < all; ++backward) {
      if (forward < all) lists[rank].push_back(pass(shape, Kind::kForward, forward++));
      lists[rank].push_back(pass(shape, Kind::kBackward, backward));
      if (updates_each) lists[rank].push_back({Kind::kUpdate, backward, 0});
    }
    if (!updates_each) lists[rank].push_back({Kind::kUpdate, 0, 0});
  }
  return lists;
}

}  // namespace

Schedule Schedule::gpipe(const Shape& shape) {
  std::vector<std::vector<Action>> lists(shape.ranks);
  for (auto& list : lists) {
    for (const Kind kind : {Kind::kForward, Kind::kBackward})
      for (size_t i = 0; i < shape.micro_batches * shape.chunks; ++i) {
        const size_t chunk = i / shape.micro_batches;
        list.push_back(
            {kind, i % shape.micro_batches, kind == Kind::kForward ? chunk : shape.chunks - 1 - chunk});
      }
    list.push_back({Kind::kUpdate, 0, 0});
  }
  return {shape, lists};
}

Schedule Schedule::one_forward_one_backward(const Shape& shape) {
  return {shape, alternate(shape, false)};
}

Schedule Schedule::pipedream(const Shape& shape) {
  return {shape, alternate(shape, true)};
}

Schedule Schedule::named(const std::string& name, const Shape& shape) {
  const auto text = [](size_t number) { return std::to_string(number); };
  if (shape.chunks > 1 && name == "1f1b" && shape.micro_batches % shape.ranks != 0)
    throw Error("interleaved stages take micro-batches in groups of " + text(shape.ranks) +
                " ranks: " + text(shape.micro_batches) + " do not divide; change --accumulate");
  if (shape.chunks > 1 && name == "pipedream")
    throw Error("pipedream has one stage a rank: leave out --chunks");
  if (name == "gpipe") return gpipe(shape);
  if (name == "1f1b") return one_forward_one_backward(shape);
  if (name == "pipedream") return pipedream(shape);
  throw Error("unknown schedule '" + name + "': gpipe, 1f1b or pipedream");
}

std::string text_of(const Action& action, bool with_chunk) {
  if (action.kind == Kind::kUpdate) return "U";
  return (action.kind == Kind::kForward ? "F" : "B") + std::to_string(action.micro_batch) +
         (with_chunk ? "." + std::to_string(action.chunk) : "");
}

std::string Schedule::text() const {
  std::string text;
  for (size_t rank = 0; rank < lists_.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const Action& action : lists_[rank]) text += " " + text_of(action, shape_.chunks > 1);
    text += "\n";
  }
  return text;
}

bool Schedule::run(double forward, double backward, std::vector<Bar>* bars, std::string* stuck) const {
  const size_t stages = shape_.ranks * shape_.chunks;
  std::map<std::array<size_t, 3>, double> ends;  // by kind, stage and micro-batch
  std::vector<size_t> next(shape_.ranks);
  std::vector<double> clock(shape_.ranks);
  // The end of the pass that `action` waits for; 0 for none, less than 0 if it has not run.
  const auto ready = [&](size_t stage, const Action& action) {
    const bool goes_forward = action.kind == Kind::kForward;
    if (action.kind == Kind::kUpdate || (goes_forward && stage == 0)) return 0.0;
    // The last stage's backward pass follows its own forward pass.
    const bool turns = !goes_forward && stage + 1 == stages;
    const std::array<size_t, 3> key = {goes_forward || turns ? size_t{0} : size_t{1},
                                       goes_forward ? stage - 1
                                       : turns      ? stage
                                                    : stage + 1,
                                       action.micro_batch};
    const auto found = ends.find(key);
    return found == ends.end() ? -1.0 : found->second;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t rank = 0; rank < shape_.ranks; ++rank) {
      for (; next[rank] < lists_[rank].size(); ++next[rank], moves = true) {
        const Action& action = lists_[rank][next[rank]];
        const size_t stage = stage_of(rank, action);
        const double start = ready(stage, action);
        if (start < 0) break;
        if (action.kind == Kind::kUpdate) continue;
        const double begin = std::max(start, clock[rank]);
        clock[rank] = begin + (action.kind == Kind::kForward ? forward : backward);
        ends[{action.kind == Kind::kForward ? size_t{0} : size_t{1}, stage, action.micro_batch}] =
            clock[rank];
        bars->push_back({rank, action, begin, clock[rank]});
      }
    }
  }
  for (size_t rank = 0; rank < shape_.ranks; ++rank)
    if (next[rank] < lists_[rank].size())
      *stuck += "rank " + std::to_string(rank) + " waits for ever before " +
                text_of(lists_[rank][next[rank]], shape_.chunks > 1) + "\n";
  return stuck->empty();
}

std::string Schedule::problem() const {
  std::vector<Bar> bars;
  std::string stuck;
  if (!run(1, 2, &bars, &stuck)) return stuck;
  std::set<std::array<size_t, 3>> seen;
  for (const Bar& bar : bars)
    if (!seen.insert({bar.action.kind == Kind::kForward ? size_t{0} : size_t{1},
                      stage_of(bar.rank, bar.action), bar.action.micro_batch})
             .second)
      return text_of(bar.action, true) + " occurs twice\n";
  if (seen.size() != 2 * shape_.ranks * shape_.chunks * shape_.micro_batches) return "a pass is missing\n";
  // The messages of a link, as the sender and as the receiver list them.
  std::map<std::array<size_t, 3>, std::vector<std::array<size_t, 2>>> sent;  // by sender, way and receiver
  std::map<std::array<size_t, 3>, std::vector<std::array<size_t, 2>>> received;
  const size_t last = shape_.ranks * shape_.chunks - 1;
  for (size_t rank = 0; rank < shape_.ranks; ++rank)
    for (const Action& action : lists_[rank]) {
      if (action.kind == Kind::kUpdate) continue;
      const size_t stage = stage_of(rank, action);
      const bool goes_forward = action.kind == Kind::kForward;
      const size_t way = goes_forward ? 0 : 1;
      const size_t above = (rank + 1) % shape_.ranks;
      const size_t below = (rank + shape_.ranks - 1) % shape_.ranks;
      // Border b is between the stages b - 1 and b.
      const size_t out = goes_forward ? stage + 1 : stage;
      const size_t in = goes_forward ? stage : stage + 1;
      if (out >= 1 && out <= last)
        sent[{rank, way, goes_forward ? above : below}].push_back({out, action.micro_batch});
      if (in >= 1 && in <= last)
        received[{goes_forward ? below : above, way, rank}].push_back({in, action.micro_batch});
    }
  for (const auto& [link, messages] : sent)
    if (messages != received[link])
      return "rank " + std::to_string(link[2]) + " receives the messages of rank " + std::to_string(link[0]) +
             " in another order than they are sent\n";
  return "";
}

std::vector<Bar> Schedule::simulate(double forward, double backward) const {
  std::vector<Bar> bars;
  std::string stuck;
  (void)run(forward, backward, &bars, &stuck);
  return bars;
}

size_t Schedule::alive_max(size_t rank) const {
  size_t alive = 0;
  size_t most = 0;
  for (const Action& action : lists_[rank]) {
    if (action.kind == Kind::kForward) most = std::max(most, ++alive);
    if (action.kind == Kind::kBackward) --alive;
  }
  return most;
}

double bubble_of(const std::vector<Bar>& bars, size_t ranks) {
  return idle_share(strokes_of(bars), ranks);
}

std::vector<Stroke> strokes_of(const std::vector<Bar>& bars) {
  std::vector<Stroke> strokes;
  for (const Bar& bar : bars)
    strokes.push_back(
        Stroke::of(static_cast<uint32_t>(bar.rank),
                   bar.action.kind == Kind::kForward ? Stroke::Kind::kForward : Stroke::Kind::kBackward,
                   bar.begin, bar.end, std::to_string(bar.action.micro_batch)));
  return strokes;
}

}  // namespace tutti::trainer
