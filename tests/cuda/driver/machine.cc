#include "tests/cuda/driver/machine.h"

#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/streams.h"

namespace fake_cuda {

Machine::Machine() {
  const auto& numbers = settings().devices;
  for (size_t i = 0; i < numbers.size(); ++i) {
    devices.push_back(std::make_unique<Device>(static_cast<CUdevice>(i), numbers[i]));
  }
}

Machine::~Machine() = default;

Device* Machine::device(CUdevice ordinal) const {
  const bool exists = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
  return exists ? devices[static_cast<size_t>(ordinal)].get() : nullptr;
}

Machine& machine() {
  static auto* const kOnly = new Machine;
  return *kOnly;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

CUresult enter(const char* function, Guard& guard) {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  guard = Guard(machine().lock);
  for (const Fault& fault : settings().faults) {
    if (fault.function == function && ++machine().calls[fault.function] >= fault.after) return fault.result;
  }
  return machine().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

std::vector<std::string> list_leaks() {
  static constexpr const char* kOrigins[] = {
      "cuMemAlloc",          "cuMemAllocManaged", "cuMemHostAlloc",     "cuMemHostRegister",
      "cuMemAddressReserve", "cuMemMap",          "cuIpcOpenMemHandle", "",
      "cuMemAllocAsync"};
  std::vector<std::string> found;
  Machine& all = machine();
  for (const auto* ranges : {&all.memory.ranges(), &all.memory.reservations()}) {
    for (const auto& [base, range] : *ranges) {
      if (range.origin == Origin::kModule) continue;  // goes with its library
      found.push_back(std::string(kOrigins[static_cast<size_t>(range.origin)]) + ": " +
                      std::to_string(range.bytes) + " bytes of device " + std::to_string(range.device));
    }
  }
  const auto count = [&](const char* what, size_t number) {
    if (number > 0) found.push_back(std::string(what) + ": " + std::to_string(number));
  };
  count("cuMemCreate", all.allocations.count());
  count("cuStreamCreate", all.streams.count());
  count("cuEventCreate", all.events.count());
  count("cuStreamEndCapture", all.graphs.count());
  count("cuGraphInstantiate", all.executables.count());
  count("cuLibraryLoadData", all.libraries.count());
  for (const auto& device : all.devices) {
    count("cuDevicePrimaryCtxRetain", static_cast<size_t>(device->context().retained));
  }
  return found;
}

namespace {

/// At the end of the process: no thread of a device outlives it, and what was left behind is told.
__attribute__((destructor)) void finish() {
  Guard guard(machine().lock);
  for (const auto& device : machine().devices) device->stop(guard);
  if (!settings().report_leaks) return;
  const std::vector<std::string> left = list_leaks();
  for (const std::string& line : left) std::fprintf(stderr, "fake driver: left behind: %s\n", line.c_str());
  if (!left.empty()) _exit(86);
}

}  // namespace
}  // namespace fake_cuda

extern "C" __attribute__((visibility("default"))) const char* fake_cuda_leaks() {
  static thread_local std::string text;
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  text.clear();
  for (const std::string& line : fake_cuda::list_leaks()) text += line + "\n";
  return text.c_str();
}

extern "C" __attribute__((visibility("default"))) bool fake_cuda_guards_memory() {
  return fake_cuda::machine().memory.has_keys();
}

/// How often the bytes occur in memory of devices that processes share by file.
extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_count_shared(const void* pattern,
                                                                                  size_t bytes) {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  const fake_cuda::AddressSpace& memory = fake_cuda::machine().memory;
  memory.let_in_everywhere(true);
  uint64_t count = 0;
  for (const auto& [base, range] : memory.ranges()) {
    if (range.origin != fake_cuda::Origin::kMapped) continue;
    const std::string_view all(reinterpret_cast<const char*>(base), range.bytes);
    const std::string_view wanted(static_cast<const char*>(pattern), bytes);
    for (size_t at = all.find(wanted); at != all.npos; at = all.find(wanted, at + 1)) ++count;
  }
  memory.let_in_everywhere(false);
  return count;
}

extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_crossed_bytes() {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  return fake_cuda::machine().crossed_bytes;
}

extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_card_flushes() {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  return fake_cuda::machine().card_flushes;
}

extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_loads() {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  return fake_cuda::machine().loads;
}

extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_launches(const char* kernel) {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  return fake_cuda::machine().launches[kernel];
}

extern "C" __attribute__((visibility("default"))) uint64_t fake_cuda_cooperative_launches() {
  const fake_cuda::Guard guard(fake_cuda::machine().lock);
  return fake_cuda::machine().cooperative_launches;
}
