// The driver's functions that copy and fill memory.
#include <algorithm>
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/streams.h"
#include "tests/cuda/driver/tasks.h"

using fake_cuda::AddressSpace;
using fake_cuda::CopyTask;
using fake_cuda::FillTask;
using fake_cuda::Guard;
using fake_cuda::machine;
using fake_cuda::Range;
using fake_cuda::settings;
using fake_cuda::Stream;

namespace {

/// The device, by its number in the machine, whose memory the address is in; -1: the host's.
int device_number(uintptr_t address) {
  const Range* range = machine().memory.find(address);
  return range != nullptr && range->is_on_device() ? range->device : -1;
}

bool is_broken(int one, int other) {
  return one >= 0 && other >= 0 && one != other && fake_cuda::holds(settings().broken_peer, one, other);
}

/// Bytes from the first to behind the last.
size_t extent(const CopyTask& task, size_t pitch, size_t slice) {
  return (task.slices - 1) * slice + (task.rows - 1) * pitch + task.bytes;
}

void stage(CopyTask& task) {
  task.staged.resize(task.slices * task.rows * task.bytes);
  unsigned char* to = task.staged.data();
  for (size_t slice = 0; slice < task.slices; ++slice) {
    for (size_t row = 0; row < task.rows; ++row, to += task.bytes) {
      const uintptr_t from = task.source + slice * task.source_slice + row * task.source_pitch;
      std::memcpy(to, reinterpret_cast<const void*>(from), task.bytes);
    }
  }
  task.source_pitch = task.bytes;
  task.source_slice = task.bytes * task.rows;
}

CUresult submit_copy(CUstream handle, CopyTask task, Guard& guard) {
  Stream* stream = fake_cuda::find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (task.bytes == 0 || task.rows == 0 || task.slices == 0) return CUDA_SUCCESS;
  AddressSpace& memory = machine().memory;
  const bool pageable_source = memory.find(task.source) == nullptr;
  const bool pageable_target = memory.find(task.target) == nullptr;
  if (!pageable_source && !memory.covers(task.source, extent(task, task.source_pitch, task.source_slice)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!pageable_target && !memory.covers(task.target, extent(task, task.target_pitch, task.target_slice)))
    return CUDA_ERROR_INVALID_VALUE;
  const int own = stream->device->number();
  const int from = device_number(task.source);
  const int to = device_number(task.target);
  task.corrupt = is_broken(from, to) || is_broken(own, from) || is_broken(own, to);
  if ((from < 0) != (to < 0)) machine().crossed_bytes += extent(task, task.bytes, task.bytes * task.rows);
  task.source = memory.view(task.source);
  task.target = memory.view(task.target);
  const bool captured = stream->capture != nullptr;
  if (pageable_source && !captured) stage(task);
  const CUresult result = fake_cuda::submit(*stream, std::move(task));
  // What goes to pageable memory has arrived when the call returns.
  if (result == CUDA_SUCCESS && pageable_target && !captured)
    fake_cuda::wait_for(fake_cuda::TokenPointer(stream->last), guard);
  return result;
}

CUresult submit_fill(CUstream handle, FillTask task) {
  Stream* stream = fake_cuda::find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (task.bytes == 0 || task.rows == 0) return CUDA_SUCCESS;
  if (!machine().memory.covers(task.target, (task.rows - 1) * task.pitch + task.bytes) ||
      task.target % task.value_bytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  task.target = machine().memory.view(task.target);
  return fake_cuda::submit(*stream, task);
}

/// Waits for what the stream was given.
CUresult finish(CUresult result, CUstream handle, Guard& guard) {
  const Stream* stream = fake_cuda::find_stream(handle);
  if (result == CUDA_SUCCESS && stream != nullptr)
    fake_cuda::wait_for(fake_cuda::TokenPointer(stream->last), guard);
  return result;
}

CopyTask flat(uintptr_t target, uintptr_t source, size_t bytes) {
  CopyTask task;
  task.target = target;
  task.source = source;
  task.bytes = bytes;
  return task;
}

}  // namespace

CUresult fake_cuda::make_copy_task(const CUDA_MEMCPY3D& copy, CopyTask& task) {
  const auto base = [](CUmemorytype type, const void* host, CUdeviceptr device) -> uintptr_t {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(host) : device;
  };
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  task.bytes = copy.WidthInBytes;
  task.rows = copy.Height;
  task.slices = copy.Depth;
  task.source_pitch = copy.srcPitch != 0 ? copy.srcPitch : copy.WidthInBytes;
  task.target_pitch = copy.dstPitch != 0 ? copy.dstPitch : copy.WidthInBytes;
  task.source_slice = task.source_pitch * (copy.srcHeight != 0 ? copy.srcHeight : copy.Height);
  task.target_slice = task.target_pitch * (copy.dstHeight != 0 ? copy.dstHeight : copy.Height);
  task.source = base(copy.srcMemoryType, copy.srcHost, copy.srcDevice) + copy.srcXInBytes +
                copy.srcY * task.source_pitch + copy.srcZ * task.source_slice;
  task.target = base(copy.dstMemoryType, copy.dstHost, copy.dstDevice) + copy.dstXInBytes +
                copy.dstY * task.target_pitch + copy.dstZ * task.target_slice;
  return CUDA_SUCCESS;
}

namespace {

CUDA_MEMCPY3D deep(const CUDA_MEMCPY2D& copy) {
  CUDA_MEMCPY3D all{};
  all.srcXInBytes = copy.srcXInBytes;
  all.srcY = copy.srcY;
  all.srcMemoryType = copy.srcMemoryType;
  all.srcHost = copy.srcHost;
  all.srcDevice = copy.srcDevice;
  all.srcPitch = copy.srcPitch;
  all.dstXInBytes = copy.dstXInBytes;
  all.dstY = copy.dstY;
  all.dstMemoryType = copy.dstMemoryType;
  all.dstHost = copy.dstHost;
  all.dstDevice = copy.dstDevice;
  all.dstPitch = copy.dstPitch;
  all.WidthInBytes = copy.WidthInBytes;
  all.Height = copy.Height;
  all.Depth = 1;
  return all;
}

}  // namespace

extern "C" {

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream handle) {
  FAKE_CALL(cuMemcpyAsync);
  return submit_copy(handle, flat(target, source, bytes), guard);
}

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  FAKE_UNSAFE_CALL(cuMemcpy);
  return finish(submit_copy(nullptr, flat(target, source, bytes), guard), nullptr, guard);
}

CUresult cuMemcpyHtoD(CUdeviceptr target, const void* source, size_t bytes) {
  return cuMemcpy(target, reinterpret_cast<CUdeviceptr>(source), bytes);
}
CUresult cuMemcpyDtoH(void* target, CUdeviceptr source, size_t bytes) {
  return cuMemcpy(reinterpret_cast<CUdeviceptr>(target), source, bytes);
}
CUresult cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return cuMemcpy(target, source, bytes);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(target, reinterpret_cast<CUdeviceptr>(source), bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(target), source, bytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(target, source, bytes, stream);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext /*to*/, CUdeviceptr source, CUcontext /*from*/,
                           size_t bytes, CUstream stream) {
  return cuMemcpyAsync(target, source, bytes, stream);
}
CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext /*to*/, CUdeviceptr source, CUcontext /*from*/,
                      size_t bytes) {
  return cuMemcpy(target, source, bytes);
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream handle) {
  FAKE_CALL(cuMemcpy3DAsync);
  CopyTask task;
  const CUresult made = fake_cuda::make_copy_task(*copy, task);
  return made == CUDA_SUCCESS ? submit_copy(handle, std::move(task), guard) : made;
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D* copy) {
  FAKE_UNSAFE_CALL(cuMemcpy3D);
  CopyTask task;
  if (const CUresult made = fake_cuda::make_copy_task(*copy, task); made != CUDA_SUCCESS) return made;
  return finish(submit_copy(nullptr, std::move(task), guard), nullptr, guard);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  const CUDA_MEMCPY3D all = deep(*copy);
  return cuMemcpy3DAsync(&all, stream);
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* copy) {
  const CUDA_MEMCPY3D all = deep(*copy);
  return cuMemcpy3D(&all);
}
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) {
  return cuMemcpy2D(copy);
}

