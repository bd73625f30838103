// The entry points of CUDA's driver and of cuBLAS that the trainer calls, declared as cuda.h and cublas_v2.h
// do: enums as int, handles as void*.
#pragma once

#include <cstddef>

namespace tutti::trainer {

struct CudaFunctions {
  int (*init)(unsigned flags) = nullptr;
  int (*device_get_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_get_name)(char* name, int bytes, int device) = nullptr;
  int (*primary_context_retain)(void** context, int device) = nullptr;
  int (*primary_context_release)(int device) = nullptr;
  int (*context_set_current)(void* context) = nullptr;
  int (*memory_allocate)(unsigned long long* address, size_t bytes) = nullptr;
  int (*memory_free)(unsigned long long address) = nullptr;
  int (*get_error_string)(int code, const char** text) = nullptr;

  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  // Column-major, as cuBLAS counts: a column is a row of ours, and the leading dimension its stride.
  int (*set_matrix)(int rows, int columns, int element_bytes, const void* host, int host_leading,
                    void* device, int device_leading) = nullptr;
  int (*get_matrix)(int rows, int columns, int element_bytes, const void* device, int device_leading,
                    void* host, int host_leading) = nullptr;
  int (*sgemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
               int c_leading) = nullptr;
  const char* (*get_status_string)(int status) = nullptr;
};

/// Calls `visit(name, function)` for each function of the driver.
template <class Functions, class Visit>
void visit_driver(Functions& functions, const Visit& visit) {
  visit("cuInit", functions.init);
  visit("cuDeviceGetCount", functions.device_get_count);
  visit("cuDeviceGet", functions.device_get);
  visit("cuDeviceGetName", functions.device_get_name);
  visit("cuDevicePrimaryCtxRetain", functions.primary_context_retain);
  visit("cuDevicePrimaryCtxRelease_v2", functions.primary_context_release);
  visit("cuCtxSetCurrent", functions.context_set_current);
  visit("cuMemAlloc_v2", functions.memory_allocate);
  visit("cuMemFree_v2", functions.memory_free);
  visit("cuGetErrorString", functions.get_error_string);
}

/// The same for cuBLAS.
template <class Functions, class Visit>
void visit_cublas(Functions& functions, const Visit& visit) {
  visit("cublasCreate_v2", functions.create);
  visit("cublasDestroy_v2", functions.destroy);
  visit("cublasSetMatrix", functions.set_matrix);
  visit("cublasGetMatrix", functions.get_matrix);
  visit("cublasSgemm_v2", functions.sgemm);
  visit("cublasGetStatusString", functions.get_status_string);
}

}  // namespace tutti::trainer
