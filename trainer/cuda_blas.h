// Matrix products on a GPU, by cuBLAS, loaded at run time like the driver (gpu.h). Operands are copied to the
// GPU for each product, the result comes back: all that the rest of the trainer sees is host memory.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "trainer/gpu.h"
#include "trainer/matrix.h"

namespace tutti::trainer {

/// One rank's use of a GPU. The same operands give the same bits on the same kind of GPU.
class CudaBlas {
 public:
  /// Tries a product. Throws Error: no cuBLAS that works with the GPU.
  explicit CudaBlas(std::shared_ptr<const Gpu> gpu, const CudaLibraries& libraries = {});
  ~CudaBlas();
  CudaBlas(const CudaBlas&) = delete;
  CudaBlas& operator=(const CudaBlas&) = delete;

  /// As trainer::multiply. Blocks until the result is in host memory. Throws Error, such as for want of
  /// memory.
  void multiply(Block left, Block right, Block result, ProductOptions options);

 private:
  struct DeviceMemory {
    unsigned long long address = 0;
    size_t bytes = 0;
  };
  void close();
  void try_product();
  void check_cublas(int code, const char* what) const;
  /// Makes room for the block and, where asked, copies it there, rows close together. The address.
  float* place(DeviceMemory& memory, Block block, bool copies);

  std::shared_ptr<const Gpu> gpu_;
  CublasFunctions functions_;
  void* handle_ = nullptr;                   ///< of cuBLAS
  std::array<DeviceMemory, 3> memory_ = {};  ///< of left, right, result
  /// What these have outgrown. To free it would wait for all that the process has the GPU do, reductions that
  /// wait for this very rank among them.
  std::vector<DeviceMemory> outgrown_;
};

/// Where products are computed.
struct Device {
  Product product;
  std::string about;                    ///< for people: the library, on what, and why not on a GPU
  std::shared_ptr<const Gpu> gpu = {};  ///< null: on the host
};

/// `choice`: "host"; "cuda", which throws Error where there is no GPU that works; "auto": cuda, else host.
Device find_device(const std::string& choice, int rank, const CudaLibraries& libraries = {});

}  // namespace tutti::trainer
