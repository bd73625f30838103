#include "perf/seating.h"

#include <optional>
#include <string>
#include <utility>

namespace tutti::perf {
namespace {

/// The index of this process on its host.
struct LocalProcess {
  std::optional<int> process;
  int count = 1;  ///< as far as known
};

LocalProcess find_local_process(const ProcessContext& context) {
  switch (context.channel) {
    case ProcessContext::Channel::kNone: return {.process = 0};
    case ProcessContext::Channel::kPipe: return {.process = context.process, .count = context.process_count};
    default: break;
  }
  const LaunchContext& launch = context.launch;
  if (launch.local_rank) {
    const auto process = static_cast<int>(*launch.local_rank);
    return {.process = process,
            .count = static_cast<int>(launch.local_count.value_or(*launch.local_rank + 1))};
  }
  if (launch.is_one_host()) return {.process = context.process, .count = context.process_count};
  return {};
}

Result<int> find_first_device(const Options& options, const ProcessContext& context, int device_count) {
  const int per_process = options.threads * options.gpus;
  const LocalProcess local = find_local_process(context);
  if (!options.first_device && !local.process)
    return Status(
        Code::kInvalidUsage,
        "the environment does not tell this process's number on its host, which chooses its CUDA device: "
        "set LOCAL_RANK, or NCCL_TESTS_DEVICE to its first device, or use --memory host");
  const int first = options.first_device.value_or(local.process.value_or(0) * per_process);
  const int end = options.first_device ? first + per_process : local.count * per_process;
  if (end > device_count)
    return Status(
        Code::kInvalidUsage,
        format("Invalid number of GPUs: -t %d x -g %d of %d processes on this host request devices up to %d, "
               "but "
               "%d %s found; --ranks-per-gpu puts several ranks on a device, NCCL_TESTS_DEVICE=0 puts every "
               "process on device 0, --memory host puts all ranks in host memory",
               options.threads, options.gpus, local.count, end - 1, device_count,
               device_count == 1 ? "was" : "were"));
  return first;
}

}  // namespace

Result<Seating> Seating::choose(Options& options, const ProcessContext& context) {
  Seating seating;
  if (options.memory != Memory::kHost) {
    Result<std::unique_ptr<CudaDevices>> devices = CudaDevices::find();
    if (devices) {
      const Result<int> first = find_first_device(options, context, (*devices)->count());
      if (!first) return first.status();
      seating.first_device_ = *first;
      seating.devices_ = std::move(*devices);
    } else if (options.memory == Memory::kCuda) {
      return devices.status();
    } else {
      options.notes.insert(options.notes.begin(),
                           "no CUDA device: host memory (--memory cuda prints the reason)");
    }
  }
  const std::string mistake = settle_flags(options, seating.on_devices());
  if (!mistake.empty()) return Status(Code::kInvalidUsage, mistake);
  return seating;
}

Result<std::unique_ptr<Site>> Seating::open(const Options& options, int thread, int index) const {
  if (!on_devices()) return open_host_site(options.stream);
  return devices_->open(device_of(options, thread, index), options.null_stream);
}

}  // namespace tutti::perf
