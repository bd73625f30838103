// Process: what all communicators of this process share: settings, the control thread, the symmetric heap,
// proof of life for peers, and the means to notice a fork.
//
// The only object of its kind in the tree that is reached without being passed (Process::instance): a C API
// has nowhere else to keep it. It is made at the first call and never destroyed, so that a process may exit
// at any moment, from any thread, without tearing anything down.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "algorithms/choice.h"
#include "bootstrap/servers.h"
#include "core/config.h"
#include "device/device_rank.h"
#include "device/relaunch_thread.h"
#include "health/control_plane.h"
#include "health/inspector.h"
#include "health/peers.h"
#include "net/control_thread.h"
#include "net/file_server.h"
#include "net/locality.h"
#include "transports/shm/heap.h"
#include "transports/shm/memory.h"
#include "transports/shm/segment.h"

namespace tutti {

/// A peer process's heap as it is mapped here.
struct PeerHeap {
  Mapping mapping;
};

class Process {
 public:
  using Token = std::array<std::byte, 16>;

  /// Errors: kInvalidArgument (environment), kSystemError. Thread-safe.
  static Result<Process*> instance();
  /// The same, also where instance() is refused: such a process can make ids and meet, with the settings that
  /// can be read, so that other ranks learn why it takes no part. Errors: kSystemError (no control thread).
  /// Thread-safe.
  static Result<Process*> for_meeting();

  const Config& config() const { return config_; }
  /// The table of Config::choice_file, or the built-in one.
  const ChoiceTable& choice() const { return choice_; }
  ControlThread& control() { return *control_; }
  SymmetricHeap& heap() { return *heap_; }
  /// Random; tells this process from every other one.
  const Token& token() const { return token_; }
  /// Peers that hold this descriptor see it hang up when this process has ended, however it ended.
  int life_fd() const { return life_read_.get(); }

  /// False in a child that was forked after the process began to use tutti. One load.
  bool is_original() const { return *original_ != 0; }
  /// Whether this is such a child. Does not begin to use tutti.
  static bool in_forked_child();
  /// Status of a call in such a child.
  static Status forked();

  /// Keeps the segments of this process's ranks, so that its other ranks share the mapping.
  void add_segment(uint64_t key, const std::shared_ptr<Segment>& segment);
  std::shared_ptr<Segment> find_segment(uint64_t key);
  /// Keeps in mind whom to tell when the process exits.
  void add_plane(const std::shared_ptr<ControlPlane>& plane);
  /// A new id, served from here: for ranks of any hosts, or of this one. Errors: as BootstrapServers::open.
  Result<UniqueId> make_id(bool network);
  /// The ids that are served from here.
  BootstrapServers& bootstrap_servers() { return *servers_; }
  /// Communicators that report() tells of, from start to end of their lives. `id`: by which it was joined.
  void add_communicator(const Peers* peers, const UniqueId& id);
  void remove_communicator(const Peers* peers);
  /// What all ranks of this process are doing, for people. Called on the control thread.
  std::string report();
  /// The devices of ranks of this process; the driver is looked for at the first call. Errors: kUnsupported.
  Result<Devices*> devices();
  /// Null while no rank of this process has asked for a device.
  Devices* devices_in_use() const { return devices_in_use_.load(std::memory_order_acquire); }
  /// Looks after the ranks on them.
  RelaunchThread& relaunch_thread() { return relaunch_thread_; }
  /// Where this process runs.
  const Locality& locality() const { return locality_; }
  /// Hands files to peers; made at the first call. Errors: kSystemError.
  Result<FileServer*> file_server();
  /// Where the file server of the process `token` is found.
  static std::string file_server_name(const Token& token);
  /// The process exits in good order: peers that still finish an operation need nothing more of it.
  void leave_all();
  /// The heap of the process `token`, mapped once for all communicators. `file` is its heap descriptor.
  Result<std::shared_ptr<PeerHeap>> peer_heap(const Token& token, const FileDescriptor& file, size_t bytes);

 private:
  Process() = default;
  static Result<Process*> create();
  Status prepare();
  Status prepare_ranks();

  Config config_;
  Status refusal_;  ///< why there can be no ranks here
  ChoiceTable choice_;
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<BootstrapServers> servers_;
  SymmetricHeap* heap_ = nullptr;
  Token token_{};
  Locality locality_;
  FileDescriptor life_read_;
  FileDescriptor life_write_;
  const volatile char* original_ = nullptr;  ///< a page that fork() gives to the child empty
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Segment>> segments_;
  std::map<Token, std::weak_ptr<PeerHeap>> peer_heaps_;
  std::vector<std::weak_ptr<ControlPlane>> planes_;
  std::unique_ptr<FileServer> file_server_;
  std::unique_ptr<Devices> devices_;
  std::atomic<Devices*> devices_in_use_{nullptr};
  RelaunchThread relaunch_thread_;
  std::mutex communicators_mutex_;
  std::vector<const Peers*> communicators_;  ///< guarded by communicators_mutex_
  std::unique_ptr<Inspector> inspector_;     ///< null until the first communicator; guarded by mutex_
};

}  // namespace tutti
