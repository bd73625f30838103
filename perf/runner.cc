#include "perf/runner.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "core/thread.h"
#include "perf/check.h"
#include "perf/ranks.h"
#include "perf/watchdog.h"

namespace tutti::perf {
namespace {

// The library's own deadline should expire first, because its error names the missing rank.
constexpr std::chrono::milliseconds kWatchdogMargin{1000};

std::string failure_text(int first_rank, int rank_count, const Status& status) {
  const std::string ranks = rank_count == 1 ? format("rank %d", first_rank)
                                            : format("ranks %d-%d", first_rank, first_rank + rank_count - 1);
  return format("%s: %s: %s", ranks.c_str(), std::string(code_name(status.code())).c_str(),
                std::string(status.text()).c_str());
}

[[noreturn]] void end_by_watchdog(const Options& options, int process, const std::string& row) {
  char host[64] = "";
  (void)::gethostname(host, sizeof(host) - 1);
  std::fprintf(stderr, "%s: Test timeout (%ds) in process %d, pid %d: %s\n", host, options.timeout_s, process,
               static_cast<int>(::getpid()), row.c_str());
  std::_Exit(kExitFailure);
}

/// The ranks of the threads that have started would wait for the others until the set-up deadline.
[[noreturn]] void end_without_thread(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(kExitFailure);
}

/// "" if the options fit the number of ranks.
std::string check_against_ranks(const Options& options, const CollectiveTest& test, int rank_count) {
  if (test.has_root && options.root && *options.root >= rank_count)
    return format("root %d (-r) is outside the %d ranks", *options.root, rank_count);
  if (!test.fusible && options.aggregate > 1)
    return format("-m %d is refused: the operations of %s depend on one another inside a group",
                  options.aggregate, test.name);
  return "";
}

/// Reads the file of NCCL_TESTS_ALLTOALLV_MATRIX_FILE. Returns "" or the mistake.
std::string read_traffic(const Options& options, int rank_count, std::optional<TrafficMatrix>* traffic) {
  auto matrix = TrafficMatrix::read(options.traffic_file, options.traffic_scale);
  if (!matrix) return "NCCL_TESTS_ALLTOALLV_MATRIX_FILE: " + std::string(matrix.status().text());
  if (matrix->dimension() < rank_count)
    return format("%s describes %d ranks, but there are %d", options.traffic_file.c_str(),
                  matrix->dimension(), rank_count);
  const size_t largest = matrix->largest_total(rank_count);
  if (options.min_bytes != options.max_bytes || options.max_bytes < largest)
    return format(
        "with a traffic matrix -b and -e must be equal, and at least the largest total of a rank, "
        "%zu bytes",
        largest);
  *traffic = std::move(*matrix);
  return "";
}

}  // namespace

std::vector<Subject> list_subjects(const Options& options, const CollectiveTest& test, int rank_count) {
  const std::vector<TestOp> ops = test.reduces ? options.ops : std::vector<TestOp>{TestOp::kNone};
  const int first_root = test.has_root ? options.root.value_or(0) : -1;
  const int last_root = test.has_root ? options.root.value_or(rank_count - 1) : -1;
  std::vector<Subject> subjects;
  for (const tutti_type_t type : options.types)
    for (const TestOp op : ops)
      for (int root = first_root; root <= last_root && is_op_defined(op, type); ++root)
        subjects.push_back({.type = type, .op = op, .root = root});
  return subjects;
}

int run_process(const Options& options, const CollectiveTest& test, const ProcessContext& context,
                const Seating& seating, Reporter& reporter) {
  const int per_thread = options.ranks_per_thread();
  const int rank_count = context.process_count * options.ranks_per_process();
  const bool first = context.process == 0;
  std::optional<TrafficMatrix> traffic;
  std::string mistake = check_against_ranks(options, test, rank_count);
  if (mistake.empty() && test.uneven_traffic && !options.traffic_file.empty())
    mistake = read_traffic(options, rank_count, &traffic);
  if (!mistake.empty()) {
    if (first) std::fprintf(stderr, "%s: %s\n", test.name, mistake.c_str());
    return kExitUsage;
  }
  if (test.power_of_two_ranks && (rank_count & (rank_count - 1)) != 0) {
    if (first) std::printf("nRanks %d is not a power of 2, skipping\n", rank_count);
    return kExitOk;
  }

  tutti_unique_id_t id{};
  Status named = first ? check(tutti_get_unique_id(&id), "making a unique id") : Status::ok();
  if (named) named = share_id(context, &id);
  const int first_rank = context.process * options.ranks_per_process();
  if (!named) {
    std::fprintf(stderr, "%s\n", failure_text(first_rank, 1, named).c_str());
    return named.code() == Code::kInvalidUsage ? kExitUsage : kExitFailure;
  }

  const std::chrono::milliseconds limit = options.timeout_s > 0
                                              ? std::chrono::seconds(options.timeout_s) + kWatchdogMargin
                                              : std::chrono::milliseconds(0);
  Watchdog watchdog(limit, [&](const std::string& row) { end_by_watchdog(options, context.process, row); });
  std::vector<Result<Summary>> results(static_cast<size_t>(options.threads), Result<Summary>(Summary{}));
  const auto run_thread = [&](int thread) {
    const bool leader = thread == 0;
    const ThreadTask task{.options = options,
                          .test = test,
                          .seating = seating,
                          .traffic = traffic ? &*traffic : nullptr,
                          .id = id,
                          .thread = thread,
                          .first_rank = first_rank + thread * per_thread,
                          .rank_count = rank_count,
                          .reporter = first && leader ? &reporter : nullptr,
                          .watchdog = leader ? &watchdog : nullptr,
                          .joined = first && leader ? &context : nullptr};
    results[static_cast<size_t>(thread)] = run_ranks(task);
  };
  std::vector<std::thread> threads(static_cast<size_t>(options.threads) - 1);
  for (int thread = 1; thread < options.threads; ++thread) {
    const Status started = start_thread(threads[static_cast<size_t>(thread) - 1], "a rank's thread",
                                        [&run_thread, thread] { run_thread(thread); });
    if (!started) end_without_thread(failure_text(first_rank + thread * per_thread, per_thread, started));
  }
  run_thread(0);
  for (std::thread& thread : threads) thread.join();

  int exit_status = kExitOk;
  for (int thread = 0; thread < options.threads; ++thread) {
    const Result<Summary>& result = results[static_cast<size_t>(thread)];
    if (!result) {
      const std::string text = failure_text(first_rank + thread * per_thread, per_thread, result.status());
      if (first && exit_status != kExitFailure) reporter.fail(text);
      std::fprintf(stderr, "%s\n", text.c_str());
      exit_status = kExitFailure;
    } else if (exit_status == kExitOk && (result->out_of_bounds > 0 || !result->bandwidth_ok())) {
      exit_status = kExitWrong;
    }
  }
  return exit_status;
}

}  // namespace tutti::perf
