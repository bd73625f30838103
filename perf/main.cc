// main of every perf tool; the collective is the one that the tool's own file defines.
#include <cstdio>
#include <cstdlib>

#include "perf/launch.h"
#include "perf/runner.h"

namespace {

// A worker that meets a dead peer reports it within about 2 s; the rest of the time is for slow machines.
constexpr std::chrono::milliseconds kGrace{6000};

std::vector<std::string> texts(char** list) {
  std::vector<std::string> result;
  for (; *list != nullptr; ++list) result.emplace_back(*list);
  return result;
}

const char* get_environment(const char* name) {
  return std::getenv(name);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::perf;
  const CollectiveTest& test = collective_test();
  const ParsedOptions parsed = parse_options(argc, argv, get_environment);
  if (!parsed.run) {
    std::fprintf(parsed.exit_code == 0 ? stdout : stderr, "%s\n", parsed.text.c_str());
    return parsed.exit_code;
  }
  if (is_supervisor(parsed.options, get_environment)) return supervise(parsed.options, argv, kGrace);
  const tutti::Result<Place> place = find_place(parsed.options, get_environment);
  if (!place) {
    std::fprintf(stderr, "%s: %s\n", test.name, std::string(place.status().text()).c_str());
    return kExitUsage;
  }
  Reporter reporter(parsed.options, test.name, texts(argv), texts(environ));
  return run_process(parsed.options, test, *place, get_environment, reporter);
}
