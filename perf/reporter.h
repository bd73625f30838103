// Rank 0's output: the table on stdout, the JSON file, the progress line. Only rank 0 has a reporter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perf/floors.h"
#include "perf/json.h"
#include "perf/progress.h"
#include "perf/report.h"

namespace tutti::perf {

class Reporter {
 public:
  Reporter(const Options& options, std::string test_name, std::vector<std::string> arguments,
           std::vector<std::string> environment);

  /// Prints everything above the first row. `row_count` 0: unknown (-N 0). `floors`: if they were measured.
  Status begin(const std::vector<RankInfo>& ranks, size_t row_count, const std::optional<Floors>& floors);
  void comment(const std::string& text);
  void running(const std::string& what);
  Status row(const Row& row);
  Status finish(const Summary& summary);
  /// The run ends early: keeps the error in the JSON file.
  void fail(const std::string& error);

 private:
  void print(const std::string& text);

  const Options& options_;
  const std::string test_name_;
  const std::vector<std::string> arguments_;
  const std::vector<std::string> environment_;
  std::optional<JsonReport> json_;
  std::optional<Progress> progress_;
  size_t rows_ = 0;
  int table_error_ = 0;  ///< errno of a table that cannot be written, for example to a full disk
};

}  // namespace tutti::perf
