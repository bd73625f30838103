// Matrix products on a GPU, by cuBLAS. The driver and cuBLAS are loaded at run time: nothing is linked, and
// the same program runs where they are missing. Operands are copied to the GPU for each product, the result
// comes back: all that the rest of the trainer sees is host memory.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "trainer/matrix.h"

namespace tutti::trainer {

/// What dlopen is given, in the order of trying.
struct CudaLibraries {
  std::vector<std::string> driver = {"libcuda.so.1"};
  std::vector<std::string> cublas = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
};

struct CudaFunctions;

/// One rank's use of a GPU. The same operands give the same bits on the same kind of GPU.
class CudaBlas {
 public:
  /// Takes GPU `rank` modulo their number (CUDA_VISIBLE_DEVICES decides which there are) and tries a product
  /// on it. Throws Error: no driver, no GPU, no cuBLAS that works with them.
  explicit CudaBlas(int rank, const CudaLibraries& libraries = {});
  ~CudaBlas();
  CudaBlas(const CudaBlas&) = delete;
  CudaBlas& operator=(const CudaBlas&) = delete;

  /// As trainer::multiply. Blocks until the result is in host memory. Throws Error, such as for want of
  /// memory.
  void multiply(Block left, Block right, Block result, ProductOptions options);
  /// "cuBLAS on GPU 0 (NVIDIA H200)".
  const std::string& name() const { return name_; }

 private:
  struct DeviceMemory {
    unsigned long long address = 0;
    size_t bytes = 0;
  };
  void open(int rank);
  void close();
  void try_product();
  void check_driver(int code, const char* what) const;
  void check_cublas(int code, const char* what) const;
  /// Makes room for the block and, where asked, copies it there, rows close together. The address.
  float* place(DeviceMemory& memory, Block block, bool copies);

  std::unique_ptr<const CudaFunctions> functions_;
  std::string name_;
  int device_ = -1;                          ///< of the driver; -1: its context is not held
  void* context_ = nullptr;                  ///< the primary one, shared with all others in the process
  void* handle_ = nullptr;                   ///< of cuBLAS
  std::array<DeviceMemory, 3> memory_ = {};  ///< of left, right, result; grows and stays
};

/// Where products are computed.
struct Device {
  Product product;
  std::string about;  ///< for people: the library, on what, and why not on a GPU
};

/// `choice`: "host"; "cuda", which throws Error where there is no GPU that works; "auto": cuda, else host.
Device find_device(const std::string& choice, int rank, const CudaLibraries& libraries = {});

}  // namespace tutti::trainer
