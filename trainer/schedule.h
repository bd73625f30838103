// Schedule: what every rank of a pipeline does, in which order. Data: printed, checked and drawn before it
// runs.
//
// A model's layers are cut into stages, and stage s belongs to rank s % ranks (chunk s / ranks of that rank).
// A batch is cut into micro-batches. "F3" is the forward pass of micro-batch 3, "B3" its backward pass, "U"
// the update of the parameters; "F3.1" means chunk 1. With m micro-batches, p ranks and v chunks a rank,
// ranks idle for a share (p-1) / (v*m + p-1) of the time if passes take equally long: the bubble. Sources:
// Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019; Narayanan et al., "Efficient large-scale
// language model training on GPU clusters using Megatron-LM", 2021.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/drawing.h"

namespace tutti::trainer {

struct Action {
  enum class Kind { kForward, kBackward, kUpdate };
  Kind kind = Kind::kForward;
  size_t micro_batch = 0;
  size_t chunk = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

/// A pass of a simulation: from `begin` to `end`, in any unit.
struct Bar {
  size_t rank = 0;
  Action action;
  double begin = 0;
  double end = 0;
};

class Schedule {
 public:
  struct Shape {
    size_t ranks = 1;
    size_t micro_batches = 1;
    size_t chunks = 1;  ///< of each rank
  };

  /// All forward, then all backward: m activations alive.
  static Schedule gpipe(const Shape& shape);
  /// One forward, one backward, as soon as possible: at most p activations alive, the same bubble. With
  /// chunks
  /// ("interleaved") the bubble is v times smaller; the micro-batches must then divide by the ranks.
  static Schedule one_forward_one_backward(const Shape& shape);
  /// 1F1B without a flush between batches: every backward pass is followed by an update, so a micro-batch
  /// meets other parameters backward than forward, unless they are stashed (PipeDream).
  static Schedule pipedream(const Shape& shape);
  /// By name: gpipe, 1f1b, pipedream. Throws Error for another name, and for a shape that it cannot have.
  static Schedule named(const std::string& name, const Shape& shape);
  /// For tests: any lists.
  Schedule(const Shape& shape, std::vector<std::vector<Action>> lists)
      : shape_(shape), lists_(std::move(lists)) {}

  const Shape& shape() const { return shape_; }
  const std::vector<Action>& of(size_t rank) const { return lists_[rank]; }
  size_t stage_of(size_t rank, const Action& action) const { return action.chunk * shape_.ranks + rank; }

  /// A line for each rank: "rank 0: F0 F1 B0 B1 U".
  std::string text() const;
  /// "" if every rank gets to its end: every pass occurs once, passes wait only for passes that can run, and
  /// messages between two ranks are received in the order in which they are sent. Else what is wrong.
  std::string problem() const;
  /// Times, if a forward pass takes `forward`, a backward pass `backward`, and messages take none. Needs a
  /// schedule without a problem.
  std::vector<Bar> simulate(double forward = 1, double backward = 2) const;
  /// Most micro-batches, over all chunks, between their forward and backward pass on a rank.
  size_t alive_max(size_t rank) const;

 private:
  bool run(double forward, double backward, std::vector<Bar>* bars, std::string* stuck) const;

  Shape shape_;
  std::vector<std::vector<Action>> lists_;
};

std::string text_of(const Action& action, bool with_chunk);

/// The share of idle time between the first and the last bar, over all ranks.
double bubble_of(const std::vector<Bar>& bars, size_t ranks);

std::vector<Stroke> strokes_of(const std::vector<Bar>& bars);

}  // namespace tutti::trainer
