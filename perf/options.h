// The command line of the perf tools: nccl-tests' flags, long names (from its README and --help) and
// defaults, plus a few of tutti's.
//
// Some flags have no meaning in host memory or on devices. Harmless ones are noted; flags that would change
// the measurement are refused. settle_flags decides once devices have been looked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/element.h"

namespace tutti::perf {

enum class Memory : uint8_t {
  kAny,   ///< on CUDA devices if there are any, else on the host
  kHost,  ///< never looks for a device
  kCuda,  ///< refused if there is no device
};

/// The options of a run. Sizes are bytes; times are seconds where the name ends in _s.
struct Options {
  int threads = 1;
  int processes = 0;  ///< 0: not given; the launcher's processes, or one process
  int emulated_hosts = 0;
  bool bind = false;
  int gpus = 1;  ///< per thread
  int ranks_per_gpu = 1;
  Memory memory = Memory::kAny;
  std::optional<int> first_device;  ///< of every process; empty: chosen by the process's index on its host

  uint64_t min_bytes = 32u << 20;
  uint64_t max_bytes = 32u << 20;
  uint64_t step_bytes = 1u << 20;
  uint64_t step_factor = 1;

  std::optional<int> iterations;  ///< empty: 20, and more for short operations (agreed by all ranks)
  int aggregate = 1;
  int warmups = 1;
  int cycles = 1;  ///< 0: forever
  int checks = 1;
  int average = 1;  ///< 0 rank 0, 1 mean, 2 min, 3 max

  std::vector<TestOp> ops = {TestOp::kSum};
  std::vector<tutti_type_t> types = {TUTTI_FLOAT32};
  std::optional<int> root = 0;  ///< empty: every rank in turn
  bool ops_all = false;         ///< -o all: undefined combinations are skipped silently
  bool types_all = false;

  int blocking = 0;
  int timeout_s = 0;  ///< 0: no watchdog
  bool cpu_time = false;
  int registration = 0;  ///< 0 plain memory, 1 registered, 2 symmetric heap
  bool parallel_init = false;
  std::string json_path;
  bool timestamps = false;
  bool memory_report = false;
  uint64_t misalign_elements = 0;
  bool per_iteration = false;
  int skip_samples = 0;

  int graph_launches = 0;       ///< 0: no CUDA graphs
  bool null_stream = false;     ///< issue on the device's null stream
  bool has_cta_policy = false;  ///< -x was given
  bool has_cta_count = false;   ///< -V was given
  bool floors = false;          ///< first measure copying and an empty kernel

  bool hot = false;
  uint64_t footprint_bytes = 0;  ///< of all ranks' rotated buffers; 0: 4 x the last-level cache
  bool stream = false;
  bool reproducible = false;
  bool algorithm_column = true;
  /// A row for each, in turns; "default": the library's choice. Empty: that alone.
  std::vector<std::string> algorithms;
  std::optional<double> row_ms;  ///< how long a row lasts; empty: see measure.cc
  bool out_of_place_only = false;

  double alltoallv_spread = 1.0;
  std::string traffic_file;                 ///< alltoallv: a matrix of bytes; empty: traffic by distance
  double traffic_scale = 1.0;               ///< of the matrix
  bool traffic_summary = false;             ///< alltoallv: print what each rank sends and receives
  std::optional<double> min_bus_bandwidth;  ///< GB/s; below 0.9 of it the exit status is not 0

  std::vector<std::string> notes;  ///< one line for each accepted flag that has no effect here

  int ranks_per_thread() const { return gpus * ranks_per_gpu; }
  int ranks_per_process() const { return threads * ranks_per_thread(); }
};

inline constexpr int kDefaultIterations = 20;

/// Options to run with, or a text and an exit status to leave with (help, or a mistake).
struct ParsedOptions {
  Options options;
  bool run = false;
  int exit_code = 0;
  std::string text;
};

/// Reads the environment; a test passes its own function.
using GetEnv = const char* (*)(const char* name);

/// Pure, except for `get_env`. Never throws, never prints.
ParsedOptions parse_options(int argc, const char* const* argv, GetEnv get_env);

/// Called once it is known whether the ranks are on devices. Notes flags that have no effect. Returns "" or
/// the flag that cannot be obeyed.
std::string settle_flags(Options& options, bool on_device);

/// "8", "64K", "1.5M", "2G" (binary multiples, either case); empty if it is not a size.
std::optional<uint64_t> parse_size(const std::string& text);

/// The message sizes that a run visits, in bytes as requested. A collective may round them down.
std::vector<uint64_t> message_sizes(const Options& options);

}  // namespace tutti::perf
