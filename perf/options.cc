#include "perf/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/result.h"
#include "core/version_line.h"
#include "perf/report.h"

namespace tutti::perf {
namespace {

/// The flags as text, before they are parsed.
struct RawOptions {
  std::string min_bytes = "32M";
  std::string max_bytes = "32M";
  std::string step_bytes = "1M";
  std::string footprint = "0";
  std::string op = "sum";
  std::string type = "float";
  std::string root = "0";
  std::string per_iteration = "0";  ///< empty: the flag without a number
  std::vector<std::string> memory;  ///< every --memory: a place, or nccl-tests' 0 or 1
  int iterations = 0;
  int cta_policy = 0;
  int device_kernel = 0;
  int device_ctas = 16;
};

constexpr int kMostRanksPerProcess = 4096;
constexpr double kMostDevices = 1 << 20;  // far more than any machine has

// Not CLI11's PositiveNumber and NonNegativeNumber, because their message prints an upper bound of 309
// digits.
CLI::Validator positive() {
  return CLI::Range(1, std::numeric_limits<int>::max()).description("POSITIVE");
}
CLI::Validator non_negative() {
  return CLI::Range(0, std::numeric_limits<int>::max()).description("NONNEGATIVE");
}

void add_size_flags(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest message (K, M, G)")->capture_default_str();
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest message (K, M, G)")->capture_default_str();
  app.add_option("-i,--stepbytes", raw.step_bytes, "additive step between sizes")->capture_default_str();
  app.add_option("-f,--stepfactor", options.step_factor, "multiplicative step between sizes (overrides -i)");
}

void add_loop_flags(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-n,--iters", raw.iterations,
                 "timed iterations; default: 20, and more for short operations; 0: only the check")
      ->check(non_negative());
  app.add_option("-m,--agg_iters", options.aggregate, "operations of one iteration, fused in a group")
      ->check(positive())
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options.warmups, "iterations before the timed ones")
      ->check(non_negative())
      ->capture_default_str();
  app.add_option("-N,--run_cycles", options.cycles, "run and print everything this many times; 0: forever")
      ->check(non_negative())
      ->capture_default_str();
  app.add_option("-c,--check", options.checks,
                 "checks of the result per row, after the timing; 0: none (N/A)")
      ->check(non_negative())
      ->capture_default_str();
  app.add_option("-T,--timeout", options.timeout_s, "seconds that one row may take; 0: no limit")
      ->check(non_negative())
      ->capture_default_str();
}

void add_subject_flags(CLI::App& app, RawOptions& raw) {
  app.add_option("-o,--op", raw.op, "sum prod min max avg mulsum band bor bxor all")->capture_default_str();
  app.add_option("-d,--datatype", raw.type,
                 "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 "
                 "bool all")
      ->capture_default_str();
  app.add_option("-r,--root", raw.root, "root rank, or all")->capture_default_str();
}

