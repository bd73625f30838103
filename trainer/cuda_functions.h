// The functions of CUDA's driver and of cuBLAS that the trainer calls, declared as in cuda.h and cublas_v2.h:
// enums as int, handles as void*. A table looks its functions up in its library, and throws Error if one is
// missing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::trainer {

/// One of CUDA's libraries. Never unloaded, because the libraries leave threads behind.
class CudaLibrary {
 public:
  /// Loads the first of `names` that can be loaded. Throws Error.
  explicit CudaLibrary(const std::vector<std::string>& names);

  /// The address of a function, for a pointer of the function's type.
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor): meant to be implicit
      return reinterpret_cast<Function*>(address);
    }
  };
  /// Throws Error if the library lacks the function.
  Symbol operator[](const char* name) const;

 private:
  void* handle_ = nullptr;
};

/// The driver: functions for every use of a GPU.
struct DriverFunctions {
  CudaLibrary library;
  int (*init)(unsigned flags) = library["cuInit"];
  int (*device_get_count)(int* count) = library["cuDeviceGetCount"];
  int (*device_get)(int* device, int ordinal) = library["cuDeviceGet"];
  int (*device_get_name)(char* name, int bytes, int device) = library["cuDeviceGetName"];
  int (*primary_context_retain)(void** context, int device) = library["cuDevicePrimaryCtxRetain"];
  int (*primary_context_release)(int device) = library["cuDevicePrimaryCtxRelease_v2"];
  int (*context_push_current)(void* context) = library["cuCtxPushCurrent_v2"];
  int (*context_pop_current)(void** context) = library["cuCtxPopCurrent_v2"];
  int (*memory_allocate)(unsigned long long* address, size_t bytes) = library["cuMemAlloc_v2"];
  int (*memory_free)(unsigned long long address) = library["cuMemFree_v2"];
  int (*get_error_string)(int code, const char** text) = library["cuGetErrorString"];
};

/// The driver: pinned host memory, streams and events.
struct StreamFunctions {
  CudaLibrary library;
  int (*host_allocate)(void** memory, size_t bytes, unsigned flags) = library["cuMemHostAlloc"];
  int (*host_free)(void* memory) = library["cuMemFreeHost"];
  int (*stream_create)(void** stream, unsigned flags) = library["cuStreamCreate"];
  int (*stream_destroy)(void* stream) = library["cuStreamDestroy_v2"];
  int (*event_create)(void** event, unsigned flags) = library["cuEventCreate"];
  int (*event_destroy)(void* event) = library["cuEventDestroy_v2"];
  int (*event_record)(void* event, void* stream) = library["cuEventRecord"];
  int (*event_synchronize)(void* event) = library["cuEventSynchronize"];
};

struct CublasFunctions {
  CudaLibrary library;
  int (*create)(void** handle) = library["cublasCreate_v2"];
  int (*destroy)(void* handle) = library["cublasDestroy_v2"];
  // Column-major, as in cuBLAS: a column is one of our rows, and the leading dimension is the row's stride.
  int (*set_matrix)(int rows, int columns, int element_bytes, const void* host, int host_leading,
                    void* device, int device_leading) = library["cublasSetMatrix"];
  int (*get_matrix)(int rows, int columns, int element_bytes, const void* device, int device_leading,
                    void* host, int host_leading) = library["cublasGetMatrix"];
  int (*sgemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
               int c_leading) = library["cublasSgemm_v2"];
  const char* (*get_status_string)(int status) = library["cublasGetStatusString"];
};

}  // namespace tutti::trainer
