// The driver's functions on devices, contexts and errors.
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/streams.h"

using fake_cuda::Context;
using fake_cuda::current_context;
using fake_cuda::Device;
using fake_cuda::Guard;
using fake_cuda::machine;
using fake_cuda::settings;

namespace {

struct ErrorName {
  CUresult code;
  const char* name;
};

#define FAKE_ERROR(code) \
  { code, #code }
constexpr ErrorName kErrors[] = {
    FAKE_ERROR(CUDA_SUCCESS),
    FAKE_ERROR(CUDA_ERROR_INVALID_VALUE),
    FAKE_ERROR(CUDA_ERROR_OUT_OF_MEMORY),
    FAKE_ERROR(CUDA_ERROR_NOT_INITIALIZED),
    FAKE_ERROR(CUDA_ERROR_DEINITIALIZED),
    FAKE_ERROR(CUDA_ERROR_STUB_LIBRARY),
    FAKE_ERROR(CUDA_ERROR_NO_DEVICE),
    FAKE_ERROR(CUDA_ERROR_INVALID_DEVICE),
    FAKE_ERROR(CUDA_ERROR_INVALID_IMAGE),
    FAKE_ERROR(CUDA_ERROR_INVALID_CONTEXT),
    FAKE_ERROR(CUDA_ERROR_MAP_FAILED),
    FAKE_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU),
    FAKE_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
    FAKE_ERROR(CUDA_ERROR_OPERATING_SYSTEM),
    FAKE_ERROR(CUDA_ERROR_INVALID_HANDLE),
    FAKE_ERROR(CUDA_ERROR_ILLEGAL_STATE),
    FAKE_ERROR(CUDA_ERROR_NOT_FOUND),
    FAKE_ERROR(CUDA_ERROR_NOT_READY),
    FAKE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
    FAKE_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
    FAKE_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    FAKE_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
    FAKE_ERROR(CUDA_ERROR_INVALID_PTX),
    FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
    FAKE_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    FAKE_ERROR(CUDA_ERROR_LAUNCH_FAILED),
    FAKE_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    FAKE_ERROR(CUDA_ERROR_NOT_PERMITTED),
    FAKE_ERROR(CUDA_ERROR_NOT_SUPPORTED),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
    FAKE_ERROR(CUDA_ERROR_CAPTURED_EVENT),
    FAKE_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
    FAKE_ERROR(CUDA_ERROR_UNKNOWN),
};

/// The context behind a handle that is retained; null: it is none.
Context* find_context(CUcontext handle) {
  for (const auto& device : machine().devices) {
    Context& context = device->context();
    if (reinterpret_cast<CUcontext>(&context) == handle && context.retained > 0) return &context;
  }
  return nullptr;
}

CUcontext handle_of(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
  Guard guard;
  const CUresult result = fake_cuda::enter("cuInit", guard);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (machine().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  machine().initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = settings().version;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  for (const ErrorName& known : kErrors) {
    if (known.code != error) continue;
    *text = known.name;
    return CUDA_SUCCESS;
  }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const CUresult result = cuGetErrorName(error, text);
  if (result == CUDA_SUCCESS) *text = "an error of the fake driver";
  return result;
}

CUresult cuDeviceGetCount(int* count) {
  FAKE_CALL(cuDeviceGetCount);
  *count = static_cast<int>(machine().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CALL(cuDeviceGet);
  if (machine().device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice ordinal) {
  FAKE_CALL(cuDeviceGetName);
  const Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(bytes), "%s", device->name().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  FAKE_CALL(cuDeviceGetUuid);
  const Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = device->uuid();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice ordinal) {
  FAKE_CALL(cuDeviceGetPCIBusId);
  const Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(text, static_cast<size_t>(bytes), "%s", device->pci_bus_id().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice ordinal) {
  FAKE_CALL(cuDeviceTotalMem);
  if (machine().device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = settings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice ordinal) {
  FAKE_CALL(cuDeviceGetAttribute);
  const Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *value = device->attribute(which);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  FAKE_CALL(cuDeviceCanAccessPeer);
  const Device* one = machine().device(ordinal);
  const Device* other = machine().device(peer);
  if (one == nullptr || other == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  // As the driver answers for a device and itself.
  *can = one != other && one->reaches(other->number()) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
  FAKE_CALL(cuDevicePrimaryCtxRetain);
  Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = device->context();
  ++context.retained;
  if (context.legacy == nullptr) context.legacy = fake_cuda::make_stream(context, true);
  *handle = handle_of(&context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  FAKE_CALL(cuDevicePrimaryCtxRelease);
  Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->context().retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --device->context().retained;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  FAKE_CALL(cuDevicePrimaryCtxGetState);
  Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = device->context().retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int /*flags*/) {
  FAKE_CALL(cuDevicePrimaryCtxSetFlags);
  return machine().device(ordinal) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  FAKE_CALL(cuCtxSetCurrent);
  Context* context = find_context(handle);
  if (handle != nullptr && context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = fake_cuda::context_stack();
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  FAKE_CALL_IN_CONTEXT(cuCtxGetFlags);
  *flags = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext /*context*/, unsigned int* version) {
  FAKE_CALL(cuCtxGetApiVersion);
  *version = static_cast<unsigned>(settings().version);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CALL_IN_CONTEXT(cuCtxGetStreamPriorityRange);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  FAKE_CALL_IN_CONTEXT(cuCtxGetLimit);
  *value = limit == CU_LIMIT_STACK_SIZE ? 1024 : limit == CU_LIMIT_PRINTF_FIFO_SIZE ? 1 << 20 : 8 << 20;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit /*limit*/, size_t /*value*/) {
  FAKE_CALL_IN_CONTEXT(cuCtxSetLimit);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache /*config*/) {
  FAKE_CALL_IN_CONTEXT(cuCtxSetCacheConfig);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext handle) {
  FAKE_CALL(cuCtxPushCurrent);
  Context* context = find_context(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  fake_cuda::context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* handle) {
  FAKE_CALL_IN_CONTEXT(cuCtxPopCurrent);
  if (handle != nullptr) *handle = handle_of(context);
  fake_cuda::context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  FAKE_CALL(cuCtxGetCurrent);
  *handle = handle_of(current_context());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CALL_IN_CONTEXT(cuCtxGetDevice);
  *device = context->device->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  FAKE_UNSAFE_CALL(cuCtxSynchronize);
  context->device->wait_idle(guard);
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  FAKE_CALL_IN_CONTEXT(cuCtxDisablePeerAccess);
  Context* peer = find_context(handle);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return machine().peers.erase({context->device, peer->device}) > 0 ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to) {
  FAKE_CALL(cuDeviceGetP2PAttribute);
  const Device* one = machine().device(from);
  const Device* other = machine().device(to);
  if (one == nullptr || other == nullptr || one == other) return CUDA_ERROR_INVALID_DEVICE;
  *value = which == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : one->reaches(other->number()) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* text) {
  FAKE_CALL(cuDeviceGetByPCIBusId);
  for (const auto& device : machine().devices) {
    if (strcasecmp(device->pci_bus_id().c_str(), text) != 0) continue;
    *ordinal = device->ordinal();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  FAKE_CALL_IN_CONTEXT(cuCtxEnablePeerAccess);
  Context* peer = find_context(handle);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->device->reaches(peer->device->number())) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const bool added = machine().peers.emplace(context->device, peer->device).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

}  // extern "C"
