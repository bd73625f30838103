#include "trainer/cuda_blas.h"

#include <algorithm>
#include <climits>
#include <utility>

namespace tutti::trainer {
namespace {

int length(size_t number) {
  if (number > INT_MAX) throw Error("a matrix side of " + std::to_string(number) + " is too long for cuBLAS");
  return static_cast<int>(number);
}

}  // namespace

CudaBlas::CudaBlas(std::shared_ptr<const Gpu> gpu, const CudaLibraries& libraries)
    : gpu_(std::move(gpu)), functions_{CudaLibrary(libraries.cublas)} {
  try {
    const Gpu::Entered entered(*gpu_);
    check_cublas(functions_.create(&handle_), "starting");
    try_product();
  } catch (...) {
    close();
    throw;
  }
}

CudaBlas::~CudaBlas() {
  close();
}

/// Errors are ignored: the failure of the GPU has been reported.
void CudaBlas::close() {
  try {
    const Gpu::Entered entered(*gpu_);
    if (handle_ != nullptr) (void)functions_.destroy(handle_);
    outgrown_.insert(outgrown_.end(), memory_.begin(), memory_.end());
    for (const DeviceMemory& memory : outgrown_)
      if (memory.address != 0) (void)gpu_->driver().memory_free(memory.address);
  } catch (const Error&) {
    // The memory is freed at the end of the process.
  }
}

/// A cuBLAS without code for this GPU fails only at the first product.
void CudaBlas::try_product() {
  float numbers[] = {2, 3, 0};
  const auto block = [&](size_t i) {
    return Block{.data = &numbers[i], .rows = 1, .columns = 1, .stride = 1};
  };
  multiply(block(0), block(1), block(2), {});
  if (numbers[2] != 6)
    throw Error("cuBLAS on " + gpu_->name() + " says that 2 times 3 is " + std::to_string(numbers[2]));
}

void CudaBlas::check_cublas(int code, const char* what) const {
  if (code == 0) return;
  throw Error("cuBLAS on " + gpu_->name() + ": " + what + ": " + functions_.get_status_string(code) + " (" +
              std::to_string(code) + ")");
}

float* CudaBlas::make_room(DeviceMemory& memory, Block block, bool copies) {
  const size_t bytes = block.rows * block.columns * sizeof(float);
  if (memory.bytes < bytes) {
    // Twice the old size, so that all outgrown memory together is less than the memory in use.
    DeviceMemory larger{.address = 0, .bytes = std::max(bytes, 2 * memory.bytes)};
    gpu_->check(gpu_->driver().memory_allocate(&larger.address, larger.bytes),
                "memory for a matrix of " + std::to_string(bytes) + " bytes");
    outgrown_.push_back(std::exchange(memory, larger));
  }
  auto* address = reinterpret_cast<float*>(memory.address);
  if (copies)
    check_cublas(functions_.set_matrix(length(block.columns), length(block.rows), sizeof(float), block.data,
                                       length(block.stride), address, length(block.columns)),
                 "copying to the GPU");
  return address;
}

void CudaBlas::multiply(Block left, Block right, Block result, ProductOptions options) {
  const size_t inner = options.transpose_left ? left.rows : left.columns;
  // cuBLAS takes no empty operands. A rank without samples has no product, or a product of zeros.
  if (result.rows == 0 || result.columns == 0 || inner == 0) {
    trainer::multiply(left, right, result, options);
    return;
  }
  const Gpu::Entered entered(*gpu_);
  const float* a = make_room(memory_[0], left, true);
  const float* b = make_room(memory_[1], right, true);
  float* c = make_room(memory_[2], result, options.accumulate);
  const int columns = length(result.columns);
  const float add = options.accumulate ? 1 : 0;
  // A row-major matrix is a transposed one to cuBLAS: result^T = right^T * left^T.
  check_cublas(functions_.sgemm(handle_, options.transpose_right ? 1 : 0, options.transpose_left ? 1 : 0,
                                columns, length(result.rows), length(inner), &options.scale, b,
                                length(right.columns), a, length(left.columns), &add, c, columns),
               "multiplying");
  check_cublas(functions_.get_matrix(columns, length(result.rows), sizeof(float), c, columns, result.data,
                                     length(result.stride)),
               "copying from the GPU");
}

Device find_device(const std::string& choice, int rank, const CudaLibraries& libraries) {
  Device host{.product = multiply, .about = "OpenBLAS"};
  if (choice == "host") return host;
  try {
    const auto gpu = std::make_shared<const Gpu>(rank, libraries);
    // Shared, because every layer holds a copy of the function.
    const auto blas = std::make_shared<CudaBlas>(gpu, libraries);
    return {.product = [blas](Block left, Block right, Block result,
                              ProductOptions options) { blas->multiply(left, right, result, options); },
            .about = "cuBLAS on " + gpu->name(),
            .gpu = gpu};
  } catch (const Error& error) {
    if (choice == "cuda") throw Error(std::string("--device cuda: no GPU can be used: ") + error.what());
    host.about += std::string(" (no GPU: ") + error.what() + ")";
    return host;
  }
}

}  // namespace tutti::trainer
