#include "perf/seating.h"

#include <optional>
#include <string>
#include <utility>

namespace tutti::perf {
namespace {

/// This process among those of its host.
struct LocalPlace {
  std::optional<int> process;
  int count = 1;  ///< as far as it is known
};

LocalPlace local_place(const Place& place) {
  switch (place.channel) {
    case Place::Channel::kNone: return {.process = 0};
    case Place::Channel::kPipe: return {.process = place.process, .count = place.process_count};
    default: break;
  }
  const LaunchContext& launch = place.launch;
  if (launch.local_rank) {
    const auto process = static_cast<int>(*launch.local_rank);
    return {.process = process,
            .count = static_cast<int>(launch.local_count.value_or(*launch.local_rank + 1))};
  }
  if (launch.is_one_host()) return {.process = place.process, .count = place.process_count};
  return {};
}

Result<int> find_first_device(const Options& options, const Place& place, int device_count) {
  const int per_process = options.threads * options.gpus;
  const LocalPlace local = local_place(place);
  if (!options.first_device && !local.process)
    return Status(
        Code::kInvalidUsage,
        "which of its host's processes this is, and so which CUDA device is its own, the environment "
        "does not say: set LOCAL_RANK, or NCCL_TESTS_DEVICE to its first device, or use --memory host");
  const int first = options.first_device.value_or(local.process.value_or(0) * per_process);
  const int end = options.first_device ? first + per_process : local.count * per_process;
  if (end > device_count)
    return Status(
        Code::kInvalidUsage,
        format(
            "Invalid number of GPUs: -t %d x -g %d of %d processes on this host request devices up to %d, "
            "but "
            "%d %s found; --ranks-per-gpu puts several ranks on a device, NCCL_TESTS_DEVICE=0 every process "
            "on device 0, --memory host all into host memory",
            options.threads, options.gpus, local.count, end - 1, device_count,
            device_count == 1 ? "was" : "were"));
  return first;
}

}  // namespace

Result<Seating> Seating::choose(Options& options, const Place& place) {
  Seating seating;
  if (options.memory != Memory::kHost) {
    Result<std::unique_ptr<CudaDevices>> devices = CudaDevices::find();
    if (devices) {
      const Result<int> first = find_first_device(options, place, (*devices)->count());
      if (!first) return first.status();
      seating.first_device_ = *first;
      seating.devices_ = std::move(*devices);
    } else if (options.memory == Memory::kCuda) {
      return devices.status();
    } else {
      options.notes.insert(options.notes.begin(), "no CUDA device: host memory (--memory cuda says why)");
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
