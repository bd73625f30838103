// FileServer: hands the shared memory of this process's ranks to ranks of other processes of the host that
// name its secret, which they have from the meeting. For communicators whose ranks meet over the network,
// where no descriptor can travel. Driven by the control thread: it answers while the application computes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/local_socket.h"
#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

/// What shows that its owner was told of the files.
using FileSecret = std::array<std::byte, 16>;

class FileServer {
 public:
  /// Listens at the abstract name. Errors: kSystemError.
  static Result<std::unique_ptr<FileServer>> start(ControlThread& control, const std::string& name);

  /// From now on hands out `files` (borrowed) to whom knows the secret. Any thread.
  void offer(const FileSecret& secret, std::vector<int> files);
  /// After it returns they are not handed out. Any thread.
  void withdraw(const FileSecret& secret);

 private:
  explicit FileServer(ControlThread& control) : control_(control) {}
  void accept();
  void answer(int fd);

  ControlThread& control_;
  FileDescriptor listener_;
  std::map<int, FileDescriptor> visitors_;  ///< touched by the control thread only
  std::mutex mutex_;
  std::map<FileSecret, std::vector<int>> offers_;
};

/// Fetches the `count` files that the process listening at `name` offers under `secret`. Errors: kPeerLost:
/// the process has ended, or offers them no more; kTimeout, kSystemError.
Result<std::vector<FileDescriptor>> fetch_files(const std::string& name, const FileSecret& secret,
                                                size_t count, uint64_t deadline_ns);

}  // namespace tutti
