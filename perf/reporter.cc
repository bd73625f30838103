#include "perf/reporter.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "perf/table.h"
#include "tutti/tutti.h"

namespace tutti::perf {

Reporter::Reporter(const Options& options, std::string test_name, std::vector<std::string> arguments,
                   std::vector<std::string> environment)
    : options_(options),
      test_name_(std::move(test_name)),
      arguments_(std::move(arguments)),
      environment_(std::move(environment)) {}

void Reporter::print(const std::string& text) {
  if (progress_) progress_->clear();
  if (std::fputs(text.c_str(), stdout) == EOF || std::fflush(stdout) == EOF) table_error_ = errno;
}

Status Reporter::begin(const std::vector<RankInfo>& ranks, size_t row_count,
                       const std::optional<Floors>& floors) {
  int version = 0;
  (void)tutti_get_version(&version);
  if (!options_.json_path.empty()) {
    Result<JsonReport> report = JsonReport::create(options_.json_path);
    if (!report) return report.status();
    print("# Writing JSON output to " + report->path() + "\n");
    json_.emplace(std::move(*report));
    json_->begin(options_, arguments_, environment_, version, ranks, floors);
  }
  print(table_preamble(options_, test_name_, version, ranks, floors));
  print(table_header(options_));
  progress_.emplace(::isatty(STDERR_FILENO) == 1, row_count);
  return Status::ok();
}

void Reporter::comment(const std::string& text) {
  print("# " + text + "\n");
}

void Reporter::running(const std::string& what) {
  if (progress_) progress_->show(rows_, what);
}

Status Reporter::row(const Row& row) {
  ++rows_;
  print(table_row(options_, row));
  return json_ ? json_->add(options_, test_name_, row) : Status::ok();
}

Status Reporter::finish(const Summary& summary) {
  print(table_footer(test_name_, summary));
  if (table_error_ != 0) return system_error("writing the table", table_error_);
  return json_ ? json_->finish(summary, {}) : Status::ok();
}

void Reporter::fail(const std::string& error) {
  if (progress_) progress_->clear();
  // The error is already reported. An error about the file would hide it.
  if (json_) (void)json_->finish(Summary{}, {error});
}

}  // namespace tutti::perf
