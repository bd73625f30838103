#include "perf/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/variables.h"

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 3;
constexpr int kSuffixesTried = 10000;

/// nccl-tests writes truth values as strings.
const char* truth(bool value) {
  return value ? "true" : "false";
}

Json config_json(const Options& options, const std::vector<RankInfo>& ranks) {
  Json config;
  config["nthreads"] = options.threads;
  config["ngpus"] = options.gpus;
  config["ranks_per_gpu"] = options.ranks_per_gpu;
  config["minimum_bytes"] = options.min_bytes;
  config["maximum_bytes"] = options.max_bytes;
  if (options.step_factor > 1)
    config["step_factor"] = options.step_factor;
  else
    config["step_bytes"] = options.step_bytes;
  config["warmup_iters"] = options.warmups;
  config["iterations"] = options.iterations.value_or(kDefaultIterations);
  config["aggregated_iterations"] = options.aggregate;
  config["validation"] = options.checks;
  config["graph"] = options.graph_launches;
  config["blocking_collectives"] = truth(options.blocking != 0);
  config["per_iter_timing"] = truth(options.per_iteration);
  config["per_iter_skip"] = options.skip_samples;
  config["parallel_init"] = truth(options.parallel_init);
  config["ranks"] = ranks.size();
  config["hot_buffers"] = truth(options.hot);
  config["host_stream"] = truth(options.stream);
  config["reproducible"] = truth(options.reproducible);
  config["registration"] = options.registration;
  config["memory"] = !ranks.empty() && ranks.front().address != "host" ? "cuda" : "host";
  Json devices = Json::array();
  for (const RankInfo& rank : ranks)
    devices.push_back({{"rank", rank.rank},
                       {"group", 0},
                       {"pid", rank.process_id},
                       {"hostname", rank.host},
                       {"device", rank.device_number},
                       {"device_hex", rank.address},
                       {"device_info", rank.device}});
  config["devices"] = std::move(devices);
  return config;
}

Json measurement_json(const Options& options, const Measurement& measurement) {
  Json json;
  json[options.cpu_time ? "cpu_time" : "time"] = measurement.time_us;
  json["alg_bw"] = measurement.algorithm_gbs;
  json["bus_bw"] = measurement.bus_gbs;
  json["nwrong"] = measurement.wrong ? Json(*measurement.wrong) : Json(nullptr);
  if (measurement.line_ns) json["line_ns"] = *measurement.line_ns;
  return json;
}

Json statistics_json(const Measurement& measurement) {
  const IterationStatistics& statistics = *measurement.statistics;
  Json json = {{"skipped_iterations", measurement.skipped_iterations},
               {"min_us", statistics.min},
               {"max_us", statistics.max},
               {"avg_us", statistics.mean},
               {"p50_us", statistics.p50},
               {"p95_us", statistics.p95},
               {"p99_us", statistics.p99},
               {"stdev_us", statistics.deviation},
               {"cv_pct", statistics.variation_percent},
               {"times_us", measurement.iteration_us}};
  if (!measurement.process_iteration_us.empty())
    json["per_process_max_times_us"] = measurement.process_iteration_us;
  return json;
}

Json row_json(const Options& options, const std::string& test_name, const Row& row) {
  Json json;
  json["size"] = row.bytes;
  json["count"] = row.count;
  json["type"] = std::string(test_type_name(row.type));
  json["redop"] = std::string(test_op_name(row.op));
  json["root"] = std::to_string(row.root);
  json["out_of_place"] = measurement_json(options, row.out_of_place);
  if (row.out_of_place.statistics) json["out_of_place_per_iter"] = statistics_json(row.out_of_place);
  json["in_place"] = row.in_place ? measurement_json(options, *row.in_place) : Json(nullptr);
  if (row.in_place && row.in_place->statistics) json["in_place_per_iter"] = statistics_json(*row.in_place);
  json["actual_iterations"] = row.out_of_place.iterations;
  json["experiment_name"] = test_name;
  json["algorithm"] = row.algorithm;
  if (!row.wanted.empty()) json["wanted"] = row.wanted;
  if (!row.timestamp.empty()) json["timestamp"] = row.timestamp;
  return json;
}

/// Whether the variable only says where files lie.
bool is_place(std::string_view name) {
  return name == "HOME" || name == "XDG_CACHE_HOME";
}

