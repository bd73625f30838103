// FileServer: gives shared memory of this process's ranks to ranks of other processes on the host. A visitor
// shows a secret from the bootstrap and fetches the descriptors of one rank at a time. It keeps few, so the
// usual limit suffices for many ranks. The control thread serves it.
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

/// Proves that its owner was told of the files.
using FileSecret = std::array<std::byte, 16>;

class FileServer {
 public:
  /// Listens on the abstract name. Errors: kSystemError.
  static Result<std::unique_ptr<FileServer>> start(ControlThread& control, const std::string& name);

  /// Gives `files` (borrowed) to peers that know the secret. Any thread.
  void offer(const FileSecret& secret, std::vector<int> files);
  /// Afterwards nobody can fetch the files. Any thread.
  void withdraw(const FileSecret& secret);

 private:
  explicit FileServer(ControlThread& control) : control_(control) {}
  void accept();
  void answer(int fd);
  void keep_spare();

  ControlThread& control_;
  FileDescriptor listener_;
  /// Closed to accept one visitor at a time when the process has no other descriptor.
  FileDescriptor spare_;
  std::map<int, FileDescriptor> visitors_;  ///< used by the control thread only
  std::mutex mutex_;
  std::map<FileSecret, std::vector<int>> offers_;
};

struct FileOffer {
  explicit FileOffer(FileServer& to) : server(to) {}
  FileOffer(const FileOffer&) = delete;
  FileOffer& operator=(const FileOffer&) = delete;
  ~FileOffer() { server.withdraw(secret); }
  void open(std::span<const int> files) { server.offer(secret, {files.begin(), files.end()}); }

  FileServer& server;
  FileSecret secret{};
};

struct FetchOptions {
  std::string name;  ///< of the process's server
  FileSecret secret{};
  size_t count = 0;
  uint64_t deadline_ns = 0;
  int bootstrap_fd = -1;          ///< readable when `check` has work; -1: never
  std::function<Status()> check;  ///< what has ended the bootstrap or the call
};

/// Errors: kPeerLost (the process has ended or offers the files no longer); kTimeout; kSystemError, for
/// example without descriptors; errors of `check`.
Result<std::vector<FileDescriptor>> fetch_files(const FetchOptions& options);

}  // namespace tutti
