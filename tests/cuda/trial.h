// Trial: what a child process of a test of CUDA found wrong. Each case has a child, so that it has a driver
// of its own, made as its environment says, and the test itself never loads one.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "tests/support/cluster.h"

namespace tutti::cuda {

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Collects failures of a child.
class Trial {
 public:
  bool is(bool condition, const std::string& what) {
    if (!condition) failures_ += what + "\n";
    return condition;
  }
  bool ok(const Status& status, const std::string& what) {
    return is(status.is_ok(), what + ": " + std::string(status.text()));
  }
  /// The status is a failure of this code, whose text holds `part`.
  void fails(const Status& status, Code code, const std::string& part) {
    is(status.code() == code && status.text().find(part) != std::string_view::npos,
       "not the failure that was expected (" + part + "): " + std::string(status.text()));
  }
  const std::string& failures() const { return failures_; }

 private:
  std::string failures_;
};

/// Runs `body` in a child. Empty when all went well, else what failed.
inline std::string run(const std::function<void(Trial&)>& body, const Environment& environment = {}) {
  return test::run_child(
      [&] {
        Trial trial;
        body(trial);
        return trial.failures();
      },
      environment);
}

}  // namespace tutti::cuda
