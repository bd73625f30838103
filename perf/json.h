// The JSON report of -J: nccl-tests' JSON version 3, plus tutti's keys. The whole document is written after
// every row, so a run that dies leaves its measurements. Existing files are kept: FILE.0, FILE.1, ... are
// tried instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "perf/floors.h"
#include "perf/report.h"

namespace tutti::perf {

class JsonReport {
 public:
  /// Creates the file. kSystemError if no suffix gives a file that can be created.
  static Result<JsonReport> create(const std::string& path);
  /// Predicts the result of `create` for the path, without leaving a file.
  static Status check(const std::string& path);
  JsonReport(JsonReport&&) noexcept;
  JsonReport& operator=(JsonReport&&) noexcept;
  ~JsonReport();

  const std::string& path() const;

  void begin(const Options& options, const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment, int library_version,
             const std::vector<RankInfo>& ranks, const std::optional<Floors>& floors = {});
  /// Also writes the file; kSystemError if the write fails.
  Status add(const Options& options, const std::string& test_name, const Row& row);
  Status finish(const Summary& summary, const std::vector<std::string>& errors);

 private:
  struct Document;
  explicit JsonReport(std::unique_ptr<Document> document);
  std::unique_ptr<Document> document_;
};

/// Local time as "2025-01-31 13:45:00".
std::string time_text();

}  // namespace tutti::perf
