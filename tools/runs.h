// Runs: one run of a perf tool, as a child of this process or of a launcher, and what it measured.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "tools/samples.h"

namespace tutti::tool {

/// One row of a run's report.
struct Row {
  uint64_t bytes = 0;
  double microseconds = 0;
  std::string algorithm;    ///< that ran
  std::string wanted = {};  ///< of RunOptions::algorithms
  uint64_t line_ns = 0;     ///< what a cache line took between the cores then; 0: unknown
  bool have_moved = false;  ///< the cores moved meanwhile, so the time is mixed
};

struct Report {
  std::vector<Row> rows;
  uint32_t ranks = 0;
  uint32_t hosts = 0;
  uint32_t start = 0;  ///< as Sample::start
};

/// From the JSON that the perf tools write. Errors: kInvalidArgument.
Result<Report> parse_report(std::string_view json);

/// "all_reduce_perf". Empty: no tool measures this collective.
std::string perf_tool_of(Collective collective);

struct RunOptions {
  std::string folder = {};                 ///< of the perf tools
  std::vector<std::string> launcher = {};  ///< words before the tool; empty: the tool starts the processes
  Collective collective = Collective::kAllReduce;
  uint32_t processes = 0;  ///< without a launcher
  uint32_t emulated_hosts = 1;
  std::string least_bytes = {};
  std::string most_bytes = {};
  uint32_t factor = 4;
  std::vector<std::string> algorithms = {};  ///< in turns; "default": the library's choice
  uint32_t turns = 1;                        ///< rows of each algorithm and size
  double row_ms = 5;
  uint32_t timeout_s = 60;
};

/// Messages of `least` bytes, `factor` times as many and so on, up to `most`.
struct SizeGrid {
  uint64_t least = 0;
  uint64_t most = 0;
  uint32_t factor = 2;
};
/// The sizes of the rows for these messages: a perf tool cuts them into blocks of whole floats, longer ones
/// of whole 16 bytes (block_count), and has no row where a block is empty.
std::set<uint64_t> row_sizes(Collective collective, uint32_t ranks, const SizeGrid& grid);

/// The library's choice, and all algorithms that may serve ranks on cores.
std::vector<std::string> algorithms_of(Collective collective);

/// The folder of the perf tools: that of this program, or perf/ beside it; empty: neither has them.
std::string find_perf_tools();

/// Whether the cores moved during most rows.
bool have_moved(const Report& report);

/// Adds the rows of a run, on so many hosts, but for those during which the cores moved. These count as
/// turns, too, so that the others stay beside those of other algorithms.
void add_rows(const Report& report, Collective collective, uint32_t hosts, Samples& samples);

/// Runs the tool to its end and reads its report. "default" is what the library chooses by itself: rows that
/// were measured and what the user names are hidden from every rank. SIGINT, SIGTERM and SIGHUP end the tool
/// first, then this process: neither processes nor files stay behind. Errors: kUnsupported with the tool's
/// last words if it failed; kSystemError.
Result<Report> run_perf_tool(const RunOptions& options);

}  // namespace tutti::tool
