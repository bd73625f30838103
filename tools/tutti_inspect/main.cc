// tutti-inspect: what the ranks of a running process are doing.
//
//   tutti-inspect 4711          exit status 1 if the process cannot be asked
//   tutti-inspect node7:4800    a process of another host, started with TUTTI_INSPECT_PORTS
#include <CLI/CLI.hpp>
#include <charconv>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>

#include "bootstrap/unique_id.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/version_line.h"
#include "health/inspector.h"
#include "health/inspector_server.h"
#include "tools/flags.h"

namespace {

using tutti::Code;
using tutti::Result;
using tutti::Status;

constexpr uint64_t kPatienceMs = 5000;
constexpr int kPidMax = 1 << 22;

constexpr const char* kFooter = R"(Name a process of this host and user by its number.
Name a process of any host by HOST:PORT. Such a process must run with TUTTI_INSPECT_PORTS=FIRST-LAST. The processes
of a host take the lowest free ports of this range. Each process knows the state of all ranks of its communicators.
Both sides prove that they know the job's key. Set TUTTI_KEY or TUTTI_KEY_FILE as for the job. For a job without a
key, --id-file or TUTTI_ID_FILE names a file with the unique id of the job's first communicator.)";

Result<tutti::Credentials> find_credentials(std::string id_path) {
  const auto environment = tutti::process_environment();
  const auto config = tutti::read_config(environment);
  TUTTI_TRY(config.status());
  tutti::UniqueId id;
  const bool is_asked_for = !id_path.empty();
  if (const char* path = environment("TUTTI_ID_FILE"); !is_asked_for && path != nullptr) id_path = path;
  if (!config->key.empty() && !is_asked_for) return tutti::inspection_credentials(*config, id);
  if (id_path.empty()) {
    return Status(
        Code::kInvalidUsage,
        "no key: set TUTTI_KEY or TUTTI_KEY_FILE as for the job, or pass a file with its unique id by "
        "--id-file");
  }
  std::ifstream file(id_path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&id), sizeof(id)) || !tutti::check_unique_id(id)) {
    return Status(Code::kInvalidArgument, "the file " + id_path + " cannot be read, or holds no unique id");
  }
  return tutti::credentials_of(id);
}

/// Returns the function that asks for one report.
Result<std::function<Result<std::string>()>> find_way(const std::string& target, const std::string& id_path) {
  using Way = std::function<Result<std::string>()>;
  int pid = 0;
  const char* end = target.data() + target.size();
  const auto [stop, error] = std::from_chars(target.data(), end, pid);
  if (error == std::errc() && stop == end && pid > 0 && pid <= kPidMax) {
    return Way([pid] { return tutti::inspect(pid, tutti::deadline_after_ms(kPatienceMs)); });
  }
  const auto where = tutti::parse_host_port(target);
  if (!where) {
    return Status(Code::kInvalidArgument,
                  "\"" + target + "\" is neither the number of a process nor HOST:PORT");
  }
  const auto credentials = find_credentials(id_path);
  TUTTI_TRY(credentials.status());
  return Way([where = *where, credentials = *credentials] {
    return tutti::inspect(where, credentials, tutti::deadline_after_ms(kPatienceMs));
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows the state of the ranks of a process that uses tutti, and of their peers.",
               "tutti-inspect");
  tutti::tool::name_mistakes(app, "tutti-inspect");
  std::string target;
  std::string id_path;
  app.add_option("process", target, "number of the process, or HOST:PORT")->required();
  app.add_option("--id-file", id_path, "a file that holds the unique id of the job's first communicator");
  app.set_version_flag("--version", tutti::version_line("tutti-inspect"));
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto ask = find_way(target, id_path);
  if (!ask) {
    std::cerr << "tutti-inspect: " << ask.status().text() << "\n";
    return 2;
  }
  // The first report only asks the ranks on other hosts. A later report has their answers.
  constexpr uint64_t kAnswerMs = 500;
  const uint64_t answers_ns = tutti::deadline_after_ms(kAnswerMs);
  auto report = (*ask)();
  while (report && report->find("has not been asked before") != std::string::npos &&
         tutti::now_ns() < answers_ns) {
    report = (*ask)();
  }
  if (!report) {
    std::cerr << "tutti-inspect: " << report.status().text() << "\n";
    return 1;
  }
  std::cout << *report;
  return tutti::tool::end_output("tutti-inspect", 0);
}
