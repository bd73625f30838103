// The stub of libcublas: column-major products by their definition; see stub_gpu.h.
#include <cstring>

#include "tests/trainer/stub_gpu.h"

#define STUB __attribute__((visibility("default")))

namespace tutti::test {
namespace {

constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kMappingError = 11;
int the_handle;

/// A column-major matrix of float in device memory, or null where it is not all there.
float* matrix_in(const void* address, int rows, int columns, int leading) {
  const size_t count =
      static_cast<size_t>(leading) * static_cast<size_t>(columns - 1) + static_cast<size_t>(rows);
  return static_cast<float*>(stub_memory(address, count * sizeof(float)));
}

void copy_columns(const float* from, int from_leading, float* to, int to_leading, int rows, int columns) {
  for (int column = 0; column < columns; ++column)
    std::memcpy(to + static_cast<ptrdiff_t>(column) * to_leading,
                from + static_cast<ptrdiff_t>(column) * from_leading,
                static_cast<size_t>(rows) * sizeof(float));
}

bool is_bad_copy(int rows, int columns, int element_bytes, int from_leading, int to_leading) {
  return rows <= 0 || columns <= 0 || element_bytes != sizeof(float) || from_leading < rows ||
         to_leading < rows;
}

}  // namespace

STUB int create(void** handle) __asm__("cublasCreate_v2");
int create(void** handle) {
  if (const int code = stub_enter("cublasCreate_v2"); code != 0) return code;
  if (!stub_in_context()) return kNotInitialized;
  stub_count_handles(1);
  *handle = &the_handle;
  return 0;
}

STUB int destroy(void* handle) __asm__("cublasDestroy_v2");
int destroy(void* handle) {
  stub_count_handles(-1);
  return handle == &the_handle ? stub_enter("cublasDestroy_v2") : kNotInitialized;
}

STUB int set_matrix(int rows, int columns, int element_bytes, const void* host, int host_leading,
                    void* device, int device_leading) __asm__("cublasSetMatrix");
int set_matrix(int rows, int columns, int element_bytes, const void* host, int host_leading, void* device,
               int device_leading) {
  if (const int code = stub_enter("cublasSetMatrix"); code != 0) return code;
  if (is_bad_copy(rows, columns, element_bytes, host_leading, device_leading)) return kInvalidValue;
  float* to = matrix_in(device, rows, columns, device_leading);
  if (to == nullptr || !stub_in_context()) return kMappingError;
  copy_columns(static_cast<const float*>(host), host_leading, to, device_leading, rows, columns);
  return 0;
}

STUB int get_matrix(int rows, int columns, int element_bytes, const void* device, int device_leading,
                    void* host, int host_leading) __asm__("cublasGetMatrix");
int get_matrix(int rows, int columns, int element_bytes, const void* device, int device_leading, void* host,
               int host_leading) {
  if (const int code = stub_enter("cublasGetMatrix"); code != 0) return code;
  if (is_bad_copy(rows, columns, element_bytes, device_leading, host_leading)) return kInvalidValue;
  const float* from = matrix_in(device, rows, columns, device_leading);
  if (from == nullptr || !stub_in_context()) return kMappingError;
  copy_columns(from, device_leading, static_cast<float*>(host), host_leading, rows, columns);
  return 0;
}

STUB int sgemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
               int c_leading) __asm__("cublasSgemm_v2");
int sgemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
          const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
          int c_leading) {
  if (const int code = stub_enter("cublasSgemm_v2"); code != 0) return code;
  if (handle != &the_handle) return kNotInitialized;
  const int a_rows = transpose_a != 0 ? k : m;
  const int b_rows = transpose_b != 0 ? n : k;
  if (m <= 0 || n <= 0 || k <= 0 || a_leading < a_rows || b_leading < b_rows || c_leading < m)
    return kInvalidValue;
  const float* left = matrix_in(a, a_rows, m + k - a_rows, a_leading);
  const float* right = matrix_in(b, b_rows, n + k - b_rows, b_leading);
  float* result = matrix_in(c, m, n, c_leading);
  if (left == nullptr || right == nullptr || result == nullptr || !stub_in_context()) return kMappingError;
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < m; ++row) {
      float sum = 0;
      for (int i = 0; i < k; ++i)
        sum += left[transpose_a != 0 ? i + row * a_leading : row + i * a_leading] *
               right[transpose_b != 0 ? column + i * b_leading : i + column * b_leading];
      float& to = result[row + column * c_leading];
      to = *alpha * sum + (*beta == 0 ? 0 : *beta * to);
    }
  return 0;
}

STUB const char* get_status_string(int status) __asm__("cublasGetStatusString");
const char* get_status_string(int status) {
  return status == kMappingError ? "CUBLAS_STATUS_MAPPING_ERROR" : "another status";
}

}  // namespace tutti::test
