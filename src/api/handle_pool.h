// HandlePool: handles that C callers hold. No address is given twice, so a dead handle stays an error, and
// never works on a later object. A dead handle's memory goes back to the system with its page.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace tutti {

template <class Handle>
class HandlePool {
 public:
  /// A new handle.
  Handle* take() {
    const std::scoped_lock lock(mutex_);
    if (next_ == kPerPage) begin_page();
    return new (page_ + next_++ * sizeof(Handle)) Handle;
  }

  /// Takes a handle that the caller has emptied and marked dead. What the handle's memory holds later still
  /// reads as dead: the old mark, or zeros. Allocates nothing: a handle can be given back when memory is
  /// short.
  void rest(Handle* handle) {
    const std::scoped_lock lock(mutex_);
    const auto dead = dead_.find(page_number(handle));
    if (++dead->second < kPerPage) return;
    dead_.erase(dead);
    // Without effect where the system's pages are larger.
    madvise(reinterpret_cast<std::byte*>(handle) - reinterpret_cast<uintptr_t>(handle) % kPageBytes,
            kPageBytes, MADV_DONTNEED);
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kPerPage = kPageBytes / sizeof(Handle);
  static constexpr size_t kBlockBytes = 64 * kPageBytes;
  static_assert(kPerPage > 0);

  static uintptr_t page_number(const void* place) { return reinterpret_cast<uintptr_t>(place) / kPageBytes; }

  void begin_page() {
    if (page_ == nullptr || page_ + kPageBytes == blocks_.back() + kBlockBytes) {
      blocks_.reserve(blocks_.size() + 1);
      void* block = std::aligned_alloc(kPageBytes, kBlockBytes);
      if (block == nullptr) throw std::bad_alloc();
      blocks_.push_back(static_cast<std::byte*>(block));
      page_ = blocks_.back();
    } else {
      page_ += kPageBytes;
    }
    dead_.emplace(page_number(page_), 0);
    next_ = 0;
  }

  std::mutex mutex_;
  std::vector<std::byte*> blocks_;    ///< never freed
  std::byte* page_ = nullptr;         ///< where new handles are made
  size_t next_ = kPerPage;            ///< the next handle in `page_`
  std::map<uintptr_t, size_t> dead_;  ///< number of dead handles by page, for pages with live handles or room
};

/// A handle that names something and has no memory. No value is given twice.
template <class Handle>
Handle* new_name() {
  static std::atomic<uintptr_t> last{0};
  return reinterpret_cast<Handle*>(++last);  // NOLINT(performance-no-int-to-ptr): never read through
}

}  // namespace tutti
