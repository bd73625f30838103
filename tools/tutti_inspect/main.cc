// tutti-inspect: what the ranks of a running process are doing.
//
//   tutti-inspect 4711          exit status 1 when there is nothing to ask there
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "comm/inspector.h"
#include "core/clock.h"

int main(int argc, char** argv) {
  CLI::App app("Shows what the ranks of a process that uses tutti are doing, and their peers.",
               "tutti-inspect");
  int pid = 0;
  app.add_option("pid", pid, "the process, of this host and user")->required()->check(CLI::Range(1, 1 << 22));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  constexpr uint64_t kPatienceMs = 5000;
  // The first report asks the ranks of other hosts, a later one has their answers.
  constexpr uint64_t kAnswerMs = 500;
  const uint64_t answers_ns = tutti::deadline_after_ms(kAnswerMs);
  auto report = tutti::inspect(pid, tutti::deadline_after_ms(kPatienceMs));
  while (report && report->find("has not been asked before") != std::string::npos &&
         tutti::now_ns() < answers_ns) {
    report = tutti::inspect(pid, tutti::deadline_after_ms(kPatienceMs));
  }
  if (!report) {
    std::cerr << "tutti-inspect: " << report.status().text() << "\n";
    return 1;
  }
  std::cout << *report;
  return 0;
}