#define FAKE_FILL(name, Value)                                                           \
  CUresult name##Async(CUdeviceptr target, Value value, size_t count, CUstream handle) { \
    FAKE_CALL(name##Async);                                                              \
    const FillTask task{.target = target,                                                \
                        .bytes = count * sizeof(Value),                                  \
                        .value = value,                                                  \
                        .value_bytes = sizeof(Value),                                    \
                        .pitch = 0};                                                     \
    return submit_fill(handle, task);                                                    \
  }                                                                                      \
  CUresult name(CUdeviceptr target, Value value, size_t count) {                         \
    FAKE_UNSAFE_CALL(name);                                                              \
    const FillTask task{.target = target,                                                \
                        .bytes = count * sizeof(Value),                                  \
                        .value = value,                                                  \
                        .value_bytes = sizeof(Value),                                    \
                        .pitch = 0};                                                     \
    return finish(submit_fill(nullptr, task), nullptr, guard);                           \
  }
FAKE_FILL(cuMemsetD8, unsigned char)
FAKE_FILL(cuMemsetD16, unsigned short)
FAKE_FILL(cuMemsetD32, unsigned int)
#undef FAKE_FILL

CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream handle) {
  FAKE_CALL(cuMemsetD2D8Async);
  return submit_fill(handle,
                     {.target = target, .bytes = width, .value = value, .rows = height, .pitch = pitch});
}

CUresult cuMemsetD2D8(CUdeviceptr target, size_t pitch, unsigned char value, size_t width, size_t height) {
  FAKE_UNSAFE_CALL(cuMemsetD2D8);
  const FillTask task{.target = target, .bytes = width, .value = value, .rows = height, .pitch = pitch};
  return finish(submit_fill(nullptr, task), nullptr, guard);
}

}  // extern "C"
