// Mode: another way to train in parallel than the data parallelism of modes/data.cc. A file of trainer/modes/
// is a mode; modes/list.h lists them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/drawing.h"
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
  /// After the last step: waits until this rank's parameters are final. Returns as `step`.
  virtual Loss finish() { return {}; }
  /// Copies the parameters that this rank holds to their places in the whole model's buffer.
  virtual void copy_to(std::span<float> whole) = 0;
  virtual std::vector<Fact> facts() { return {}; }
  /// False: ranks make their steps independently, so nobody may ask all of them in between.
  virtual bool in_step() const { return true; }
};

/// A rank that computes.
struct Learner {
  const Options& options;
  const Task& task;
  Sketch& sketch;
  int rank;
};

/// What a mode is made of. Outlives the mode.
struct ModeContext : Learner {
  Team& team;
};

struct ModeEntry {
  const char* name;
  const char* idea;   ///< for --help
  const char* flags;  ///< that the mode reads, beside those that all modes read
  std::unique_ptr<Mode> (*make)(const ModeContext& context);  ///< null: not run by run_mode
};
std::span<const ModeEntry> modes();

/// Trains in the mode of the options, and prints. Collective. Throws Error.
void run_mode(const Options& options, Team& team);

/// The order of samples, of which this rank takes shard `rank` of `rank_count`. Throws Error if a batch does
/// not divide.
Sampler sampler_of(const ModeContext& context, int rank = 0, int rank_count = 1);

/// Forward and backward on `samples`. Adds to the gradients those of the mean loss over `target_count`.
Loss learn(const Learner& learner, Model& model, std::span<const uint32_t> samples, size_t target_count,
           const GradientReady& ready = {});

/// A pass of a model, for the drawing. `wait` prolongs it as --slow and --pace-ms ask: a slow machine to try
/// modes on.
class Pass {
 public:
  /// Begins now. A backward pass takes twice the time of a forward pass.
  Pass(const Learner& learner, Stroke::Kind kind, const std::string& label = "");
  /// Ends the pass, now or later.
  void wait() const;

 private:
  const Learner& learner_;
  Stroke::Kind kind_;
  std::string label_;
  double begin_;
};

/// What all ranks have done since then, in seconds of the sketch. Collective. Throws Error.
std::vector<Stroke> gather_strokes(const ModeContext& context, double since);

/// The last lines of a run, and the file of --parameters. Throws Error.
void report_end(const Options& options, Model& model, const Loss& held_out);

/// Rows of activations in one forward pass, of a batch that is spread over `rank_count` ranks.
size_t pass_rows(const ModeContext& context, int rank_count = 1);

/// Bytes of a batch's activations between two layers. (All layers of a model have the same width there.)
double activation_bytes(const ModeContext& context);

/// Bytes that the process has had in memory at most.
double resident_bytes_max();

}  // namespace tutti::trainer
