// main of every perf tool. The tool's own file defines the collective.
#include <cstdio>
#include <cstdlib>

#include "perf/json.h"
#include "perf/launch.h"
#include "perf/runner.h"
#include "perf/seating.h"

namespace {

// A worker with a dead peer reports the peer within about 2 s. The rest of the time is for slow machines.
constexpr std::chrono::milliseconds kGrace{6000};

std::vector<std::string> texts(char** list) {
  std::vector<std::string> result;
  for (; *list != nullptr; ++list) result.emplace_back(*list);
  return result;
}

tutti::Status check_hosts(int hosts, int processes) {
  if (hosts <= processes) return tutti::Status::ok();
  return {tutti::Code::kInvalidUsage,
          tutti::format("--emulate-hosts %d needs a process for each host; processes: %d", hosts, processes)};
}

const char* get_environment(const char* name) {
  return std::getenv(name);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::perf;
  const CollectiveTest& test = collective_test();
  ParsedOptions parsed = parse_options(argc, argv, get_environment);
  if (!parsed.run) {
    std::fprintf(parsed.exit_code == 0 ? stdout : stderr, "%s\n", parsed.text.c_str());
    return parsed.exit_code;
  }
  const auto refuse = [&test](const tutti::Status& why) {
    std::fprintf(stderr, "%s: %s\n", test.name, std::string(why.text()).c_str());
    return kExitUsage;
  };
  const LaunchOptions launch{.processes = parsed.options.processes,
                             .threads = parsed.options.ranks_per_process()};
  // Checks before anything starts that the report can be written.
  const std::string& json_path = parsed.options.json_path;
  const tutti::Status writable = json_path.empty() ? tutti::Status::ok() : JsonReport::check(json_path);
  if (is_supervisor(launch, get_environment)) {
    for (const tutti::Status& status : {check_alone(launch, get_environment), writable,
                                        check_hosts(parsed.options.emulated_hosts, launch.processes)})
      if (!status) return refuse(status);
    return supervise(launch, argv, kGrace);
  }
  const tutti::Result<ProcessContext> context = find_process_context(launch, get_environment);
  if (!context) return refuse(context.status());
  if (context->process == 0 && !writable) return refuse(writable);
  const int hosts = parsed.options.emulated_hosts;
  if (const tutti::Status enough = check_hosts(hosts, context->process_count); !enough) return refuse(enough);
  if (hosts > 0) emulate_host(hosts, context->process, context->process_count);
  if (parsed.options.bind) {
    if (const tutti::Status bound = bind_to_core(context->process); !bound) return refuse(bound);
  }
  const tutti::Result<Seating> seating = Seating::choose(parsed.options, *context);
  if (!seating) {
    // All workers of our own supervisor find the same error, so only worker 0 reports it.
    const bool speaks = context->process == 0 || context->channel != ProcessContext::Channel::kPipe;
    return speaks ? refuse(seating.status()) : kExitUsage;
  }
  Reporter reporter(parsed.options, test.name, texts(argv), texts(environ));
  return run_process(parsed.options, test, *context, *seating, reporter);
}
