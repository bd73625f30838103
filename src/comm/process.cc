#include "comm/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>

#include "algorithms/algorithm.h"
#include "bootstrap/bootstrap.h"
#include "core/cpu.h"
#include "core/fork_guard.h"
#include "core/log.h"
#include "core/random.h"
#include "core/result.h"
#include "core/variables.h"
#include "core/version.h"
#include "net/endpoint.h"

namespace tutti {
namespace {

Result<ChoiceTable> load_choice(const std::string& path) {
  if (path.empty()) return ChoiceTable::built_in();
  std::ifstream file(path);
  if (!file) return system_error("opening TUTTI_CHOICE_FILE " + path, errno);
  std::ostringstream text;
  // A folder opens, and only reading fails. An empty table would leave every call to the fallback.
  if (!(text << file.rdbuf())) {
    return Status(
        Code::kInvalidArgument,
        format("environment variable TUTTI_CHOICE_FILE is \"%s\", which cannot be read or is empty: name "
               "a table in the form of algorithms/choice.txt",
               path.c_str()));
  }
  auto table = ChoiceTable::parse(text.str());
  if (table) return table;
  return Status(table.status().code(),
                format("TUTTI_CHOICE_FILE %s: %s", path.c_str(), std::string(table.status().text()).c_str()));
}

/// The heap of a preloaded libtutti_malloc.so; null without one.
const LentHeap* find_lent_heap() {
  auto* const lend = reinterpret_cast<LendHeap*>(dlsym(RTLD_DEFAULT, kLendHeapName));
  const LentHeap* const lent = lend == nullptr ? nullptr : lend();
  return lent != nullptr && lent->version == LentHeap::kVersion ? lent : nullptr;
}

/// For kernels and sandboxes without MADV_WIPEONFORK: the C library's fork() wipes the byte in the child.
void wipe_on_fork(char* byte) {
  static std::atomic<char*> wiped{nullptr};
  wiped.store(byte);
  pthread_atfork(nullptr, nullptr, [] { *wiped.load() = 0; });
}

/// Null until the process exists.
std::atomic<Process*> only_process{nullptr};

/// Set for good: a child inherits it.
std::atomic<bool> children_are_refused{false};

}  // namespace

Result<Process*> Process::instance() {
  auto process = for_bootstrap();
  TUTTI_TRY(process.status());
  refuse_children();
  TUTTI_TRY((*process)->refusal_);
  return process;
}

Result<Process*> Process::for_bootstrap() {
  if (Process* const only = only_process.load(std::memory_order_acquire); is_usable(only)) return only;
  // Runs at exit(), not when the process is killed: returning from main loses no peer.
  struct Leaver {
    ~Leaver() {
      if (Process* const only = only_process.load(std::memory_order_acquire)) only->leave_all();
    }
  };
  static const Leaver kLeaver;
  static std::mutex creating;
  const std::scoped_lock lock(creating);
  if (Process* const only = only_process.load(std::memory_order_acquire); is_usable(only)) return only;
  return create();
}

/// Whether calls go to this object, if only to be refused.
bool Process::is_usable(const Process* process) {
  return process != nullptr &&
         (process->is_original() || children_are_refused.load(std::memory_order_acquire));
}

void Process::refuse_children() {
  children_are_refused.store(true, std::memory_order_release);
}

Result<Process*> Process::create() {
  std::unique_ptr<Process> process(new Process);
  TUTTI_TRY(process->prepare());
  only_process.store(process.get(), std::memory_order_release);
  // Never freed: see process.h.
  return process.release();
}

bool Process::in_forked_child() {
  const Process* const only = only_process.load(std::memory_order_acquire);
  return is_usable(only) && !only->is_original();
}

/// What a bootstrap needs. What ranks need in addition may fail.
Status Process::prepare() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return system_error("mmap", errno);
  if (madvise(page, 4096, MADV_WIPEONFORK) != 0) wipe_on_fork(static_cast<char*>(page));
  *static_cast<char*>(page) = 1;
  original_ = static_cast<const char*>(page);
  auto config = read_config(process_environment());
  config_ = config ? std::move(*config) : read_bootstrap_config(process_environment());
  if (const std::string unknown = unknown_variables(process_variables()); !unknown.empty()) log_line(unknown);
  Bootstrap::reserve_descriptor();
  // The last step that may fail: the heap and the life descriptor are never freed.
  auto control = ControlThread::start();
  TUTTI_TRY(control.status());
  control_ = std::move(*control);
  servers_ = std::make_unique<BootstrapServers>(*control_);
  const Status fits = check_interfaces(config_.socket_ifname);
  if (!fits) config_.socket_ifname.clear();  // to join the other ranks anyway and tell them
  refusal_ = !config ? config.status() : !fits ? fits : prepare_ranks();
  return Status::ok();
}

Status Process::prepare_ranks() {
  if (!config_.algorithm.empty() && !is_algorithm(config_.algorithm)) {
    return {Code::kInvalidArgument,
            format("environment variable TUTTI_ALGORITHM is \"%s\"; no collective has "
                   "an algorithm of that name: tutti-plan --list shows them",
                   config_.algorithm.c_str())};
  }
  auto choice = load_choice(config_.choice_file);
  TUTTI_TRY(choice.status());
  choice_ = std::move(*choice);
  if (config_.choice_file.empty()) read_tuned();
  TUTTI_TRY(fill_random(token_));
  locality_ = find_locality(config_.host_id);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  life_read_ = FileDescriptor(ends[0]);
  life_write_ = FileDescriptor(ends[1]);
  if (!life_read_.is_open() || !life_write_.is_open()) return system_error("keeping a pipe", errno);
  close_in_child(life_write_.get());
  if (const LentHeap* const lent = find_lent_heap()) {
    heap_ = SymmetricHeap::borrow(*lent);
    return Status::ok();
  }
  auto heap =
      config_.heap_bytes == 0 ? SymmetricHeap::create_default() : SymmetricHeap::create(config_.heap_bytes);
  TUTTI_TRY(heap.status());
  heap_ = *heap;
  return Status::ok();
}

