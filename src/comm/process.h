// Process: what all communicators of this process share: settings, control thread, symmetric heap, proof of
// life, fork detection.
//
// The only global object (Process::instance): a C API has nowhere else to keep it. It is made at the first
// call and never destroyed, so a process may exit at any time, from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
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
#include "topology/kept.h"
#include "transports/shm/heap.h"
#include "transports/shm/memory.h"
#include "transports/shm/segment.h"

namespace tutti {

/// Mapped in this process.
struct PeerHeap {
  Mapping mapping;
};

class Process {
 public:
  using Token = std::array<std::byte, 16>;

  /// For ranks and their memory, which a forked child cannot use: from now on children are refused. Errors:
  /// kInvalidArgument (environment), kSystemError. Thread-safe.
  static Result<Process*> instance();
  /// Also works where instance() fails: the process can make ids and join a bootstrap, to tell other ranks
  /// why it fails. A forked child gets a Process of its own, unless the parent has used instance(). Errors:
  /// kSystemError (no control thread). Thread-safe.
  static Result<Process*> for_bootstrap();
  /// Children that are forked after this call are refused.
  static void refuse_children();

  const Config& config() const { return config_; }
  /// From Config::choice_file, or the built-in table.
  const ChoiceTable& choice() const { return choice_; }
  /// The rows that tutti-tune measured on this kind of machine, as text; empty: none, or the user has named a
  /// table.
  const std::string& tuned_text() const { return tuned_text_; }
  /// The graph of this machine: detected, kept or the user's. Errors: as topology::find_machine. Thread-safe.
  Result<topology::FoundMachine> find_machine();
  ControlThread& control() { return *control_; }
  SymmetricHeap& heap() { return *heap_; }
  /// Random; unique to this process.
  const Token& token() const { return token_; }
  /// Hangs up in peers when this process ends, however it ends.
  int life_fd() const { return life_read_.get(); }

  /// False in a child of the process that made this object. One load.
  bool is_original() const { return *original_ != 0; }
  /// Whether this is a child that is refused. No first use of tutti.
  static bool in_forked_child();
  static Status forked();

  /// Keeps segments, so that the ranks of this process share the mapping. Returns a key that no other segment
  /// has had: an address may come again.
  uint64_t add_segment(const std::shared_ptr<Segment>& segment);
  /// By key, null where none is kept. Thousands of ranks ask for thousands of segments: once each.
  std::vector<std::shared_ptr<Segment>> find_segments(std::span<const uint64_t> keys);
  /// The control plane is told when the process exits.
  void add_plane(const std::shared_ptr<ControlPlane>& plane);
  /// A new id, served here, for ranks of any hosts or of this host only. Errors: as BootstrapServers::open.
  Result<UniqueId> make_id(bool network);
  BootstrapServers& bootstrap_servers() { return *servers_; }
  /// Ids that this process has shared by its launcher. A share that fails is not counted, so that all ranks
  /// can try again.
  uint32_t shares() const { return shares_.load(std::memory_order_relaxed); }
  void count_share() { shares_.fetch_add(1, std::memory_order_relaxed); }
  /// report() tells of a communicator from its creation to its destruction. `id`: the one that the rank
  /// joined.
  void add_communicator(const Peers* peers, const UniqueId& id);
  void remove_communicator(const Peers* peers);
  /// What all ranks of this process are doing, for a person. On the control thread.
  std::string report();
  /// Looks for the driver at the first call. Errors: kUnsupported.
  Result<Devices*> devices();
  /// Null until a rank of this process asks for a device.
  Devices* devices_in_use() const { return devices_in_use_.load(std::memory_order_acquire); }
  RelaunchThread& relaunch_thread() { return relaunch_thread_; }
  const Locality& locality() const { return locality_; }
  /// Made at the first call. Errors: kSystemError.
  Result<FileServer*> file_server();
  static std::string file_server_name(const Token& token);
  /// Tells peers, at a normal exit, that this process finishes no more operations.
  void leave_all();
  /// Mapped once for all communicators. `file` is the heap's descriptor.
  Result<std::shared_ptr<PeerHeap>> peer_heap(const Token& token, const FileDescriptor& file, size_t bytes);

 private:
  Process() = default;
  static Result<Process*> create();
  static bool is_usable(const Process* process);
  Status prepare();
  Status prepare_ranks();
  void read_tuned();
  topology::MachineSource machine_source(const topology::FileTree& files);

  Config config_;
  Status refusal_;  ///< why no ranks can exist here
  ChoiceTable choice_;
  std::string tuned_text_;
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<BootstrapServers> servers_;
  std::atomic<uint32_t> shares_{0};
  SymmetricHeap* heap_ = nullptr;
  Token token_{};
  Locality locality_;
  FileDescriptor life_read_;
  FileDescriptor life_write_;
  const volatile char* original_ = nullptr;  ///< fork() gives the child an empty page
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<Segment>> segments_;
  uint64_t last_segment_key_ = 0;
  size_t segments_before_sweep_ = 0;  ///< entries of dead segments go when there are as many as this
  std::optional<topology::Detected> detected_;  ///< guarded by mutex_; an incomplete machine is not kept
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
