// A GPU that is none: libcuda and libcublas for tests, which compute on the host and are strict about how
// they are called. Addresses of device memory fault when the host uses them, and fresh memory is full of NaN.
#pragma once

#include <cstddef>
#include <string>

namespace tutti::test {

/// Exported by the stub of libcuda as `stub_gpu`; a test may look it up and change it before it makes calls.
struct StubGpu {
  int gpu_count = 2;
  size_t memory_bytes = size_t{256} << 20;  ///< beyond which there is no more
  std::string failing = {};                 ///< the function whose next call fails
  int code = 0;                             ///< with this

  std::string calls = {};  ///< names of all functions called but the current context's, a space behind each
  int device = -1;         ///< whose context was opened last
  int context_count = 0;   ///< open ones
  int handle_count = 0;    ///< of cuBLAS, open ones
  size_t live_bytes = 0;
};

// For the stub of cuBLAS, which works on another driver, too, and does without them there.

/// Notes the call; the code with which it has to fail, or 0.
__attribute__((weak)) int stub_enter(const char* name);
__attribute__((weak)) void stub_count_handles(int difference);

}  // namespace tutti::test
