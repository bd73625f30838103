// A program with kernels of NCCL's device API, as nccl-tests has them. Against tutti's headers it compiles
// and links; it asks first, is told that there is no device API, and goes on with the host's collectives.
#include <nccl.h>
#include <nccl_device.h>

#include <cstdio>
#include <cstring>

// What tests/nccl relies on: NVIDIA's header brings CUDA's types.
static_assert(sizeof(__half) == 2 && sizeof(__nv_bfloat16) == 2, "half types");

namespace {

template <class T>
__global__ void sum_by_loads(ncclWindow_t send, size_t send_offset, ncclWindow_t recv, size_t recv_offset,
                             size_t count, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamLsa(comm), comm.lsaBarrier,
                                             blockIdx.x};
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  const size_t step = static_cast<size_t>(blockDim.x) * gridDim.x * comm.nRanks;
  for (size_t i = threadIdx.x + static_cast<size_t>(blockDim.x) * comm.rank; i < count; i += step) {
    T sum{};
    for (int peer = 0; peer < comm.nRanks; ++peer)
      sum += static_cast<T*>(ncclGetLsaPointer(send, send_offset, peer))[i];
    for (int peer = 0; peer < comm.nRanks; ++peer)
      static_cast<T*>(ncclGetLsaPointer(recv, recv_offset, peer))[i] = sum;
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_release);
}

template <class T>
__global__ void sum_in_the_switch(ncclWindow_t send, ncclWindow_t recv, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true};
  if (barrier.sync(ncclCoopCta(), cuda::memory_order_acquire, 1000) != ncclSuccess) return;
  *reinterpret_cast<T*>(ncclGetLsaMultimemPointer(recv, 0, comm)) =
      *reinterpret_cast<T*>(ncclGetLsaMultimemPointer(send, 0, comm));
  ncclLsaReduceSumLsaCopy<T>(
      ncclCoopCta(), [] __device__(int) -> T* { return nullptr; }, 1,
      [] __device__(int) -> T* { return nullptr; }, 1, size_t{1});
  ncclSymPtr<T> place(send, 16);
  place += 4;
  *place.localPtr() = *(place + 1).lsaPtr(0);
}

__global__ void exchange_by_network(ncclWindow_t send, ncclWindow_t recv, size_t bytes, ncclDevComm comm) {
  ncclGin gin{comm, 0};
  const unsigned signal = 0;
  const uint64_t before = gin.readSignal(signal);
  ncclBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), ncclTeamTagWorld(), gin, blockIdx.x};
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed, ncclGinFenceLevel::Relaxed);
  const ncclTeam world = ncclTeamWorld(comm);
  for (int peer = static_cast<int>(threadIdx.x); peer < world.nRanks; peer += static_cast<int>(blockDim.x)) {
    gin.put(world, peer, recv, world.rank * bytes, send, peer * bytes, bytes, ncclGin_SignalInc{signal});
  }
  gin.waitSignal(ncclCoopCta(), signal, before + world.nRanks);
  gin.flush(ncclCoopCta());
}

/// Loads and stores inside the host, the network beyond it.
template <class T>
__global__ void exchange_both_ways(ncclWindow_t send, ncclWindow_t recv, size_t count, ncclDevComm comm) {
  const ncclTeam world = ncclTeamWorld(comm);
  const ncclTeam near = ncclTeamLsa(comm);
  const int first = world.rank - near.rank;
  ncclGin gin{comm, 0};
  for (int peer = 0; peer < first; ++peer)
    gin.put(world, peer, recv, 0, send, 0, count * sizeof(T), ncclGin_SignalInc{0u});
  const T* mine = static_cast<T*>(ncclGetLocalPointer(send, 0));
  for (int peer = 0; peer < near.nRanks; ++peer)
    static_cast<T*>(ncclGetLsaPointer(recv, 0, peer))[threadIdx.x] =
        mine[(first + peer) * count + threadIdx.x];
}

