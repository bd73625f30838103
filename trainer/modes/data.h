// See data.cc.
#pragma once

#include <memory>
#include <optional>

#include "trainer/bucketer.h"
#include "trainer/checkpoint.h"
#include "trainer/compression.h"
#include "trainer/cuda_blas.h"
#include "trainer/reporter.h"
#include "trainer/task.h"

namespace tutti::trainer {

/// Makes one model from the copies on all ranks.
class DataParallel {
 public:
  /// Collective. Both arguments outlive this object. Gradients are in memory of the team's backend. Throws
  /// Error.
  DataParallel(Team& team, Parameters& parameters, const BucketOptions& buckets,
               const CompressionOptions& compression);

  /// Gives rank 0's parameters and buffers to every rank. Collective, blocks.
  void broadcast_parameters();
  /// Only the buffers: needed if they differ between ranks.
  void broadcast_buffers();

  /// For Model::backward: reduces ready gradients. Without it (`{}`) gradients stay on this rank and add up:
  /// so go all parts of a batch except the last.
  GradientReady on_ready() {
    return [this](const Parameter& parameter) { bucketer_->mark_ready(parameter.index); };
  }
  /// Waits until all gradients are sums over all ranks. Called once a step, after the last backward pass.
  void finish() { bucketer_->finish(); }

  const Bucketer& bucketer() const { return *bucketer_; }
  Reduction& reduction() { return *reduction_; }
  /// Bytes that a rank sends in a step, and the bytes without compression.
  double wire_bytes() const;
  double plain_wire_bytes() const;

 private:
  Team& team_;
  Parameters& parameters_;
  std::unique_ptr<Reduction> reduction_;
  std::unique_ptr<Bucketer> bucketer_;
};

/// The loop, from data to a trained model. One object is one rank's part.
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
  std::optional<Sampler> sampler_;
  Batch batch_;
  Matrix output_gradient_;
  size_t steps_done_ = 0;
  Reporter reporter_;
};

}  // namespace tutti::trainer
