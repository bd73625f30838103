// Inspector: tells who asks what the ranks of this process are doing: another process of the same user
// (tutti-inspect), or a signal. Driven by the control thread: it answers while the application computes or
// hangs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "comm/control.h"
#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

class Inspector {
 public:
  /// `report` is called on the control thread. With `on_signal` SIGUSR2 writes it to standard error. Null
  /// where the process's name is taken, as by one of the same number in another container: then nobody can
  /// ask.
  static std::unique_ptr<Inspector> start(ControlThread& control, bool on_signal,
                                          std::function<std::string()> report);
  ~Inspector();
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;

 private:
  Inspector(ControlThread& control, std::function<std::string()> report)
      : control_(control), report_(std::move(report)) {}
  Status await_signal();
  void answer();

  ControlThread& control_;
  std::function<std::string()> report_;
  FileDescriptor listener_;
  FileDescriptor signalled_;
};

/// The report of the process `pid` of this host and user. Errors: kPeerLost (it uses no tutti, or is another
/// user's), kTimeout, kSystemError.
Result<std::string> inspect(int pid, uint64_t deadline_ns);

}  // namespace tutti
