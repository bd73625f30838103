// SimCluster: the loop that gives ranks their turns. See cluster.h.
#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "core/result.h"

namespace tutti::test {

std::string describe(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (uint32_t rank = 0; rank < outcomes.size(); ++rank) {
    const Outcome& outcome = outcomes[rank];
    text += format("%srank %u ", rank == 0 ? "" : "; ", rank);
    switch (outcome.end) {
      case Ending::kIdle: text += "idle"; break;
      case Ending::kDone: text += "done"; break;
      case Ending::kStopped: text += "stopped"; break;
      case Ending::kMismatch:
        text += format("mismatch with rank %u in step %u", outcome.peer, outcome.step);
        break;
      case Ending::kWaiting:
        text += format("waits for a %s of rank %u in step %u", outcome.sending ? "credit" : "message",
                       outcome.peer, outcome.step);
        break;
    }
  }
  return text;
}

bool all_done(const std::vector<Outcome>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const Outcome& outcome) { return outcome.end == Ending::kDone; });
}

bool waits_lead_to_stopped(const std::vector<Outcome>& outcomes) {
  for (const Outcome& first : outcomes) {
    Outcome here = first;
    for (size_t steps = 0; here.end == Ending::kWaiting; ++steps) {
      if (steps > outcomes.size()) return false;  // a circle
      here = outcomes[here.peer];
    }
    if (first.end == Ending::kWaiting && here.end != Ending::kStopped) return false;
  }
  return true;
}

SimCluster::SimCluster(const SimOptions& options)
    : network_(options),
      operations_(options.rank_count),
      outcomes_(options.rank_count),
      begun_(options.rank_count) {
  for (uint32_t rank = 0; rank < options.rank_count; ++rank) {
    links_.push_back(std::make_unique<SimLinks>(network_, rank));
  }
}

void SimCluster::set_operation(uint32_t rank, std::unique_ptr<Operation> operation) {
  operations_[rank] = std::move(operation);
  outcomes_[rank] = {.end = Ending::kWaiting};
  begun_[rank] = false;
}

void SimCluster::restart(uint32_t rank) {
  outcomes_[rank] = {.end = Ending::kWaiting};
  network_.wake(rank);
}

std::vector<Outcome> SimCluster::run(const std::function<void(uint32_t rank)>& on_done) {
  for (uint32_t rank = 0; rank < outcomes_.size(); ++rank) {
    if (outcomes_[rank].end == Ending::kWaiting) network_.wake(rank);
  }
  while (const auto rank = network_.next_turn()) take_turn(*rank, on_done);
  std::vector<Outcome> outcomes = outcomes_;
  for (uint32_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].end == Ending::kWaiting) outcomes[rank] = waiting(rank);
    if (network_.stopped(rank)) outcomes[rank].end = Ending::kStopped;
  }
  return outcomes;
}

void SimCluster::take_turn(uint32_t rank, const std::function<void(uint32_t rank)>& on_done) {
  Outcome& outcome = outcomes_[rank];
  begun_[rank] = true;
  if (outcome.end == Ending::kWaiting) {
    const Progress progress = operations_[rank]->advance(1);
    if (progress == Progress::kDone) {
      outcome.end = Ending::kDone;
      on_done(rank);
    } else if (progress == Progress::kMismatch) {
      const Obstacle& obstacle = operations_[rank]->obstacle();
      outcome = {.end = Ending::kMismatch, .peer = obstacle.peer, .step = obstacle.step};
    } else if (progress == Progress::kMoved) {
      network_.wake(rank);
    }
  }
  network_.progress(rank);
}

Outcome SimCluster::waiting(uint32_t rank) const {
  const Obstacle& obstacle = operations_[rank]->obstacle();
  return {.end = Ending::kWaiting, .peer = obstacle.peer, .step = obstacle.step, .sending = obstacle.sending};
}

}  // namespace tutti::test
