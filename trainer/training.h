// Training: the loop, from data to a trained model. One object is one rank's part.
#pragma once

#include <memory>
#include <optional>

#include "trainer/checkpoint.h"
#include "trainer/cuda_blas.h"
#include "trainer/data_parallel.h"
#include "trainer/loss.h"
#include "trainer/options.h"
#include "trainer/reporter.h"
#include "trainer/task.h"

namespace tutti::trainer {

class Training {
 public:
  /// Reads the data, makes the model and resumes if requested. Collective. Throws Error on every rank if
  /// anything fails on one.
  Training(const Options& options, Team& team);

  /// Trains, reports, writes the requested files. Collective. Throws Error.
  void run();

  /// One step: forward, backward, reduce, clip, update. Collective. Returns this rank's loss. Public for
  /// tests.
  Loss step(Timeline* timeline = nullptr);
  /// The loss on the held-out data, over all ranks. Collective.
  Loss evaluate();

  /// Writes a checkpoint of the current state. Collective. Throws Error.
  void save(const std::filesystem::path& path);

  Model& model() { return *model_; }
  const DataParallel& parallel() const { return *parallel_; }
  size_t steps_done() const { return steps_done_; }

 private:
  std::string choose_backend();
  TrainingState state();
  Loss sum_over_ranks(const Loss& loss);
  void write_timeline(const Timeline& timeline);
  void note_reductions(Timeline& timeline) const;
  std::string generate();

  const Options& options_;
  Team& team_;
  std::optional<Task> task_;
  std::optional<double> trigram_loss_;  ///< in nats a character
  Device device_;
  std::string reductions_;  ///< where reductions run, for people
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Sampler> sampler_;
  Batch batch_;
  Matrix output_gradient_;
  size_t steps_done_ = 0;
  Reporter reporter_;
};

}  // namespace tutti::trainer
