// The JSON report of -J: nccl-tests' JSON version 3, with tutti's additions beside its keys.
//
// The document is kept in memory and written whole after every row, so that a run that dies leaves what it
// had measured. The file is opened exclusively: an existing file is never written over, FILE.0, FILE.1, ...
// are tried instead.
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
  /// Creates the file. kSystemError when it cannot be created under any suffix.
  static Result<JsonReport> create(const std::string& path);
  /// What `create` would say of the path now, as far as that can be told without leaving a file.
  static Status check(const std::string& path);
  JsonReport(JsonReport&&) noexcept;
  JsonReport& operator=(JsonReport&&) noexcept;
  ~JsonReport();

  /// The name that was free.
  const std::string& path() const;

  void begin(const Options& options, const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment, int library_version,
             const std::vector<RankInfo>& ranks, const std::optional<Floors>& floors = {});
  /// Writes the file too; kSystemError when the disk refuses.
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
