#include "trainer/cuda_blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>

#include "trainer/cuda_functions.h"
#include "trainer/error.h"

namespace tutti::trainer {
namespace {

/// The first of `names` that can be loaded. Never unloaded: CUDA's libraries leave threads behind.
void* load(const std::vector<std::string>& names) {
  std::string problem;
  for (const std::string& name : names) {
    if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = ::dlerror();
  }
  throw Error(problem);
}

/// For visit_driver and visit_cublas: looks each function up in `library`.
auto find_in(void* library) {
  return [library](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) throw Error(std::string("CUDA's libraries are too old: they lack ") + name);
  };
}

int length(size_t number) {
  if (number > INT_MAX) throw Error("a matrix side of " + std::to_string(number) + " is too long for cuBLAS");
  return static_cast<int>(number);
}

}  // namespace

CudaBlas::CudaBlas(int rank, const CudaLibraries& libraries) {
  CudaFunctions functions;
  visit_driver(functions, find_in(load(libraries.driver)));
  visit_cublas(functions, find_in(load(libraries.cublas)));
  functions_ = std::make_unique<const CudaFunctions>(functions);
  try {
    open(rank);
    try_product();
  } catch (...) {
    close();
    throw;
  }
}

CudaBlas::~CudaBlas() {
  close();
}

void CudaBlas::open(int rank) {
  check_driver(functions_->init(0), "starting the driver");
  int count = 0;
  check_driver(functions_->device_get_count(&count), "counting GPUs");
  if (count == 0) throw Error("the driver knows no GPU");
  const int ordinal = rank % count;
  int device = 0;
  check_driver(functions_->device_get(&device, ordinal), "opening a GPU");
  std::array<char, 128> model = {};
  check_driver(functions_->device_get_name(model.data(), static_cast<int>(model.size()) - 1, device),
               "asking for a GPU's name");
  name_ = "cuBLAS on GPU " + std::to_string(ordinal) + " (" + model.data() + ")";
  check_driver(functions_->primary_context_retain(&context_, device), "opening a context");
  device_ = device;
  check_driver(functions_->context_set_current(context_), "entering the context");
  check_cublas(functions_->create(&handle_), "starting");
}

/// Errors do not count: whatever made the GPU fail has been told.
void CudaBlas::close() {
  if (device_ < 0) return;
  (void)functions_->context_set_current(context_);
  if (handle_ != nullptr) (void)functions_->destroy(handle_);
  for (const DeviceMemory& memory : memory_)
    if (memory.address != 0) (void)functions_->memory_free(memory.address);
  (void)functions_->primary_context_release(device_);
  device_ = -1;
}

/// A cuBLAS without code for this GPU says so only now.
void CudaBlas::try_product() {
  float numbers[] = {2, 3, 0};
  const auto block = [&](size_t i) {
    return Block{.data = &numbers[i], .rows = 1, .columns = 1, .stride = 1};
  };
  multiply(block(0), block(1), block(2), {});
  if (numbers[2] != 6) throw Error(name_ + " says that 2 times 3 is " + std::to_string(numbers[2]));
}

void CudaBlas::check_driver(int code, const char* what) const {
  if (code == 0) return;
  const char* text = nullptr;
  if (functions_->get_error_string(code, &text) != 0 || text == nullptr) text = "unknown error";
  throw Error((name_.empty() ? "CUDA" : name_) + ": " + what + ": " + text + " (" + std::to_string(code) +
              ")");
}

void CudaBlas::check_cublas(int code, const char* what) const {
  if (code == 0) return;
  throw Error(name_ + ": " + what + ": " + functions_->get_status_string(code) + " (" + std::to_string(code) +
              ")");
}

float* CudaBlas::place(DeviceMemory& memory, Block block, bool copies) {
  const size_t bytes = block.rows * block.columns * sizeof(float);
  if (memory.bytes < bytes) {
    if (memory.address != 0) check_driver(functions_->memory_free(memory.address), "giving memory back");
    memory = {};
    const std::string what = "memory for a matrix of " + std::to_string(bytes) + " bytes";
    check_driver(functions_->memory_allocate(&memory.address, bytes), what.c_str());
    memory.bytes = bytes;
  }
  auto* address = reinterpret_cast<float*>(memory.address);
  if (copies)
    check_cublas(functions_->set_matrix(length(block.columns), length(block.rows), sizeof(float), block.data,
                                        length(block.stride), address, length(block.columns)),
                 "copying to the GPU");
  return address;
}

void CudaBlas::multiply(Block left, Block right, Block result, ProductOptions options) {
  const size_t inner = options.transpose_left ? left.rows : left.columns;
  // cuBLAS takes no empty operands: a rank without samples has no product, or one of zeros.
  if (result.rows == 0 || result.columns == 0 || inner == 0) {
    trainer::multiply(left, right, result, options);
    return;
  }
  // The driver's context belongs to a thread.
  check_driver(functions_->context_set_current(context_), "entering the context");
  const float* a = place(memory_[0], left, true);
  const float* b = place(memory_[1], right, true);
  float* c = place(memory_[2], result, options.accumulate);
  const int columns = length(result.columns);
  const float add = options.accumulate ? 1 : 0;
  // What is row-major here is transposed to cuBLAS: result^T = right^T * left^T.
  check_cublas(functions_->sgemm(handle_, options.transpose_right ? 1 : 0, options.transpose_left ? 1 : 0,
                                 columns, length(result.rows), length(inner), &options.scale, b,
                                 length(right.columns), a, length(left.columns), &add, c, columns),
               "multiplying");
  check_cublas(functions_->get_matrix(columns, length(result.rows), sizeof(float), c, columns, result.data,
                                      length(result.stride)),
               "copying from the GPU");
}

Device find_device(const std::string& choice, int rank, const CudaLibraries& libraries) {
  Device host{.product = multiply, .about = "OpenBLAS"};
  if (choice == "host") return host;
  try {
    // Shared: every layer holds a copy of the function.
    const auto gpu = std::make_shared<CudaBlas>(rank, libraries);
    return {.product = [gpu](Block left, Block right, Block result,
                             ProductOptions options) { gpu->multiply(left, right, result, options); },
            .about = gpu->name()};
  } catch (const Error& error) {
    if (choice == "cuda") throw Error(std::string("--device cuda: no GPU can be used: ") + error.what());
    host.about += std::string(" (no GPU: ") + error.what() + ")";
    return host;
  }
}

}  // namespace tutti::trainer
