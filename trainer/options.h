// The trainer's command line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/bucketer.h"
#include "trainer/compression.h"
#include "trainer/model.h"
#include "trainer/modes/flags.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {

struct Options {
  int ranks = 0;  ///< ranks to start; 0: the ranks of a launcher, or this process alone
  bool threads = false;

  ModelOptions model;
  std::string device = "auto";  ///< for products and reductions: "host", "cuda", "auto"
  std::vector<std::filesystem::path> data;
  size_t digits = 8000;  ///< drawn images for training; an eighth as many for testing

  size_t steps = 0;  ///< 0: chosen by the model
  size_t batch = 0;  ///< samples of a step on all ranks together; 0: chosen by the model
  size_t accumulate = 1;
  bool uneven = false;
  OptimizerOptions optimizer;
  double learning_rate = 0;  ///< 0: chosen by the model
  double clip = -1;          ///< -1: chosen by the mode
  uint64_t seed = 1;

  BucketOptions buckets;
  CompressionOptions compression;
  bool reproducible = false;
  ParallelOptions parallel;

  std::filesystem::path checkpoint;
  size_t checkpoint_every = 0;
  std::filesystem::path resume;
  std::filesystem::path timeline;
  size_t report_every = 0;    ///< in steps; 0: a twentieth of the run
  size_t evaluate_every = 0;  ///< in steps; 0: a fifth of the run
  size_t sample = 400;        ///< characters of text to generate
};

/// Options to run with, or a text and an exit status to leave with (help, or a mistake).
struct ParsedOptions {
  Options options;
  bool run = false;
  int exit_code = 0;
  std::string text;
};

ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace tutti::trainer
