// cuGetProcAddress: how programs find the functions of the driver.
#include <array>
#include <cstring>

// First: it says which functions of cuda.h are exported.
#include "tests/cuda/driver/cuda_api.h"

#include "cuda/functions.h"
#include "tests/cuda/driver/settings.h"

namespace {

struct EntryPoint {
  const char* name;
  void* function;
};

// That it compiles shows that each function of the fake has the driver's type.
#define FAKE_ENTRY_POINT(member, function, type) \
  {#function, reinterpret_cast<void*>(static_cast<type>(&function))},
const EntryPoint kEntryPoints[] = {TUTTI_CUDA_FUNCTIONS(FAKE_ENTRY_POINT) TUTTI_CUDA_MULTICAST_FUNCTIONS(
    FAKE_ENTRY_POINT) TUTTI_CUDA_CARD_FUNCTIONS(FAKE_ENTRY_POINT)};
#undef FAKE_ENTRY_POINT

/// What programs and the CUDA runtime call besides.
#define FAKE_MORE(function) \
  { #function, reinterpret_cast < void*>(&function) }
const EntryPoint kMore[] = {
    FAKE_MORE(cuGetProcAddress),
    FAKE_MORE(cuDeviceGetP2PAttribute),
    FAKE_MORE(cuDeviceGetByPCIBusId),
    FAKE_MORE(cuDevicePrimaryCtxGetState),
    FAKE_MORE(cuDevicePrimaryCtxSetFlags),
    FAKE_MORE(cuCtxSetCurrent),
    FAKE_MORE(cuCtxGetFlags),
    FAKE_MORE(cuCtxGetApiVersion),
    FAKE_MORE(cuCtxGetStreamPriorityRange),
    FAKE_MORE(cuCtxGetLimit),
    FAKE_MORE(cuCtxSetLimit),
    FAKE_MORE(cuCtxSetCacheConfig),
    FAKE_MORE(cuCtxDisablePeerAccess),
    FAKE_MORE(cuModuleLoadData),
    FAKE_MORE(cuModuleLoadDataEx),
    FAKE_MORE(cuModuleLoadFatBinary),
    FAKE_MORE(cuModuleUnload),
    FAKE_MORE(cuModuleGetFunction),
    FAKE_MORE(cuModuleGetGlobal),
    FAKE_MORE(cuModuleGetLoadingMode),
    FAKE_MORE(cuLibraryGetModule),
    FAKE_MORE(cuLibraryGetGlobal),
    FAKE_MORE(cuLibraryGetManaged),
    FAKE_MORE(cuKernelGetName),
    FAKE_MORE(cuFuncGetName),
    FAKE_MORE(cuFuncSetAttribute),
    FAKE_MORE(cuFuncSetCacheConfig),
    FAKE_MORE(cuFuncLoad),
    FAKE_MORE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
    FAKE_MORE(cuOccupancyAvailableDynamicSMemPerBlock),
    FAKE_MORE(cuLaunchKernel),
    FAKE_MORE(cuLaunchCooperativeKernel),
    FAKE_MORE(cuMemAllocPitch),
    FAKE_MORE(cuMemHostGetDevicePointer),
    FAKE_MORE(cuMemHostGetFlags),
    FAKE_MORE(cuMemAllocAsync),
    FAKE_MORE(cuMemAllocFromPoolAsync),
    FAKE_MORE(cuMemFreeAsync),
    FAKE_MORE(cuDeviceGetDefaultMemPool),
    FAKE_MORE(cuDeviceGetMemPool),
    FAKE_MORE(cuDeviceSetMemPool),
    FAKE_MORE(cuMemPoolCreate),
    FAKE_MORE(cuMemPoolDestroy),
    FAKE_MORE(cuMemPoolSetAttribute),
    FAKE_MORE(cuMemPoolGetAttribute),
    FAKE_MORE(cuMemPoolTrimTo),
    FAKE_MORE(cuMemPoolSetAccess),
    FAKE_MORE(cuMemcpy),
    FAKE_MORE(cuMemcpyHtoD),
    FAKE_MORE(cuMemcpyDtoH),
    FAKE_MORE(cuMemcpyDtoD),
    FAKE_MORE(cuMemcpyHtoDAsync),
    FAKE_MORE(cuMemcpyDtoHAsync),
    FAKE_MORE(cuMemcpyDtoDAsync),
    FAKE_MORE(cuMemcpyPeer),
    FAKE_MORE(cuMemcpyPeerAsync),
    FAKE_MORE(cuMemcpy2D),
    FAKE_MORE(cuMemcpy2DUnaligned),
    FAKE_MORE(cuMemcpy2DAsync),
    FAKE_MORE(cuMemcpy3D),
    FAKE_MORE(cuMemcpy3DAsync),
    FAKE_MORE(cuMemsetD8),
    FAKE_MORE(cuMemsetD16),
    FAKE_MORE(cuMemsetD32),
    FAKE_MORE(cuMemsetD16Async),
    FAKE_MORE(cuMemsetD32Async),
    FAKE_MORE(cuMemsetD2D8),
    FAKE_MORE(cuMemsetD2D8Async),
    FAKE_MORE(cuStreamCreateWithPriority),
    FAKE_MORE(cuStreamGetPriority),
    FAKE_MORE(cuStreamGetFlags),
    FAKE_MORE(cuStreamGetId),
    FAKE_MORE(cuStreamGetDevice),
    FAKE_MORE(cuStreamAddCallback),
    FAKE_MORE(cuEventRecordWithFlags),
    FAKE_MORE(cuGraphCreate),
    FAKE_MORE(cuGraphAddKernelNode),
    FAKE_MORE(cuGraphAddMemcpyNode),
    FAKE_MORE(cuGraphAddMemsetNode),
    FAKE_MORE(cuGraphAddHostNode),
    FAKE_MORE(cuGraphAddEmptyNode),
    FAKE_MORE(cuGraphAddChildGraphNode),
    FAKE_MORE(cuGraphGetNodes),
    FAKE_MORE(cuGraphNodeGetType),
    FAKE_MORE(cuGraphClone),
    FAKE_MORE(cuGraphUpload),
    FAKE_MORE(cuGraphExecUpdate),
};
#undef FAKE_MORE

}  // namespace

extern "C" CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t /*flags*/,
                                        CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr || version > fake_cuda::settings().version)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  for (const EntryPoint& known : kEntryPoints) {
    if (std::strcmp(known.name, name) == 0) *function = known.function;
  }
  for (const EntryPoint& known : kMore) {
    if (std::strcmp(known.name, name) == 0) *function = known.function;
  }
  const bool found = *function != nullptr;
  if (status != nullptr) *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
