// FileServer: hands the shared memory of this process's ranks to ranks of other processes of the host that
// name its secret, which they have from the bootstrap. Each comes for the descriptors of one rank at a time,
// and keeps few of them: so as many ranks meet as a usual limit of descriptors allows. Driven by the control
// thread: it answers while the application computes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "net/control_thread.h"
#include "net/local_socket.h"

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

/// Files of a rank, at its process's file server as long as this lives.
struct FileOffer {
  explicit FileOffer(FileServer& to) : server(to) {}
  FileOffer(const FileOffer&) = delete;
  FileOffer& operator=(const FileOffer&) = delete;
  ~FileOffer() { server.withdraw(secret); }
  void open(std::span<const int> files) { server.offer(secret, {files.begin(), files.end()}); }

  FileServer& server;
  FileSecret secret{};
};

/// What a rank fetches, and what it looks at meanwhile.
struct FetchOptions {
  std::string name;  ///< where the process listens
  FileSecret secret{};
  size_t count = 0;  ///< of the files offered under it
  uint64_t deadline_ns = 0;
  int bootstrap_fd = -1;          ///< readable when `check` has something to do; -1: never
  std::function<Status()> check;  ///< what has ended the bootstrap, or the call
};

/// Fetches files that a process offers. Errors: kPeerLost: it has ended, or offers them no more; kTimeout;
/// kSystemError, as where descriptors have run out; and those of `check`.
Result<std::vector<FileDescriptor>> fetch_files(const FetchOptions& options);

}  // namespace tutti
