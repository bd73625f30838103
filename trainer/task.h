// Task: what is trained on. The data, and the model that fits them.
#pragma once

#include <optional>

#include "trainer/loss.h"
#include "trainer/model.h"
#include "trainer/options.h"
#include "trainer/team.h"
#include "trainer/text.h"

namespace tutti::trainer {

struct Task {
  /// Reads or draws the data. Throws Error.
  explicit Task(const Options& options);

  Data data;
  ModelOptions model;  ///< the options' model, with the data's sizes
  std::optional<Text> text = {};
  std::optional<Vocabulary> vocabulary = {};
};

/// Grows at first, then falls along half a cosine to a tenth. `step` counts from 0.
double learning_rate(const Options& options, size_t step);

/// The order of samples, of which this rank takes shard `rank` of `rank_count`. Throws Error if a batch does
/// not divide.
Sampler make_sampler(const Options& options, const Dataset& dataset, int rank, int rank_count);

/// The sum over all ranks. Collective.
Loss sum_over_ranks(Team& team, const Loss& loss);

/// The loss of `model` on the data set.
Loss evaluate(Model& model, const Dataset& dataset);
/// The same, each rank a part of the data set. Collective.
Loss evaluate(Model& model, const Dataset& dataset, Team& team);

/// Prints the digest of the final parameters, and writes the file of --parameters. Throws Error.
void report_parameters(const Options& options, Parameters& parameters);

}  // namespace tutti::trainer