void add_method_flags(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option(
         "-z,--blocking", options.blocking,
         "0: wait once, at the end (in host memory: blocking calls back to back, unless --stream); "
         "1: timed barrier after each iteration; 2: wait after each iteration, no barrier; 3: untimed "
         "barrier after each iteration")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_flag("--stream", options.stream,
               "in host memory: issue operations on a host stream instead of blocking calls");
  app.add_option("-G,--cudagraph", options.graph_launches,
                 "capture the iterations in a CUDA graph and launch it this many times; 0: no graph")
      ->check(non_negative())
      ->capture_default_str();
  app.add_option("-y,--stream_null", options.null_stream, "1: issue on the device's null stream");
  app.add_option(
      "-C,--report_cputime", options.cpu_time,
      "1: report the CPU time of the calling thread instead of elapsed time; on devices the time of "
      "issuing, as nccl-tests does");
  app.add_option("-a,--average", options.average, "time reported: 0 rank 0, 1 mean of ranks, 2 min, 3 max")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-R,--local_register", options.registration,
                 "1: register the buffers (for devices, and RDMA between hosts), 2: take them from the "
                 "symmetric heap (host memory only)")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("-u,--unalign", options.misalign_elements, "shift every buffer by this many elements");
  app.add_option(
         "-I,--per_iter_timing", raw.per_iteration,
         "1, or no number: time each iteration: min, max, p99, variation (waits after each iteration)")
      ->expected(0, 1);
  app.add_option("-K,--per_iter_skip,--skip_samples", options.skip_samples,
                 "first iterations, which -I's statistics leave out")
      ->check(non_negative());
  app.add_flag("--hot", options.hot,
               "reuse one buffer, which caches make faster; default: rotate over 4x the last-level cache");
  app.add_option("--footprint", raw.footprint,
                 "bytes that all ranks' rotated buffers cover (K, M, G); default: 4x the last-level cache");
  app.add_flag(
      "--floors", options.floors,
      "on devices: first measure copies within rank 0's device and an empty kernel, and print both above "
      "the table");
  app.add_option("--algorithms", options.algorithms,
                 "a row for each of these, in turns: ring,double_binary_tree,default (the library's choice)")
      ->delimiter(',');
  app.add_option("--row-time", options.row_ms,
                 "milliseconds of a row, but at least 8 iterations; default: 10, and at least 20")
      ->check(CLI::Range(0.1, 60'000.0).description("MS"));
  app.add_flag("--out-of-place", options.out_of_place_only, "no measurements in place");
  app.add_flag("--reproducible", options.reproducible, "reproducible mode: same bits for any algorithm");
}

void add_rank_flags(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-t,--nthreads", options.threads, "threads per process, each a rank")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option(
         "--procs", options.processes,
         "start this many local processes; default: the processes of the launcher (RANK and WORLD_SIZE, "
         "or mpirun, mpiexec, srun, torchrun), or one")
      ->check(CLI::Range(1, 4096));
  app.add_option("--emulate-hosts", options.emulated_hosts,
                 "spread the processes over this many emulated hosts, which talk by TCP on this machine")
      ->check(CLI::Range(2, 1024));
  app.add_flag("--bind", options.bind,
               "bind process n of --procs to the nth core that this process may use, in turn");
  app.add_option("-g,--ngpus", options.gpus, "GPUs per thread; without a GPU this many ranks in host memory")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--ranks-per-gpu", options.ranks_per_gpu,
                 "ranks on each GPU, driven by one thread: ranks may outnumber GPUs")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option(
         "--memory", raw.memory,
         "host, cuda (refused without a GPU), or any: cuda if there is a GPU, else host; 0 or 1: as -M")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app.add_option("-p,--parallel_init", options.parallel_init,
                 "accepted: ranks are always set up in parallel");
}

void add_report_flags(CLI::App& app, Options& options) {
  app.add_option("-J,--output_file", options.json_path,
                 "write JSON to this file (an existing file is kept: .0, .1, ...)");
  app.add_option("-S,--report_timestamps", options.timestamps, "1: time of day on each row");
  app.add_option("-M,--memory_report", options.memory_report, "1: report resident memory at the end");
  app.add_flag("!--no-algorithm-column,--algorithm-column", options.algorithm_column,
               "last column: the algorithm that ran (default: shown)");
}

void add_device_flags(CLI::App& app, RawOptions& raw) {
  app.add_option("-x,--cta_policy", raw.cta_policy, "ignored: tutti chooses its thread blocks itself");
  app.add_option("-D,--device_implementation", raw.device_kernel, "refused: tutti has no device API");
  app.add_option("-V,--device_cta_count", raw.device_ctas, "ignored: has no effect without -D");
}

ParsedOptions refuse(std::string text) {
  ParsedOptions parsed;
  parsed.exit_code = kExitUsage;
  parsed.text = std::move(text);
  return parsed;
}

/// Returns "" or the mistake.
std::string read_sizes(const RawOptions& raw, Options& options) {
  struct Field {
    const char* name;
    const std::string& text;
    uint64_t& value;
  };
  for (const Field& field : {Field{"minbytes", raw.min_bytes, options.min_bytes},
                             Field{"maxbytes", raw.max_bytes, options.max_bytes},
                             Field{"stepbytes", raw.step_bytes, options.step_bytes},
                             Field{"footprint", raw.footprint, options.footprint_bytes}}) {
    const std::optional<uint64_t> bytes = parse_size(field.text);
    if (!bytes) return "invalid size specified for '" + std::string(field.name) + "': " + field.text;
    field.value = *bytes;
  }
  if (options.min_bytes > options.max_bytes)
    return "invalid sizes for 'minbytes' and 'maxbytes': " + std::to_string(options.min_bytes) + " > " +
           std::to_string(options.max_bytes);
  if (options.min_bytes < options.max_bytes && options.step_factor <= 1 && options.step_bytes == 0)
    return "the step between sizes is 0: give -i a number of bytes or -f a factor above 1";
  if (options.min_bytes == 0 && options.max_bytes > 0 && options.step_factor > 1)
    return "a factor (-f) cannot grow 0 bytes: give -b at least 1";
  return "";
}

