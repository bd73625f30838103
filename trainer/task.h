// Task: what is trained on. The data, and the model that fits them.
#pragma once

#include <optional>

#include "trainer/loss.h"
#include "trainer/model.h"
#include "trainer/options.h"
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

/// The loss of `model` on a part of the data set: one of `part_count` equal parts.
Loss evaluate(Model& model, const Dataset& dataset, size_t part = 0, size_t part_count = 1);

}  // namespace tutti::trainer
