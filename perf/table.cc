#include "perf/table.h"

#include <cmath>
#include <cstdarg>

#include "core/result.h"

namespace tutti::perf {
namespace {

constexpr const char* kNames = "# %10s  %12s  %8s  %6s  %6s";
constexpr const char* kTimeFormat = "%Y-%m-%d %H:%M:%S";

std::string blocking_line(const Options& options) {
  switch (options.blocking) {
    case 1: return "# Blocking Enabled: wait for completion and barrier after each collective \n";
    case 2: return "# Blocking Enabled: wait for completion after each collective (no barrier) \n";
    case 3: return "# Blocking Enabled: wait for completion and untimed barrier after each iteration \n";
    default: return "";
  }
}

std::string measurement_names(const Options& options, bool units) {
  const char* time = units ? "(us)" : (options.cpu_time ? "cputime" : "time");
  const char* bandwidth[2] = {units ? "(GB/s)" : "algbw", units ? "(GB/s)" : "busbw"};
  std::string text = format("  %7s  %6s  %6s  %6s", time, bandwidth[0], bandwidth[1], units ? "" : "#wrong");
  if (options.per_iteration) {
    if (units)
      text += format("  %7s  %7s  %7s  %7s", "(us)", "(us)", "(us)", "(%)");
    else
      text += format("  %7s  %7s  %7s  %7s", "i_min", "i_max", "i_p99", "i_cv%");
  }
  return text;
}

std::string trailing_names(const Options& options, bool units) {
  std::string text = " ";
  if (options.timestamps) text += format("%*s", 20, units ? kTimeFormat : "timestamp");
  if (options.algorithm_column) text += format("  %s", units ? "" : "algorithm");
  return text;
}

std::string measurement_text(const Options& options, const Measurement& measurement) {
  std::string text = format("  %7s  %6s  %6s", table_number(measurement.time_us, 7).c_str(),
                            table_number(measurement.algorithm_gbs, 6).c_str(),
                            table_number(measurement.bus_gbs, 6).c_str());
  text += measurement.wrong ? format("  %6g", *measurement.wrong) : std::string("    N/A");
  if (options.per_iteration) {
    const IterationStatistics statistics = measurement.statistics.value_or(IterationStatistics{});
    for (const double value : {statistics.min, statistics.max, statistics.p99, statistics.variation_percent})
      text += "  " + table_number(value, 7);
  }
  return text;
}

std::string absent_measurement(const Options& options) {
  std::string text = format("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
  if (options.per_iteration)
    for (int i = 0; i < 4; ++i) text += format("  %7s", "N/A");
  return text;
}

}  // namespace

std::string table_number(double value, int width) {
  if (!std::isfinite(value)) return format("%*s", width, "inf");
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = format("%*.*f", width, decimals, value);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  return format("%*.*e", width, width >= 7 ? 1 : 0, value);
}

std::string memory_text(double bytes) {
  constexpr double kStep = 1024.0;
  const char* units[] = {" B", " KB", " MB", " GB"};
  int unit = 0;
  while (unit < 3 && std::fabs(bytes) >= kStep) {
    bytes /= kStep;
    ++unit;
  }
  const double magnitude = std::fabs(bytes);
  const int decimals = magnitude < 10.0 ? 2 : (magnitude < 100.0 ? 1 : 0);
  return format("%.*f%s", decimals, bytes, units[unit]);
}

std::string table_preamble(const Options& options, const std::string& test_name, int library_version,
                           const std::vector<RankInfo>& ranks, const std::optional<Floors>& floors) {
  std::string text =
      format("# tutti-tests version %d.%d.%d tutti-headers=%d tutti-library=%d\n", TUTTI_VERSION_MAJOR,
             TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, TUTTI_VERSION_CODE, library_version);
  text += format("# Collective test starting: %s\n", test_name.c_str());
  const bool factor = options.step_factor > 1;
  text += format(
      "# nThread %d nGpus %d minBytes %llu maxBytes %llu step: %llu(%s) warmup iters: %d iters: %d agg "
      "iters: "
      "%d validation: %d graph: %d unalign: %llu\n",
      options.threads, options.gpus, static_cast<unsigned long long>(options.min_bytes),
      static_cast<unsigned long long>(options.max_bytes),
      static_cast<unsigned long long>(factor ? options.step_factor : options.step_bytes),
      factor ? "factor" : "bytes", options.warmups, options.iterations.value_or(kDefaultIterations),
      options.aggregate, options.checks, options.graph_launches,
      static_cast<unsigned long long>(options.misalign_elements));
  text += blocking_line(options);
  if (options.per_iteration)
    text += "# Per-Iteration Report: each iteration timed by itself; i_* uses max over ranks \n";
  if (options.ranks_per_gpu > 1) text += format("# Ranks per GPU: %d \n", options.ranks_per_gpu);
  if (options.parallel_init)
    text += "# Parallel Init Enabled: threads call into tutti_comm_create concurrently \n";
  if (options.hot) text += "# Hot buffers: every iteration uses the same memory \n";
  for (const std::string& note : options.notes) text += "# " + note + "\n";
  text += "#\n# Using devices\n";
  for (const RankInfo& rank : ranks)
    text +=
        format("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", rank.rank, 0, rank.process_id,
               rank.host.c_str(), rank.device_number, rank.address.c_str(), rank.device.c_str());
  if (floors) {
    text += format("# Copy bandwidth of rank 0's device, read and written: %.1f GB/s\n", floors->copy_gbs);
    text += format("# Empty kernel on rank 0's device, one of many in a graph: %.2f us\n", floors->kernel_us);
  }
  return text;
}

std::string table_header(const Options& options) {
  const std::string blank = format(kNames, "", "", "", "", "");
  std::string text = "#\n" + blank;
  text += options.per_iteration
              ? "              out-of-place (+ per-iteration)                                in-place (+ "
                "per-iteration)\n"
              : "           out-of-place                       in-place          \n";
  text += format(kNames, "size", "count", "type", "redop", "root");
  text += measurement_names(options, false) + measurement_names(options, false);
  text += trailing_names(options, false) + "\n";
  text += format(kNames, "(B)", "(elements)", "", "", "");
  text += measurement_names(options, true) + measurement_names(options, true);
  text += trailing_names(options, true) + "\n";
  return text;
}

std::string table_row(const Options& options, const Row& row) {
  std::string text = format("%12lli  %12lli  %8s  %6s  %6i", static_cast<long long>(row.bytes),
                            static_cast<long long>(row.count), std::string(test_type_name(row.type)).c_str(),
                            std::string(test_op_name(row.op)).c_str(), row.root);
  text += measurement_text(options, row.out_of_place);
  text += row.in_place ? measurement_text(options, *row.in_place) : absent_measurement(options);
  if (options.timestamps) text += format("%21s", row.timestamp.c_str());
  if (options.algorithm_column) text += "  " + (row.algorithm.empty() ? std::string("-") : row.algorithm);
  return text + "\n";
}

std::string table_footer(const std::string& test_name, const Summary& summary) {
  std::string text =
      format("# %-20s : %lld %s\n", "Out of bounds values", static_cast<long long>(summary.out_of_bounds),
             summary.out_of_bounds ? "FAILED" : "OK");
  const char* outcome = summary.min_bus_gbs ? (summary.bandwidth_ok() ? "OK" : "FAILED") : "";
  text += format("# %-20s : %g %s\n", "Avg bus bandwidth", summary.mean_bus_gbs, outcome);
  if (summary.memory) {
    const MemoryReport& memory = *summary.memory;
    const double total = memory.start + memory.communicator + memory.buffers + memory.running;
    text += format("# %-20s : Start %s | Communicator %s | Buffers %s | Collectives %s | Total  %s\n",
                   summary.on_devices ? "GPU memory usage" : "Host memory usage",
                   memory_text(memory.start).c_str(), memory_text(memory.communicator).c_str(),
                   memory_text(memory.buffers).c_str(), memory_text(memory.running).c_str(),
                   memory_text(total).c_str());
  }
  text += "#\n# Collective test concluded: " + test_name + "\n#\n";
  return text;
}

}  // namespace tutti::perf
