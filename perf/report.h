// The results of a run, as plain data. The table prints them and the JSON file keeps them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/exit_status.h"
#include "perf/options.h"
#include "perf/statistics.h"

namespace tutti::perf {

/// One of a row's two measurements (out of place, in place).
struct Measurement {
  double time_us = 0;  ///< per operation; CPU time with -C
  double algorithm_gbs = 0;
  double bus_gbs = 0;
  std::optional<double> wrong;  ///< wrong elements on all ranks; empty: not checked
  int wrong_ranks = 0;          ///< ranks with a wrong element
  int iterations = 0;
  /// With -I: for each iteration the largest time of any rank, in microseconds.
  std::vector<double> iteration_us = {};
  /// With a LineProbe: what it found after the measurement before this one, and after this one.
  std::optional<std::array<uint64_t, 2>> line_ns = {};
  int skipped_iterations = 0;  ///< that `statistics` leaves out
  /// With -I and several processes: the same for the ranks of each process.
  std::vector<std::vector<double>> process_iteration_us = {};
  std::optional<IterationStatistics> statistics = {};
};

struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  tutti_type_t type = TUTTI_FLOAT32;
  TestOp op = TestOp::kNone;
  int root = -1;
  Measurement out_of_place = {};
  std::optional<Measurement> in_place = {};  ///< empty: there is no in-place form
  std::string algorithm = {};
  std::string wanted = {};     ///< of --algorithms
  std::string timestamp = {};  ///< empty without -S
};

struct RankInfo {
  int rank = 0;
  int process_id = 0;
  std::string host = {};
  std::string device = {};       ///< the device's name, or the processor's
  int device_number = 0;         ///< 0 in host memory
  std::string address = "host";  ///< PCI id of a device
};

/// Resident memory, or memory in use on the device, in bytes. The largest of any thread.
struct MemoryReport {
  double start = 0;         ///< before the communicator was made
  double communicator = 0;  ///< growth while making the communicator
  double buffers = 0;       ///< growth by buffers and their first touch
  double running = 0;       ///< growth while running
};

struct Summary {
  int64_t out_of_bounds = 0;  ///< (measurement, rank) pairs with wrong elements
  double mean_bus_gbs = 0;
  std::optional<double> min_bus_gbs = {};
  std::optional<MemoryReport> memory = {};
  bool on_devices = false;

  bool bandwidth_ok() const { return !min_bus_gbs || mean_bus_gbs >= 0.9 * *min_bus_gbs; }
};

}  // namespace tutti::perf
