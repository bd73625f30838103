// The trainer's command line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/bucketer.h"
#include "trainer/compression.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {

/// For the modes of trainer/modes/. Each mode reads a few.
struct ParallelOptions {
  std::string mode = "data";      ///< "data": training.h
  std::string schedule = "1f1b";  ///< pipeline, grid
  size_t chunks = 1;              ///< pipeline: stages of each rank
  int pipeline_ranks = 2;         ///< grid
  int tensor_ranks = 2;           ///< grid
  bool sequence = false;          ///< tensor, grid: cut the rows between blocks too
  int zero_stage = 3;             ///< zero: what is sharded
  std::filesystem::path offload;  ///< zero: a folder for shards that are not in use
  size_t period = 8;              ///< local: steps between averages
  double outer_rate = 1;          ///< local: of the outer step; with momentum 0 a plain average
  double outer_momentum = 0;      ///< local
  int servers = 1;                ///< server: ranks that hold parameters
  int staleness = 0;              ///< server: steps a worker may be ahead; -1: any
  double fusion_ms = 2;           ///< fusion: a cycle
  int slow_rank = -1;
  double slow_factor = 1;
  double pace_ms = 0;  ///< least time of a pass; 0: none
  int kill_rank = -1;
  size_t kill_step = 0;
  std::filesystem::path drawing;     ///< pipeline: an SVG of the last step
  std::filesystem::path parameters;  ///< all parameters at the end, raw float32
};

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
  double clip = 1;
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
