// Matrix products on a GPU, by cuBLAS, which is loaded at run time like the driver (gpu.h). Each product
// copies its operands to the GPU and its result back. The rest of the trainer sees only host memory.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "trainer/gpu.h"
#include "trainer/matrix.h"

namespace tutti::trainer {

/// One rank's use of a GPU. Equal operands give equal bits on GPUs of the same kind.
class CudaBlas {
 public:
  /// Tries a product. Throws Error: no cuBLAS that works with the GPU.
  explicit CudaBlas(std::shared_ptr<const Gpu> gpu, const CudaLibraries& libraries = {});
  ~CudaBlas();
  CudaBlas(const CudaBlas&) = delete;
  CudaBlas& operator=(const CudaBlas&) = delete;

  /// Like trainer::multiply. Blocks until the result is in host memory. Throws Error, for example without
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
  /// Makes room for the block and, if `copies`, copies it there without gaps between rows. Returns the
  /// address.
  float* make_room(DeviceMemory& memory, Block block, bool copies);

  std::shared_ptr<const Gpu> gpu_;
  CublasFunctions functions_;
  void* handle_ = nullptr;                   ///< cuBLAS's handle
  std::array<DeviceMemory, 3> memory_ = {};  ///< for left, right, result
  /// Memory that has become too small. To free it would wait for all work of the process on the GPU,
  /// including reductions that wait for this rank.
  std::vector<DeviceMemory> outgrown_;
};

struct Device {
  Product product;
  std::string about;                    ///< for people: the library, its device, and why not a GPU
  std::shared_ptr<const Gpu> gpu = {};  ///< null: products on the host
};

/// `choice`: "host"; "cuda", which throws Error without a working GPU; "auto": cuda if possible, else host.
Device find_device(const std::string& choice, int rank, const CudaLibraries& libraries = {});

}  // namespace tutti::trainer
