// The stub of libcublas: column-major products by their definition, on whichever libcuda is loaded: the one
// beside it (stub_gpu.h), or the fake driver of the library's tests. It reaches device memory by the driver
// alone, as the host cannot.
#include <cstring>
#include <vector>

#include "tests/trainer/stub_gpu.h"

#define STUB __attribute__((visibility("default")))

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
extern "C" {
int cuCtxGetCurrent(void** context);
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void* stream);
int cuStreamSynchronize(void* stream);
}
// NOLINTEND(readability-identifier-naming)

namespace tutti::test {
namespace {

constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kMappingError = 11;
int the_handle;

int enter(const char* name) {
  return stub_enter != nullptr ? stub_enter(name) : 0;
}
void count_handles(int difference) {
  if (stub_count_handles != nullptr) stub_count_handles(difference);
}

bool is_in_context() {
  void* context = nullptr;
  return cuCtxGetCurrent(&context) == 0 && context != nullptr;
}

bool copy(void* to, const void* from, size_t count) {
  const auto address = [](const void* pointer) { return reinterpret_cast<unsigned long long>(pointer); };
  return cuMemcpyAsync(address(to), address(from), count * sizeof(float), nullptr) == 0 &&
         cuStreamSynchronize(nullptr) == 0;
}

/// A column-major matrix of float in device memory, and the host's copy of it.
struct DeviceMatrix {
  DeviceMatrix(const void* address, int rows, int columns, int leading)
      : device(const_cast<void*>(address)),
        values(static_cast<size_t>(leading) * static_cast<size_t>(columns - 1) + static_cast<size_t>(rows)) {}

  bool read() { return is_in_context() && copy(values.data(), device, values.size()); }
  bool write() const { return is_in_context() && copy(device, values.data(), values.size()); }

  void* device;
  std::vector<float> values;
};

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
  if (const int code = enter("cublasCreate_v2"); code != 0) return code;
  if (!is_in_context()) return kNotInitialized;
  count_handles(1);
  *handle = &the_handle;
  return 0;
}

STUB int destroy(void* handle) __asm__("cublasDestroy_v2");
int destroy(void* handle) {
  count_handles(-1);
  return handle == &the_handle ? enter("cublasDestroy_v2") : kNotInitialized;
}

STUB int set_matrix(int rows, int columns, int element_bytes, const void* host, int host_leading,
                    void* device, int device_leading) __asm__("cublasSetMatrix");
int set_matrix(int rows, int columns, int element_bytes, const void* host, int host_leading, void* device,
               int device_leading) {
  if (const int code = enter("cublasSetMatrix"); code != 0) return code;
  if (is_bad_copy(rows, columns, element_bytes, host_leading, device_leading)) return kInvalidValue;
  DeviceMatrix to(device, rows, columns, device_leading);
  // What lies between the columns stays.
  if (device_leading > rows && !to.read()) return kMappingError;
  copy_columns(static_cast<const float*>(host), host_leading, to.values.data(), device_leading, rows,
               columns);
  return to.write() ? 0 : kMappingError;
}

STUB int get_matrix(int rows, int columns, int element_bytes, const void* device, int device_leading,
                    void* host, int host_leading) __asm__("cublasGetMatrix");
int get_matrix(int rows, int columns, int element_bytes, const void* device, int device_leading, void* host,
               int host_leading) {
  if (const int code = enter("cublasGetMatrix"); code != 0) return code;
  if (is_bad_copy(rows, columns, element_bytes, device_leading, host_leading)) return kInvalidValue;
  DeviceMatrix from(device, rows, columns, device_leading);
  if (!from.read()) return kMappingError;
  copy_columns(from.values.data(), device_leading, static_cast<float*>(host), host_leading, rows, columns);
  return 0;
}

STUB int sgemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
               const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
               int c_leading) __asm__("cublasSgemm_v2");
int sgemm(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const float* alpha,
          const float* a, int a_leading, const float* b, int b_leading, const float* beta, float* c,
          int c_leading) {
  if (const int code = enter("cublasSgemm_v2"); code != 0) return code;
  if (handle != &the_handle) return kNotInitialized;
  const int a_rows = transpose_a != 0 ? k : m;
  const int b_rows = transpose_b != 0 ? n : k;
  if (m <= 0 || n <= 0 || k <= 0 || a_leading < a_rows || b_leading < b_rows || c_leading < m)
    return kInvalidValue;
  DeviceMatrix left(a, a_rows, m + k - a_rows, a_leading);
  DeviceMatrix right(b, b_rows, n + k - b_rows, b_leading);
  DeviceMatrix result(c, m, n, c_leading);
  if (!left.read() || !right.read() || !result.read()) return kMappingError;
  const auto at = [](const DeviceMatrix& matrix, int index) {
    return matrix.values[static_cast<size_t>(index)];
  };
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < m; ++row) {
      float sum = 0;
      for (int i = 0; i < k; ++i)
        sum += at(left, transpose_a != 0 ? i + row * a_leading : row + i * a_leading) *
               at(right, transpose_b != 0 ? column + i * b_leading : i + column * b_leading);
      float& to = result.values[static_cast<size_t>(row) +
                                static_cast<size_t>(column) * static_cast<size_t>(c_leading)];
      to = *alpha * sum + (*beta == 0 ? 0 : *beta * to);
    }
  return result.write() ? 0 : kMappingError;
}

STUB const char* get_status_string(int status) __asm__("cublasGetStatusString");
const char* get_status_string(int status) {
  return status == kMappingError ? "CUBLAS_STATUS_MAPPING_ERROR" : "another status";
}

}  // namespace tutti::test
