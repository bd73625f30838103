// The command line of the modes: what each reads, and what is a mistake.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
class Validator;
}  // namespace CLI

namespace tutti::trainer {

struct Options;

/// A flag's check: a number, not nan.
CLI::Validator real(double least, double most);

/// For the modes of trainer/modes/. Each mode reads a few.
struct ParallelOptions {
  std::string mode = "data";      ///< "data": data.cc
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
  double pace_ms = 0;  ///< least time of a forward pass; 0: none
  int kill_rank = -1;
  size_t kill_step = 0;
  std::filesystem::path drawing;  ///< an SVG of the last steps
  size_t drawing_steps = 1;
  int hosts = 0;                     ///< emulated hosts over which local processes spread; 0: this one
  std::filesystem::path parameters;  ///< all parameters at the end, raw float32
};

/// Groups of --help: flags of --mode data only, and flags of which each mode reads some.
inline constexpr const char* kDataGroup = "Data parallel";
inline constexpr const char* kModeGroup = "Modes";

void add_mode_flags(CLI::App& app, Options& options);

/// What is wrong with the parsed flags for the chosen mode, as a sentence; "" if nothing is.
std::string find_mode_mistake(const CLI::App& app, const Options& options);

}  // namespace tutti::trainer
