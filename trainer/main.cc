// The trainer: starts its ranks, or finds its rank in a launcher's run, and trains.
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <thread>

#include "perf/exit_status.h"
#include "perf/launch.h"
#include "trainer/mode.h"
#include "trainer/modes/data.h"
#include "trainer/modes/elastic.h"

namespace {

using namespace tutti::trainer;
using tutti::perf::ProcessContext;

// Time for the other ranks to report that one rank is lost.
constexpr std::chrono::milliseconds kGrace{6000};

struct Job {
  const Options& options;
  const ProcessContext& context;
  tutti_unique_id_t id;
  int rank_count;
};

/// Every error ends here, as a line with the rank. Returns the exit status.
int run_rank(const Job& job, int rank) {
  try {
    Team team(job.id, rank, job.rank_count, job.options.reproducible);
    if (rank == 0) tutti::perf::forget_id(job.context);
    // Outlives the abort, which ends reductions in progress before their memory is freed.
    std::optional<Training> training;
    try {
      if (job.options.parallel.mode != "data") {
        run_mode(job.options, team);
        return tutti::perf::kExitOk;
      }
      training.emplace(job.options, team);
      training->run();
      return tutti::perf::kExitOk;
    } catch (...) {
      team.abort();
      throw;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer, rank %d: %s\n", rank, text_of(error).c_str());
  }
  return 1;
}

int run_process(const Options& options, const ProcessContext& context) {
  const int threads = options.threads ? options.ranks : 1;
  Job job{.options = options, .context = context, .id = {}, .rank_count = context.process_count * threads};
  const int first_rank = context.process * threads;
  if (context.process == 0 && tutti_get_unique_id(&job.id) != TUTTI_SUCCESS) {
    std::fprintf(stderr, "trainer, rank 0: making a unique id: %s\n", tutti_last_error());
    return tutti::perf::kExitFailure;
  }
  if (const tutti::Status shared = share_id(context, &job.id); !shared.is_ok()) {
    std::fprintf(stderr, "trainer, rank %d: %s\n", first_rank, std::string(shared.text()).c_str());
    return tutti::perf::kExitFailure;
  }
  std::vector<int> results(static_cast<size_t>(threads));
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i)
    others.emplace_back([&, i] { results[static_cast<size_t>(i)] = run_rank(job, first_rank + i); });
  results[0] = run_rank(job, first_rank);
  for (std::thread& other : others) other.join();
  return *std::max_element(results.begin(), results.end());
}

}  // namespace

int main(int argc, char** argv) {
  const ParsedOptions parsed = parse_options(argc, argv);
  if (!parsed.run) {
    std::fprintf(parsed.exit_code == 0 ? stdout : stderr, "%s\n", parsed.text.c_str());
    return parsed.exit_code;
  }
  const Options& options = parsed.options;
  const tutti::Environment environment = tutti::process_environment();
  const tutti::perf::LaunchOptions launch{.processes = options.threads ? 0 : options.ranks,
                                          .flag = "--ranks"};
  if (is_supervisor(launch, environment)) {
    if (const tutti::Status alone = check_alone(launch, environment); !alone) {
      std::fprintf(stderr, "trainer: %s\n", std::string(alone.text()).c_str());
      return tutti::perf::kExitUsage;
    }
    return options.parallel.mode == "elastic" ? run_elastic(options) : supervise(launch, argv, kGrace);
  }
  const tutti::Result<tutti::perf::ProcessContext> context = find_process_context(launch, environment);
  if (!context) {
    std::fprintf(stderr, "trainer: %s\n", std::string(context.status().text()).c_str());
    return tutti::perf::kExitUsage;
  }
  if (options.parallel.hosts > 0)
    tutti::perf::emulate_host(options.parallel.hosts, context->process, context->process_count);
  return run_process(options, *context);
}
