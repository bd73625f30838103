#include "trainer/gpu.h"

#include <dlfcn.h>

#include <array>

namespace tutti::trainer {

CudaLibrary::CudaLibrary(const std::vector<std::string>& names) {
  std::string problem;
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    if (problem.empty()) problem = ::dlerror();
  }
  throw Error(problem);
}

CudaLibrary::Symbol CudaLibrary::operator[](const char* name) const {
  void* function = ::dlsym(handle_, name);
  if (function == nullptr) throw Error(std::string("CUDA's libraries are too old: they lack ") + name);
  return {function};
}

Gpu::Gpu(int rank, const CudaLibraries& libraries) : driver_{CudaLibrary(libraries.driver)} {
  check(driver_.init(0), "starting the driver");
  int count = 0;
  check(driver_.device_get_count(&count), "counting GPUs");
  if (count == 0) throw Error("the driver finds no GPU");
  number_ = rank % count;
  check(driver_.device_get(&device_, number_), "opening a GPU");
  std::array<char, 128> model = {};
  check(driver_.device_get_name(model.data(), static_cast<int>(model.size()) - 1, device_),
        "asking for a GPU's name");
  name_ = "GPU " + std::to_string(number_) + " (" + model.data() + ")";
  check(driver_.primary_context_retain(&context_, device_), "opening a context");
}

/// Errors are ignored: the failure of the GPU has been reported.
Gpu::~Gpu() {
  (void)driver_.primary_context_release(device_);
}

void Gpu::check(int code, const std::string& what) const {
  if (code == 0) return;
  const char* text = nullptr;
  if (driver_.get_error_string(code, &text) != 0 || text == nullptr) text = "unknown error";
  throw Error(name_ + ": " + what + ": " + text + " (" + std::to_string(code) + ")");
}

Gpu::Entered::Entered(const Gpu& gpu) : gpu_(gpu) {
  gpu.check(gpu.driver_.context_push_current(gpu.context_), "entering the context");
}

Gpu::Entered::~Entered() {
  void* context = nullptr;
  (void)gpu_.driver_.context_pop_current(&context);
}

}  // namespace tutti::trainer
