// Gpu: one rank's GPU, through CUDA's driver. The driver is loaded at run time, so the same program runs
// without CUDA.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/cuda_functions.h"
#include "trainer/error.h"

namespace tutti::trainer {

/// The names for dlopen, in order.
struct CudaLibraries {
  std::vector<std::string> driver = {"libcuda.so.1"};
  std::vector<std::string> cublas = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
};

class Gpu {
 public:
  /// Takes GPU `rank` modulo the number of visible GPUs (CUDA_VISIBLE_DEVICES). Throws Error: no driver, no
  /// GPU.
  explicit Gpu(int rank, const CudaLibraries& libraries = {});
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Makes the GPU's primary context, which the whole process shares, current for a scope.
  class Entered {
   public:
    explicit Entered(const Gpu& gpu);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    const Gpu& gpu_;
  };

  /// Number among the GPUs that this process sees.
  int number() const { return number_; }
  /// "GPU 0 (NVIDIA H200)".
  const std::string& name() const { return name_; }
  const CudaLibrary& library() const { return driver_.library; }
  const DriverFunctions& driver() const { return driver_; }
  /// Throws Error with the driver's text unless `code` is 0.
  void check(int code, const std::string& what) const;

 private:
  DriverFunctions driver_;
  int number_ = 0;
  std::string name_ = "CUDA";
  int device_ = 0;  ///< the driver's number
  void* context_ = nullptr;
};

}  // namespace tutti::trainer
