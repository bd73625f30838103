// The stand-in for the CUDA runtime (libcudart.so.13): the functions that programs of nvcc call, on the
// driver's.
//
// NVIDIA's own runtime proves by a keyed challenge that the driver is NVIDIA's (error 103, "integrity checks
// failed"), so it cannot run on the fake driver, and nothing here answers that challenge. Programs that are
// linked to the runtime as a shared library (nvcc -cudart shared) find this one instead, unmodified.
#pragma once

#include "tests/cuda/driver/cuda_api.h"

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstddef>
#include <string>

namespace fake_cudart {

/// Notes the error for cudaGetLastError.
cudaError_t note(cudaError_t error);
inline cudaError_t note(CUresult result) {
  return note(static_cast<cudaError_t>(result));
}

/// Initializes the driver and makes a context current: that of the thread's device, or of device 0.
cudaError_t enter();

/// Begins a function of the runtime that needs a device.
#define RUNTIME_CALL()                                                            \
  if (const cudaError_t refusal = ::fake_cudart::enter(); refusal != cudaSuccess) \
  return ::fake_cudart::note(refusal)

/// A kernel, or a variable, by the host symbol that nvcc has registered. cudaErrorInvalidDeviceFunction,
/// cudaErrorInvalidSymbol: it is none.
cudaError_t find_kernel(const void* symbol, CUfunction* function);
cudaError_t find_variable(const void* symbol, CUdeviceptr* address, size_t* bytes);

inline CUstream driver_stream(cudaStream_t stream) {
  return static_cast<CUstream>(stream);
}
inline CUdeviceptr device_pointer(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace fake_cudart