std::string read_subject(const RawOptions& raw, Options& options) {
  if (raw.op == "all") {
    options.ops = all_test_ops();
    options.ops_all = true;
  } else if (const auto op = test_op_from_name(raw.op)) {
    options.ops = {*op};
  } else {
    return "unknown operator '" + raw.op + "' (-o): one of sum prod min max avg mulsum band bor bxor all";
  }
  if (raw.type == "all") {
    options.types = all_test_types();
    options.types_all = true;
  } else if (const auto type = test_type_from_name(raw.type)) {
    options.types = {*type};
  } else {
    return "unknown data type '" + raw.type + "' (-d): see --help for the list, or all";
  }
  if (!options.ops_all && !options.types_all && !is_op_defined(options.ops[0], options.types[0]))
    return "operator '" + raw.op + "' is not defined on '" + raw.type + "'";
  if (raw.root == "all" || raw.root == "-1") {
    options.root.reset();
    return "";
  }
  char* end = nullptr;
  const long root = std::strtol(raw.root.c_str(), &end, 10);
  if (raw.root.empty() || *end != '\0' || root < 0 || root > std::numeric_limits<int>::max())
    return "invalid root '" + raw.root + "' (-r): a rank or all";
  options.root = static_cast<int>(root);
  return "";
}

std::string read_method(const RawOptions& raw, Options& options) {
  if (raw.per_iteration != "0" && raw.per_iteration != "1" && !raw.per_iteration.empty())
    return "invalid value '" + raw.per_iteration + "' (-I): 0, 1 or nothing";
  options.per_iteration = raw.per_iteration != "0";
  return "";
}

std::string read_memory(const CLI::App& app, const RawOptions& raw, Options& options) {
  for (const std::string& word : raw.memory) {
    if (word == "host")
      options.memory = Memory::kHost;
    else if (word == "cuda")
      options.memory = Memory::kCuda;
    else if (word == "any")
      options.memory = Memory::kAny;
    else if (word == "0" || word == "1")
      options.memory_report = word == "1";
    else
      return "unknown memory '" + word + "' (--memory): host, cuda or any; 0 or 1 for the report of -M";
  }
  if (options.memory == Memory::kHost && options.graph_launches > 0)
    return "-G is refused with --memory host: CUDA graphs need device memory";
  if (raw.device_kernel != 0) return "-D is refused: tutti has no device API for user kernels";
  const auto ranks = static_cast<int64_t>(options.threads) * options.gpus * options.ranks_per_gpu;
  if (ranks > kMostRanksPerProcess)
    return format("-t %d x -g %d x --ranks-per-gpu %d are more than %d ranks in a process", options.threads,
                  options.gpus, options.ranks_per_gpu, kMostRanksPerProcess);
  options.has_cta_policy = app.count("-x") > 0;
  options.has_cta_count = app.count("-V") > 0;
  return "";
}

/// A number from the environment; empty if unset. A value that is not a number sets *mistake.
std::optional<double> read_number(GetEnv get_env, const char* name, std::string* mistake) {
  const char* text = get_env(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !std::isfinite(value)) {
    *mistake = std::string(name) + " is not a number: " + text;
    return std::nullopt;
  }
  return value;
}

bool is_set(GetEnv get_env, const char* name) {
  const char* text = get_env(name);
  return text != nullptr && *text != '\0';
}

std::string read_environment(GetEnv get_env, Options& options) {
  for (const char* name : {"NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK"}) {
    if (is_set(get_env, name))
      return std::string(name) + " is refused: the tools measure one communicator of all ranks";
  }
  std::string mistake;
  options.min_bus_bandwidth = read_number(get_env, "NCCL_TESTS_MIN_BW", &mistake);
  if (const auto spread = read_number(get_env, "NCCL_TESTS_ALLTOALLV_SPREAD", &mistake)) {
    if (*spread < 0.0 || *spread > 1.0) return "NCCL_TESTS_ALLTOALLV_SPREAD is outside [0, 1]";
    options.alltoallv_spread = *spread;
  }
  if (is_set(get_env, "NCCL_TESTS_ALLTOALLV_MATRIX_FILE"))
    options.traffic_file = get_env("NCCL_TESTS_ALLTOALLV_MATRIX_FILE");
  if (const auto scale = read_number(get_env, "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", &mistake)) {
    if (*scale < 0.0) return "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE is below 0";
    options.traffic_scale = *scale;
  }
  const auto summary = read_number(get_env, "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", &mistake);
  options.traffic_summary = summary.value_or(0.0) != 0.0;
  if (const auto device = read_number(get_env, "NCCL_TESTS_DEVICE", &mistake)) {
    if (*device < 0 || *device > kMostDevices || *device != std::floor(*device))
      return "NCCL_TESTS_DEVICE is not the number of a device";
    options.first_device = static_cast<int>(*device);
  }
  return mistake;
}