/// What the benchmarks of the network from kernels name.
template <ncclGinResourceSharingMode kSharing>
__global__ void benchmark_the_network(ncclDevComm comm, ncclDevResourceHandle handle, ncclWindow_t host,
                                      size_t count) {
  const ncclTeam team = ncclTeamWorld(comm);
  ncclGin gin(comm, static_cast<int>(blockIdx.x), kSharing);
  ncclSymPtr<int> source = (ncclSymPtr<int>)ncclGetResourceBuffer(comm, handle);
  source += static_cast<size_t>(threadIdx.x) * count;
  ncclSymPtr<int> target = source;
  constexpr ncclGinCounter_t counter = 0;
  constexpr ncclGinSignal_t signal = 0;
  constexpr uint32_t flags = ncclGinOptFlagsDefault;
  gin.put(team, 1, target, source, count, ncclGin_None{}, ncclGin_WeakCounterInc{counter}, ncclCoopThread{},
          ncclGin_None{}, cuda::thread_scope_thread, cuda::thread_scope_thread,
          flags | ncclGinOptFlagsAggregateRequests | ncclGinOptFlagsMaySkipCreditCheck);
  gin.put(team, 1, target, source, count, ncclGin_StrongSignalInc{signal}, ncclGin_CounterInc{counter},
          ncclCoopThread{}, ncclGin_None{}, cuda::thread_scope_thread, cuda::thread_scope_thread, flags);
  gin.put(team, 1, target, source, count, ncclGin_WeakSignalInc{signal}, ncclGin_None{}, ncclCoopThread{},
          ncclGin_None{}, cuda::thread_scope_thread, cuda::thread_scope_thread, flags);
  gin.get(team, 1, host, source.offset, source.window, source.offset, count, ncclCoopThread{}, ncclGin_None{},
          flags);
  gin.signal(team, 1, ncclGin_SignalInc{signal});
  gin.waitCounter(ncclCoopCta{}, counter, 1);
  gin.waitSignal(ncclCoopThread{}, signal, 1);
  gin.flush(ncclCoopCta{});
  gin.resetCounter(counter);
  gin.resetSignal(signal);
}

bool check(bool condition, const char* what) {
  if (!condition) std::printf("wrong: %s (%s)\n", what, ncclGetLastError(nullptr));
  return condition;
}

}  // namespace

int main() {
  // Named, so that the compiler makes them.
  const void* kernels[] = {
      reinterpret_cast<const void*>(sum_by_loads<float>),
      reinterpret_cast<const void*>(sum_by_loads<__nv_bfloat16>),
      reinterpret_cast<const void*>(sum_in_the_switch<double>),
      reinterpret_cast<const void*>(exchange_by_network),
      reinterpret_cast<const void*>(exchange_both_ways<__half>),
      reinterpret_cast<const void*>(benchmark_the_network<NCCL_GIN_RESOURCE_SHARING_GPU>),
      reinterpret_cast<const void*>(benchmark_the_network<NCCL_GIN_RESOURCE_SHARING_CTA>),
      reinterpret_cast<const void*>(benchmark_the_network<NCCL_GIN_RESOURCE_SHARING_THREAD>)};
  ncclComm_t comm = nullptr;
  bool good = check(kernels[0] != nullptr && ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess, "set-up");
  if (!good) return 1;
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  good &= check(ncclCommQueryProperties(comm, &properties) == ncclSuccess, "properties");
  good &= check(!properties.deviceApiSupport && properties.ginType == NCCL_GIN_TYPE_NONE, "no device API");
  ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  requirements.lsaBarrierCount = 16;
  requirements.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  ncclDevComm device{};
  good &= check(ncclDevCommCreate(comm, &requirements, &device) == ncclInvalidUsage, "refused");
  good &=
      check(std::strstr(ncclGetLastError(comm), "device API is not implemented") != nullptr, "the reason");
  const ncclTeam_t all{8, 5, 1};
  const ncclTeam_t outer = ncclTeamOuterFactor(all, 4);
  const ncclTeam_t inner = ncclTeamInnerFactor(all, 4);
  good &= check(inner.rank == 1 && outer.rank == 1 && outer.stride == 4, "factors");
  good &= check(ncclTeamRankIsMember(outer, all, 1) && !ncclTeamRankIsMember(outer, all, 2), "membership");
  good &=
      check(ncclTeamRankInDifference(all, outer, 0) == 0 && ncclTeamRankInDifference(all, outer, 1) == 2 &&
                ncclTeamRankInDifference(all, outer, 5) == 7,
            "difference");
  float value = 3;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  good &=
      check(ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr, &config) == ncclSuccess,
            "the host's collective");
  good &= check(ncclCommDestroy(comm) == ncclSuccess, "destroy");
  if (good) std::printf("correct\n");
  return good ? 0 : 1;
}
