// One line on stderr that shows the progress of a long run to a person.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace tutti::perf {

class Progress {
 public:
  /// Writes to descriptor 2. Silent unless `enabled` (stderr is a terminal, and this is rank 0).
  Progress(bool enabled, size_t total) : enabled_(enabled), total_(total) {}

  /// `done` rows of the total are complete, `what` is running. Shown once the run has lasted a second.
  void show(size_t done, const std::string& what);
  /// Removes the line, before a row is printed on the same terminal.
  void clear();

 private:
  const bool enabled_;
  const size_t total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool shown_ = false;
};

}  // namespace tutti::perf
