// The functions of CUDA's driver and of cuBLAS that the trainer calls, declared as in cuda.h and cublas_v2.h:
// enums as int, handles as void*. Each list calls `visit(name, function)` for each of its functions.
#pragma once

#include <cstddef>

namespace tutti::trainer {

/// The driver: functions for every use of a GPU.
struct DriverFunctions {
  int (*init)(unsigned flags) = nullptr;
  int (*device_get_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_get_name)(char* name, int bytes, int device) = nullptr;
  int (*primary_context_retain)(void** context, int device) = nullptr;
  int (*primary_context_release)(int device) = nullptr;
  int (*context_push_current)(void* context) = nullptr;
  int (*context_pop_current)(void** context) = nullptr;
  int (*memory_allocate)(unsigned long long* address, size_t bytes) = nullptr;
  int (*memory_free)(unsigned long long address) = nullptr;
  int (*get_error_string)(int code, const char** text) = nullptr;
};

template <class Visit>
void visit(DriverFunctions& functions, const Visit& visit) {
  visit("cuInit", functions.init);
  visit("cuDeviceGetCount", functions.device_get_count);
  visit("cuDeviceGet", functions.device_get);
  visit("cuDeviceGetName", functions.device_get_name);
  visit("cuDevicePrimaryCtxRetain", functions.primary_context_retain);
  visit("cuDevicePrimaryCtxRelease_v2", functions.primary_context_release);
  visit("cuCtxPushCurrent_v2", functions.context_push_current);
  visit("cuCtxPopCurrent_v2", functions.context_pop_current);
  visit("cuMemAlloc_v2", functions.memory_allocate);
  visit("cuMemFree_v2", functions.memory_free);
  visit("cuGetErrorString", functions.get_error_string);
}

/// The driver: pinned host memory, streams and events.
struct StreamFunctions {
  int (*host_allocate)(void** memory, size_t bytes, unsigned flags) = nullptr;
  int (*host_free)(void* memory) = nullptr;
  int (*stream_create)(void** stream, unsigned flags) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*event_create)(void** event, unsigned flags) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_synchronize)(void* event) = nullptr;
};

template <class Visit>
void visit(StreamFunctions& functions, const Visit& visit) {
  visit("cuMemHostAlloc", functions.host_allocate);
  visit("cuMemFreeHost", functions.host_free);
  visit("cuStreamCreate", functions.stream_create);
  visit("cuStreamDestroy_v2", functions.stream_destroy);
  visit("cuEventCreate", functions.event_create);
  visit("cuEventDestroy_v2", functions.event_destroy);
  visit("cuEventRecord", functions.event_record);
  visit("cuEventSynchronize", functions.event_synchronize);
}

struct CublasFunctions {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  // Column-major, as in cuBLAS: a column is one of our rows, and the leading dimension is the row's stride.
  int (*set_matrix)(int rows, int columns, int element_bytes, const void* host, int host_leading,
                    void* device, int device_leading) = nullptr;
  int (*get_matrix)(int rows, int columns, int element_bytes, const void* device, int device_leading,
                    void* host, int host_leading) = nullptr;
  int (*sgemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
               int c_leading) = nullptr;
  const char* (*get_status_string)(int status) = nullptr;
};

template <class Visit>
void visit(CublasFunctions& functions, const Visit& visit) {
  visit("cublasCreate_v2", functions.create);
  visit("cublasDestroy_v2", functions.destroy);
  visit("cublasSetMatrix", functions.set_matrix);
  visit("cublasGetMatrix", functions.get_matrix);
  visit("cublasSgemm_v2", functions.sgemm);
  visit("cublasGetStatusString", functions.get_status_string);
}

}  // namespace tutti::trainer
