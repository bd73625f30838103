// Library, Kernel: device code in this binary, loaded before the first operation. Loading at the first launch
// could wait for a kernel that waits for this rank.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti::cuda {

/// A kernel, loaded in one context.
struct Kernel {
  CUfunction function = nullptr;
};

struct Grid {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  bool cooperative = false;  ///< all blocks are resident at once, or the launch fails
};

/// A loaded image (cubin, fat binary or PTX).
class Library {
 public:
  /// Errors: kUnsupported (the driver refuses the image), kOutOfMemory, kSystemError.
  static Result<Library> load(const Context& context, std::span<const std::byte> image);
  Library() = default;
  Library(Library&& other) noexcept { *this = std::move(other); }
  Library& operator=(Library&& other) noexcept;
  ~Library() { reset(); }

  /// Loads kernel `name` now. Errors: kUnsupported (the driver refuses the image), kSystemError: no such
  /// kernel.
  Result<Kernel> kernel(const char* name) const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUlibrary handle_ = nullptr;
};

/// How many blocks of `threads` threads the device holds at once.
Result<uint32_t> resident_blocks(const Context& context, const Kernel& kernel, uint32_t threads);

/// Launches the kernel and copies its one argument. Needs no current context, allocates nothing. Errors:
/// kInvalidUsage (the capture cannot hold the launch), kUnsupported (no room for a cooperative grid),
/// kOutOfMemory, kSystemError.
Status launch(const Context& context, const Kernel& kernel, const Grid& grid, CUstream stream,
              const void* argument);

}  // namespace tutti::cuda