std::string settle_on_device(Options& options) {
  if (options.registration == 2) return "-R 2 is refused on CUDA memory: the symmetric heap is host memory";
  if (options.graph_launches > 0 && options.null_stream)
    return "-G is refused with -y: the null stream cannot be captured";
  if (options.graph_launches > 0 && options.blocking != 0)
    return "-G is refused with -z: the host cannot wait for single iterations of a graph";
  if (options.graph_launches > 0 && options.per_iteration)
    return "-G is refused with -I: single iterations of a graph cannot be timed";
  if (options.stream)
    options.notes.push_back("--stream is ignored: ranks on devices issue on CUDA streams in any case");
  return "";
}

void settle_on_host(Options& options) {
  if (options.graph_launches > 0) options.notes.push_back("-G is ignored: CUDA graphs need device memory");
  if (options.null_stream) options.notes.push_back("-y is ignored: there is no null stream in host memory");
  if (options.floors) options.notes.push_back("--floors is ignored: only devices are measured");
  options.graph_launches = 0;
  options.null_stream = false;
  options.floors = false;
}

}  // namespace

std::string settle_flags(Options& options, bool on_device) {
  if (options.has_cta_policy)
    options.notes.push_back("-x is ignored: tutti chooses its thread blocks itself");
  if (options.has_cta_count)
    options.notes.push_back("-V is ignored: it has no effect without -D, which tutti refuses");
  if (on_device) return settle_on_device(options);
  settle_on_host(options);
  return "";
}

std::optional<uint64_t> parse_size(const std::string& text) {
  const char* begin = text.c_str();
  if (*begin == '\0' || *begin == '-') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  if (end == begin || !std::isfinite(value) || value < 0.0) return std::nullopt;
  double unit = 1.0;
  switch (*end) {
    case '\0': break;
    case 'k':
    case 'K': unit = 1024.0; break;
    case 'm':
    case 'M': unit = 1024.0 * 1024.0; break;
    case 'g':
    case 'G': unit = 1024.0 * 1024.0 * 1024.0; break;
    default: return std::nullopt;
  }
  if (*end != '\0' && end[1] != '\0') return std::nullopt;
  const double bytes = value * unit;
  // 2^60 bytes exceeds any machine and leaves room for products with rank counts.
  if (bytes > 0x1p60) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::vector<uint64_t> message_sizes(const Options& options) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    sizes.push_back(bytes);
    const uint64_t next = options.step_factor > 1 ? bytes * options.step_factor : bytes + options.step_bytes;
    if (next <= bytes) break;
    bytes = next;
  }
  return sizes;
}

ParsedOptions parse_options(int argc, const char* const* argv, GetEnv get_env) {
  ParsedOptions parsed;
  RawOptions raw;
  Options& options = parsed.options;
  CLI::App app(
      "Measures a tutti collective on CUDA memory, or on host memory if there is no GPU. Flags and columns "
      "are those of nccl-tests.");
  // As in nccl-tests: of a flag that is given twice, the last one counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_rank_flags(app, options, raw);
  add_size_flags(app, options, raw);
  add_loop_flags(app, options, raw);
  add_subject_flags(app, raw);
  add_method_flags(app, options, raw);
  add_report_flags(app, options);
  add_device_flags(app, raw);
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  app.set_version_flag("--version", version_line(program));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.text = version.what();
    return parsed;
  } catch (const CLI::ParseError& mistake) {
    return refuse(mistake.what());
  }
  if (app.count("-n") > 0) options.iterations = raw.iterations;
  for (const std::string& mistake :
       {read_memory(app, raw, options), read_sizes(raw, options), read_subject(raw, options),
        read_method(raw, options), read_environment(get_env, options)})
    if (!mistake.empty()) return refuse(mistake);
  if (options.skip_samples > 0 && options.skip_samples >= options.iterations.value_or(kDefaultIterations))
    return refuse("-K leaves no iteration for -I's statistics: -K must be below -n");
  parsed.run = true;
  return parsed;
}

}  // namespace tutti::perf
