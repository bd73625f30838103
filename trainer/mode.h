// Mode: another way to train in parallel than the data parallelism of training.h. A file of trainer/modes/ is
// a mode; modes/modes.cc lists them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/task.h"
#include "trainer/team.h"

namespace tutti::trainer {

/// A measured number of one rank, for people and for `./dev bench modes`.
struct Fact {
  std::string name;  ///< with its unit, such as "sent bytes a step"
  double value = 0;
};

/// One rank's part of a training run.
class Mode {
 public:
  virtual ~Mode() = default;
  /// Lines for people, printed by rank 0 before the first step.
  virtual std::string about() const { return ""; }
  /// Trains on batch number `step`, from 0. Returns the loss on the targets that this rank has scored.
  virtual Loss step(size_t step) = 0;
  /// After the last step: waits until this rank's parameters are final.
  virtual void finish() {}
  /// Copies the parameters that this rank holds to their places in the whole model's buffer.
  virtual void copy_to(std::span<float> whole) = 0;
  virtual std::vector<Fact> facts() { return {}; }
  /// False: ranks make their steps independently, so nobody may ask all of them in between.
  virtual bool in_step() const { return true; }
};

struct ModeContext {
  const Options& options;
  const Task& task;
  Team& team;
};

struct ModeEntry {
  const char* name;
  const char* idea;                                           ///< for --help
  std::unique_ptr<Mode> (*make)(const ModeContext& context);  ///< null: not run by run_mode
};
std::span<const ModeEntry> modes();

/// Trains in the mode of the options, and prints. Collective. Throws Error.
void run_mode(const Options& options, Team& team);

/// The order of samples, of which this rank takes shard `rank` of `rank_count`. Throws Error if a batch does
/// not divide.
Sampler sampler_of(const ModeContext& context, int rank = 0, int rank_count = 1);

/// Forward and backward on `samples`. Adds to the gradients those of the mean loss over `target_count`.
Loss learn(Model& model, const Dataset& dataset, std::span<const uint32_t> samples, size_t target_count,
           const GradientReady& ready = {});

/// Prolongs a computation, as options.slow_rank and options.pace_ms ask: a slow machine to try modes on.
class Pace {
 public:
  /// Begins now. `weight`: a computation lasts at least weight * pace_ms.
  Pace(const ParallelOptions& options, int rank, double weight);
  void wait() const;

 private:
  double factor_;
  double least_ns_;
  uint64_t begin_ns_;
};

/// Bytes that the process has had in memory at most.
double resident_bytes_max();

}  // namespace tutti::trainer
