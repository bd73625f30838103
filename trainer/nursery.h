// Nursery: starts the processes of an elastic run, and a new one for each that was killed.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <vector>

#include "trainer/drawing.h"
#include "trainer/options.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

/// Memory that all processes share.
/// Begins as zeros.
struct Board {
  std::atomic<int> count;        ///< ranks that go on together
  std::atomic<uint32_t> offers;  ///< processes that want to join, the last one by `id`
  std::atomic<uint32_t> joins;   ///< processes that have joined
  tutti_unique_id_t id;
  std::atomic<uint32_t> pause_count;
  std::array<Stroke, 1024> pauses;  ///< to draw
};

/// A process of the run: the number-th that was started. It has this rank of `count` at first.
struct Place {
  size_t number = 0;
  int rank = 0;
  int count = 0;
};

/// Starts options.ranks processes that call `run`, replaces those that are killed or stay stopped, and waits
/// for all. Sketches their lives, a row each. Returns the worst exit status. Throws Error.
int supervise(const Options& options, Board& board, const Sketch& clock, std::vector<Stroke>& lives,
              const std::function<void(const Place&)>& run);

}  // namespace tutti::trainer
