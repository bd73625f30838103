// Inspector: tells who asks what the ranks of this process are doing: another process of the same user
// (tutti-inspect), or a signal. Driven by the control thread: it answers while the application computes or
// hangs.
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
  /// `report` is called on the control thread. Where the process's name is taken, as by one of the same
  /// number in another container, nobody can ask by it; where no port of Config::inspect_first on is free,
  /// nobody can from another host, and a line is logged. `id`: by which this process first joined a
  /// communicator.
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
  std::unique_ptr<InspectorServer> door_;  ///< null: answers on its own host only
};

/// The report of the process `pid` of this host and user. Errors: kPeerLost (it uses no tutti, or is another
/// user's), kTimeout, kSystemError.
Result<std::string> inspect(int pid, uint64_t deadline_ns);

}  // namespace tutti