/// Variables of launchers, CUDA and nccl-tests that change a measurement. Those of tutti: known_variables().
constexpr std::string_view kReported[] = {"CUDA_VISIBLE_DEVICES",
                                          "JOB_COMPLETION_INDEX",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "NCCL_TESTS_ALLTOALLV_MATRIX_FILE",
                                          "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE",
                                          "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY",
                                          "NCCL_TESTS_ALLTOALLV_SPREAD",
                                          "NCCL_TESTS_DEVICE",
                                          "NCCL_TESTS_MIN_BW",
                                          "NCCL_TESTS_SPLIT",
                                          "NCCL_TESTS_SPLIT_MASK",
                                          "OMP_NUM_THREADS",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "RANK",
                                          "SLURM_JOB_ID",
                                          "SLURM_NTASKS",
                                          "SLURM_PROCID",
                                          "WORLD_SIZE"};

/// The variables that a report may hold. Reports are kept and passed on, and an environment holds secrets:
/// only known names, and not the key that proves a rank to other ranks.
Json reported(const std::vector<std::string>& environment) {
  constexpr std::string_view kSecret = "TUTTI_KEY";
  Json list = Json::array();
  for (const std::string& variable : environment) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name == kSecret) {
      list.push_back(name + "=(not shown)");
    } else if ((std::ranges::binary_search(known_variables(), name) && !is_place(name)) ||
               std::ranges::find(kReported, name) != std::end(kReported)) {
      list.push_back(variable);
    }
  }
  return list;
}

}  // namespace

struct JsonReport::Document {
  std::string path;
  int descriptor = -1;
  Json json;

  ~Document() {
    if (descriptor >= 0) ::close(descriptor);
  }

  Status write() {
    // Text from the environment may hold any bytes. Invalid UTF-8 is replaced instead of refused.
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n =
          ::pwrite(descriptor, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("writing " + path, errno);
      done += static_cast<size_t>(n);
    }
    if (::ftruncate(descriptor, static_cast<off_t>(text.size())) != 0)
      return system_error("truncating " + path, errno);
    return Status::ok();
  }
};

JsonReport::JsonReport(std::unique_ptr<Document> document) : document_(std::move(document)) {}
JsonReport::JsonReport(JsonReport&&) noexcept = default;
JsonReport& JsonReport::operator=(JsonReport&&) noexcept = default;
JsonReport::~JsonReport() = default;

Result<JsonReport> JsonReport::create(const std::string& path) {
  auto document = std::make_unique<Document>();
  for (int suffix = -1; suffix < kSuffixesTried; ++suffix) {
    document->path = suffix < 0 ? path : path + "." + std::to_string(suffix);
    document->descriptor = ::open(document->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (document->descriptor >= 0) return JsonReport(std::move(document));
    if (errno != EEXIST) return system_error("creating " + document->path, errno);
  }
  return Status(Code::kSystemError, path + " and all its numbered forms exist: remove some");
}

Status JsonReport::check(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return {Code::kInvalidArgument, "-J " + path + " is a folder: name a file"};
  }
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) || S_ISFIFO(status.st_mode)) {
    return {Code::kInvalidArgument, "-J " + path + " is a device or a pipe: name a file"};
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return system_error("-J " + path + ": writing to " + folder, errno);
  return Status::ok();
}

const std::string& JsonReport::path() const {
  return document_->path;
}

void JsonReport::begin(const Options& options, const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment, int library_version,
                       const std::vector<RankInfo>& ranks, const std::optional<Floors>& floors) {
  Json& json = document_->json;
  json["version"] = kVersion;
  json["start_time"] = time_text();
  json["args"] = arguments;
  json["env"] = reported(environment);
  json["nccl_version"] = library_version;
  json["library"] = "tutti";
  json["config"] = config_json(options, ranks);
  if (floors) {
    json["copy_bandwidth"] = floors->copy_gbs;
    json["empty_kernel"] = floors->kernel_us;
  }
  json["results"] = Json::array();
}

Status JsonReport::add(const Options& options, const std::string& test_name, const Row& row) {
  document_->json["results"].push_back(row_json(options, test_name, row));
  return document_->write();
}

Status JsonReport::finish(const Summary& summary, const std::vector<std::string>& errors) {
  Json& json = document_->json;
  json["out_of_bounds"] = {{"count", summary.out_of_bounds}, {"okay", truth(summary.out_of_bounds == 0)}};
  json["average_bus_bandwidth"] = {
      {"bandwidth", summary.mean_bus_gbs},
      {"okay", summary.min_bus_gbs ? truth(summary.bandwidth_ok()) : "unchecked"}};
  json["errors"] = errors;
  json["end_time"] = time_text();
  return document_->write();
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return std::string(text, length);
}

}  // namespace tutti::perf
