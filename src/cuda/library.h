// Library, Kernel: device code that is part of this binary, loaded into a device before the first operation.
// A kernel that were loaded at its first launch could wait for the device, and so for a kernel that waits for
// this very rank.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "core/result.h"
#include "cuda/context.h"

namespace tutti::cuda {

/// A kernel as it is loaded in one context.
struct Kernel {
  CUfunction function = nullptr;
};

/// The grid of a launch.
struct Grid {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  bool cooperative = false;  ///< all blocks are resident at once, or the launch is refused
};

/// A loaded image (cubin, fat binary or PTX).
class Library {
 public:
  /// Errors: kUnsupported (no code for this device), kOutOfMemory, kSystemError.
  static Result<Library> load(const Context& context, std::span<const std::byte> image);
  Library() = default;
  Library(Library&& other) noexcept { *this = std::move(other); }
  Library& operator=(Library&& other) noexcept;
  ~Library() { reset(); }

  /// Loads the kernel `name` now. Errors: kSystemError: the image has no such kernel.
  Result<Kernel> kernel(const char* name) const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUlibrary handle_ = nullptr;
};

/// Blocks of `threads` threads of the kernel that the device holds at a time.
Result<uint32_t> resident_blocks(const Context& context, const Kernel& kernel, uint32_t threads);

/// Launches the kernel with one argument, which is copied. Needs no current context of the caller; allocates
/// nothing. Errors: kInvalidUsage (a capture that cannot hold it), kUnsupported (a cooperative grid that the
/// device has no room for), kOutOfMemory, kSystemError.
Status launch(const Context& context, const Kernel& kernel, const Grid& grid, CUstream stream,
              const void* argument);

}  // namespace tutti::cuda
