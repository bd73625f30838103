#include "api/create.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "algorithms/algorithm.h"
#include "bootstrap/bootstrap.h"
#include "comm/process.h"
#include "core/clock.h"
#include "core/thread.h"

namespace tutti {
namespace {

/// CommOptions::device of a rank in host memory.
constexpr int kHostMemory = -1;

}  // namespace

void decline(Process* process, const UniqueId& id, int rank_count, int rank, const Status& why) {
  if (rank_count == 1) return;
  const Config config = process != nullptr ? process->config() : read_bootstrap_config(process_environment());
  const BootstrapOptions options{.id = id,
                                 .rank_count = static_cast<uint32_t>(rank_count),
                                 .rank = static_cast<uint32_t>(rank),
                                 .deadline_ns = deadline_after_ms(config.setup_timeout_ms)};
  const Status told(why.code(),
                    format("rank %d cannot take part: %s", rank, std::string(why.text()).c_str()));
  Bootstrap::decline(options, config, told);
  if (process != nullptr) process->bootstrap_servers().stay(options, told);
}

Result<Process*> bootstrap_process() {
  auto process = Process::for_bootstrap();
  TUTTI_TRY(process.status());
  if (!(*process)->is_original()) return Process::forked();
  return process;
}

Result<Process*> original_process() {
  TUTTI_TRY(bootstrap_process().status());
  return Process::instance();
}

Status aborted_meanwhile() {
  return {Code::kAborted, "the communicator was aborted by another thread"};
}

Status read_comm_config(const tutti_config_t* given, const Config& config, CommOptions& options,
                        bool& nonblocking) {
  tutti_config_t all = TUTTI_CONFIG_INIT;
  if (given != nullptr) {
    if (given->size < sizeof(size_t) || given->size > 65536) {
      return {Code::kInvalidArgument,
              format("config.size is %zu: start from TUTTI_CONFIG_INIT", given->size)};
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(given);
    for (size_t i = sizeof(all); i < given->size; ++i) {
      if (bytes[i] != std::byte{0}) {
        return {Code::kUnsupported, "config sets a field that this version of tutti does not know"};
      }
    }
    std::memcpy(&all, given, std::min(given->size, sizeof(all)));
  }
  if (all.device != 0 && all.device != kHostMemory && all.device < TUTTI_CUDA_DEVICE(0)) {
    return {Code::kInvalidArgument,
            format("config.device is %d: 0 for host memory, or TUTTI_CUDA_DEVICE(n) for CUDA device n",
                   all.device)};
  }
  if (all.threads < 0 || all.threads > static_cast<int>(kMaxThreads)) {
    return {Code::kInvalidArgument,
            format("config.threads is %d: it must be 0 (default) to %u", all.threads, kMaxThreads)};
  }
  if ((all.nonblocking | 1) != 1 || (all.reproducible | 1) != 1) {
    return {Code::kInvalidArgument, "config.nonblocking and config.reproducible must be 0 or 1"};
  }
  if (all.algorithm != nullptr && !is_algorithm(all.algorithm)) {
    return {Code::kInvalidArgument,
            format("config.algorithm is \"%.64s\"; no collective has an algorithm of that name: tutti-plan "
                   "--list shows them",
                   all.algorithm)};
  }
  options.device = all.device >= TUTTI_CUDA_DEVICE(0) ? all.device - TUTTI_CUDA_DEVICE(0) : kHostMemory;
  options.reproducible = all.reproducible != 0 || config.reproducible;
  options.threads = all.threads > 0 ? static_cast<uint32_t>(all.threads) : config.threads;
  options.timeout_ms = all.timeout_ms > 0 ? all.timeout_ms : config.timeout_ms;
  options.setup_timeout_ms = all.setup_timeout_ms > 0 ? all.setup_timeout_ms : config.setup_timeout_ms;
  options.algorithm = all.algorithm != nullptr ? all.algorithm : config.algorithm;
  nonblocking = all.nonblocking != 0;
  return Status::ok();
}

Status check_comm_config(const tutti_config_t* given, const Config& config) {
  CommOptions options;
  bool nonblocking = false;
  return read_comm_config(given, config, options, nonblocking);
}

tutti_config_t inherited_config(const Communicator& comm) {
  tutti_config_t inherited = TUTTI_CONFIG_INIT;
  if (comm.options().device != kHostMemory) inherited.device = TUTTI_CUDA_DEVICE(comm.options().device);
  inherited.reproducible = comm.options().reproducible ? 1 : 0;
  inherited.threads = static_cast<int>(comm.options().threads);
  inherited.timeout_ms = comm.options().timeout_ms;
  inherited.setup_timeout_ms = comm.options().setup_timeout_ms;
  if (!comm.options().algorithm.empty()) inherited.algorithm = comm.options().algorithm.c_str();
  return inherited;
}

Status create_into(tutti_comm* handle, Process& process, const UniqueId& id, int rank_count, int rank,
                   const CommOptions& options, BootstrapStop* stop) {
  const Status made = contained([&]() -> Status {
    auto comm = Communicator::create(process, id, static_cast<uint32_t>(rank_count),
                                     static_cast<uint32_t>(rank), options, stop);
    TUTTI_TRY(comm.status());
    handle->comm = std::move(*comm);
    return Status::ok();
  });
  if (!made) handle->setup_failure = made;
  handle->state.store(made ? tutti_comm::State::kReady : tutti_comm::State::kFailed,
                      std::memory_order_release);
  return made;
}

Status create_comm(tutti_comm_t** result, int rank_count, const UniqueId& id, int rank,
                   const tutti_config_t* config, const tutti_comm* parent) {
  if (result == nullptr) return null_argument("comm");
  *result = nullptr;
  if (rank_count < 1 || rank_count > static_cast<int>(kMaxCommRanks)) {
    return {Code::kInvalidArgument,
            format("argument rank_count is %d: it must be 1 to %u", rank_count, kMaxCommRanks)};
  }
  if (rank < 0 || rank >= rank_count) {
    return {Code::kInvalidArgument, format("argument rank is %d: it must be 0 to %d", rank, rank_count - 1)};
  }
  TUTTI_TRY(check_unique_id(id));
  const auto bootstrap = bootstrap_process();
  if (!bootstrap) decline(nullptr, id, rank_count, rank, bootstrap.status());
  TUTTI_TRY(bootstrap.status());
  const auto process = Process::instance();
  if (!process) decline(*bootstrap, id, rank_count, rank, process.status());
  TUTTI_TRY(process.status());
  CommOptions options;
  bool nonblocking = false;
  TUTTI_TRY(read_comm_config(config, (*process)->config(), options, nonblocking));
  tutti_comm* handle = acquire_handle();
  if (nonblocking) {
    const Status started =
        start_thread(handle->setup, "the set-up thread of a communicator", [=, process = *process] {
          static_cast<void>(
              create_into(handle, *process, id, rank_count, rank, options, handle->setup_stop.get()));
        });
    if (!started) {
      recycle_handle(handle);
      decline(*process, id, rank_count, rank, started);
      return started;
    }
    *result = handle;
    return {Code::kInProgress, "the communicator is being created: poll tutti_comm_async_error"};
  }
  BootstrapStop* const stop = (parent != nullptr ? parent : handle)->setup_stop.get();
  const Status created = create_into(handle, **process, id, rank_count, rank, options, stop);
  if (!created) {
    recycle_handle(handle);
    // The set-up itself only saw a closed connection.
    if (parent != nullptr && parent->setup_stop->is_stopped()) return aborted_meanwhile();
    return created;
  }
  *result = handle;
  return Status::ok();
}

}  // namespace tutti
