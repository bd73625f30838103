#include "tests/cuda/driver/kernels.h"

#include <array>
#include <cstring>

#include "engine/cuda/device.h"
#include "engine/cuda/multimem.h"
#include "tests/cuda/driver/test_kernels.h"
#include "tests/kernels/host_kernels.h"

namespace fake_cuda {
namespace {

namespace device = tutti::cuda::device;

void store(const StoreArgument& argument) {
  if (device::thread_index() == 0 && device::block_index() == 0)
    device::store_release(argument.to, argument.value);
}

void add(const AddArgument& argument) {
  device::add_acquire_release(argument.counter, 1);
}

/// Thread 0 polls, the block follows.
void wait_until(const uint32_t* flag, uint32_t wanted) {
  if (device::thread_index() == 0) {
    while (device::load_acquire(flag) < wanted) device::poll_failed("a flag", flag, false);
    device::wait_ended();
  }
  device::barrier("after a flag");
}

void hand_over(const HandOverArgument& argument) {
  if (device::block_index() != 0) return;
  wait_until(argument.flag, argument.wanted);
  if (device::thread_index() == 0) *argument.to = *argument.from;
}

void meet(const MeetArgument& argument) {
  if (device::thread_index() == 0) device::add_acquire_release(argument.counter, 1);
  wait_until(argument.counter, argument.blocks);
}

void collect(const CollectArgument& argument) {
  namespace reduce = tutti::reduce;
  if (device::thread_index() != 0 || device::block_index() != 0) return;
  device::alias_fence();
  device::barrier("the fence is made");
  const auto sum = device::LoadReduce<reduce::Element<float>, tutti::operators::Sum>::load(argument.from_all);
  device::store_packet(argument.to, sum);
  device::multimem_store_packet(argument.to_all, sum);
}

template <class Argument, void (*kKernel)(const Argument&)>
constexpr HostKernel entry(const char* name) {
  return {name, sizeof(Argument),
          [](const void* argument) { kKernel(*static_cast<const Argument*>(argument)); }};
}

void run(const tutti::cuda::Launch& launch) {
  tutti_run(launch);
}

void run_short(const tutti::cuda::Launch& launch) {
  tutti_short(launch);
}

constexpr std::array kKernels = {
    entry<tutti::cuda::Launch, run>("tutti_run"),
    entry<tutti::cuda::Launch, run_short>("tutti_short"),
    entry<StoreArgument, store>("fake_store"),
    entry<AddArgument, add>("fake_add"),
    entry<HandOverArgument, hand_over>("fake_hand_over"),
    entry<MeetArgument, meet>("fake_meet"),
    entry<CollectArgument, collect>("fake_collect"),
    HostKernel{"tutti_nothing", 0, [](const void*) {}},
};

}  // namespace

const HostKernel* find_host_kernel(const char* name) {
  for (const HostKernel& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace fake_cuda