/// A table that cannot be read must not stop programs that never asked for it.
void Process::read_tuned() {
  const auto files = topology::open_files();
  auto text = topology::find_tuned(machine_source(*files));
  const auto table = text ? ChoiceTable::parse(*text) : Result<ChoiceTable>(text.status());
  if (!table) {
    log_line("the measured table of this machine in " + config_.cache_folder +
             " is not used: " + std::string(table.status().text()));
  } else if (!table->rows().empty()) {
    tuned_text_ = std::move(*text);
  }
}

topology::MachineSource Process::machine_source(const topology::FileTree& files) {
  return {.file = config_.topology_file,
          .folder = config_.cache_folder,
          .files = files,
          .cpus = cgroup_cpus(),
          .detect = [this]() -> Result<topology::Detected> {
            if (!detected_) {
              auto found = topology::detect_this_machine("host");
              TUTTI_TRY(found.status());
              detected_ = std::move(*found);
            }
            return *detected_;
          }};
}

Result<topology::FoundMachine> Process::find_machine() {
  const auto files = topology::open_files();
  const std::scoped_lock lock(mutex_);
  return topology::find_machine(machine_source(*files));
}

Status Process::forked() {
  return {
      Code::kInvalidUsage,
      "this process was forked from one that had a communicator, a stream or memory of tutti, and a child "
      "cannot use them: exec, or fork before the first of them (an id may be made before)"};
}

uint64_t Process::add_segment(const std::shared_ptr<Segment>& segment) {
  const std::scoped_lock lock(mutex_);
  if (segments_.size() >= segments_before_sweep_) {
    std::erase_if(segments_, [](const auto& entry) { return entry.second.expired(); });
    segments_before_sweep_ = 2 * segments_.size() + 1;
  }
  segments_[++last_segment_key_] = segment;
  return last_segment_key_;
}

std::vector<std::shared_ptr<Segment>> Process::find_segments(std::span<const uint64_t> keys) {
  std::vector<std::shared_ptr<Segment>> segments;
  segments.reserve(keys.size());
  const std::scoped_lock lock(mutex_);
  for (const uint64_t key : keys) {
    const auto found = segments_.find(key);
    segments.push_back(found == segments_.end() ? nullptr : found->second.lock());
  }
  return segments;
}

void Process::leave_all() {
  if (!is_original()) return;
  const std::scoped_lock lock(mutex_);
  for (const auto& [key, segment] : segments_) {
    if (const auto live = segment.lock()) live->header().status.presence.store(StatusPage::kLeft);
  }
  for (const auto& plane : planes_) {
    if (const auto live = plane.lock()) live->leave_at_exit();
  }
}

void Process::add_communicator(const Peers* peers, const UniqueId& id) {
  {
    const std::scoped_lock lock(communicators_mutex_);
    communicators_.push_back(peers);
  }
  // Not under communicators_mutex_: the inspector may call report() at once.
  const std::scoped_lock lock(mutex_);
  if (inspector_ == nullptr) {
    inspector_ = Inspector::start(*control_, config_, id, [this] { return report(); });
  }
}

void Process::remove_communicator(const Peers* peers) {
  const std::scoped_lock lock(communicators_mutex_);
  std::erase(communicators_, peers);
}

std::string Process::report() {
  const std::scoped_lock lock(communicators_mutex_);
  std::string text = format("process %d, tutti %u: %zu communicator%s\n", getpid(), kVersionCode,
                            communicators_.size(), communicators_.size() == 1 ? "" : "s");
  for (const Peers* peers : communicators_) text += peers->report();
  return text;
}

Result<UniqueId> Process::make_id(bool network) {
  BootstrapServerOptions options;
  if (network) options.network = ListenOptions{config_.socket_ifname, config_.port_first, config_.port_last};
  options.remember_ms = config_.setup_timeout_ms;
  return servers_->open(options);
}

Result<Devices*> Process::devices() {
  const std::scoped_lock lock(mutex_);
  if (devices_ == nullptr) {
    auto found = Devices::find(config_.device_queues, config_.gpu_yield);
    TUTTI_TRY(found.status());
    devices_ = std::move(*found);
    devices_in_use_.store(devices_.get(), std::memory_order_release);
  }
  return devices_.get();
}

void Process::add_plane(const std::shared_ptr<ControlPlane>& plane) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(planes_, [](const auto& entry) { return entry.expired(); });
  planes_.push_back(plane);
}

std::string Process::file_server_name(const Token& token) {
  std::string name = "tutti-files-";
  for (const std::byte byte : token) name += format("%02x", std::to_integer<unsigned>(byte));
  return name;
}

Result<FileServer*> Process::file_server() {
  const std::scoped_lock lock(mutex_);
  if (file_server_ == nullptr) {
    auto server = FileServer::start(*control_, file_server_name(token_));
    TUTTI_TRY(server.status());
    file_server_ = std::move(*server);
  }
  return file_server_.get();
}

Result<std::shared_ptr<PeerHeap>> Process::peer_heap(const Token& token, const FileDescriptor& file,
                                                     size_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(peer_heaps_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = peer_heaps_[token];
  if (auto heap = known.lock()) return heap;
  auto mapping = map_memory(file, bytes);
  TUTTI_TRY(mapping.status());
  auto heap = std::make_shared<PeerHeap>(PeerHeap{std::move(*mapping)});
  known = heap;
  return heap;
}

}  // namespace tutti
