// Inspector: reports what this process's ranks are doing, to another process of the same user (tutti-inspect)
// or on a signal. The control thread answers, even while the application hangs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/config.h"
#include "core/file_descriptor.h"
#include "core/result.h"
#include "health/inspector_server.h"
#include "net/control_thread.h"

namespace tutti {

class Inspector {
 public:
  /// The control thread calls `report`. If the socket name is taken, as by a process with the same number in
  /// another container, local requests fail. If no port from Config::inspect_first on is free, remote
  /// requests fail, and a line is logged. `id`: of the process's first communicator.
  static std::unique_ptr<Inspector> start(ControlThread& control, const Config& config, const UniqueId& id,
                                          const std::function<std::string()>& report);
  ~Inspector();
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;

 private:
  Inspector(ControlThread& control, const std::function<std::string()>& report)
      : control_(control), report_(report) {}
  void listen_here();
  void listen_to_network(const Config& config, const UniqueId& id);
  Status await_signal();
  void answer();

  ControlThread& control_;
  std::function<std::string()> report_;
  FileDescriptor listener_;
  FileDescriptor signalled_;
  std::unique_ptr<InspectorServer> door_;  ///< null: answers on this host only
};

/// The report of process `pid` of this host and user. Errors: kPeerLost (the process uses no tutti, or is
/// another user's), kTimeout, kSystemError.
Result<std::string> inspect(int pid, uint64_t deadline_ns);

}  // namespace tutti
