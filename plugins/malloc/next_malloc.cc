#include "next_malloc.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "blocks.h"

namespace tutti::preload {
namespace {

constexpr size_t kAlignment = alignof(std::max_align_t);

/// For the look-up itself, which may allocate. Nothing is ever freed.
class FirstBytes {
 public:
  void* take(size_t bytes) {
    const size_t wanted = kAlignment + (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const size_t start = used_.fetch_add(wanted, std::memory_order_relaxed);
    if (bytes > sizeof(bytes_) || start + wanted > sizeof(bytes_)) return nullptr;
    std::memcpy(bytes_ + start, &bytes, sizeof(bytes));
    return bytes_ + start + kAlignment;
  }
  bool holds(const void* pointer) const {
    const auto* const address = static_cast<const std::byte*>(pointer);
    return address >= bytes_ && address < bytes_ + sizeof(bytes_);
  }
  static size_t size(const void* pointer) {
    size_t bytes = 0;
    std::memcpy(&bytes, static_cast<const std::byte*>(pointer) - kAlignment, sizeof(bytes));
    return bytes;
  }

 private:
  std::atomic<size_t> used_{0};
  alignas(kAlignment) std::byte bytes_[16 << 10] = {};
};

// malloc is called before constructors run: all of this is initialized when the file is loaded.
constinit FirstBytes first_bytes;
constinit NextMalloc found{};
enum class Look : int { kNotYet, kRunning, kDone };
constinit std::atomic<Look> look{Look::kNotYet};

void* first_realloc(void* pointer, size_t bytes) {
  void* const memory = first_bytes.take(bytes);
  if (memory == nullptr || pointer == nullptr) return memory;
  const size_t old = FirstBytes::size(pointer);
  return std::memcpy(memory, pointer, old < bytes ? old : bytes);
}

void free_after_look(void* pointer) {
  if (!first_bytes.holds(pointer)) found.free(pointer);
}

void* realloc_after_look(void* pointer, size_t bytes) {
  if (!first_bytes.holds(pointer)) return found.realloc(pointer, bytes);
  void* const memory = found.malloc(bytes);
  if (memory == nullptr) return nullptr;
  const size_t old = FirstBytes::size(pointer);
  return std::memcpy(memory, pointer, old < bytes ? old : bytes);
}

size_t size_after_look(void* pointer) {
  return first_bytes.holds(pointer) ? FirstBytes::size(pointer) : found.malloc_usable_size(pointer);
}

// Alignments that the first bytes do not give are refused: the loader asks for none.
constinit NextMalloc during_look = {
    .malloc = [](size_t bytes) { return first_bytes.take(bytes); },
    .free = [](void*) {},
    .calloc = [](size_t count, size_t bytes) -> void* {
      size_t all = 0;
      return __builtin_mul_overflow(count, bytes, &all) ? nullptr : first_bytes.take(all);
    },
    .realloc = first_realloc,
    .memalign = [](size_t alignment, size_t bytes) -> void* {
      return alignment <= kAlignment ? first_bytes.take(bytes) : nullptr;
    },
    .posix_memalign = [](void**, size_t, size_t) { return ENOMEM; },
    .aligned_alloc = [](size_t alignment, size_t bytes) -> void* {
      return alignment <= kAlignment ? first_bytes.take(bytes) : nullptr;
    },
    .malloc_usable_size = [](void* pointer) { return FirstBytes::size(pointer); },
};

constinit NextMalloc after_look{};

template <class Function>
void look_up_one(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  if (function == nullptr) end_process("there is no other malloc: load it with LD_PRELOAD");
}

void look_up() {
  look_up_one(found.malloc, "malloc");
  look_up_one(found.free, "free");
  look_up_one(found.calloc, "calloc");
  look_up_one(found.realloc, "realloc");
  look_up_one(found.memalign, "memalign");
  look_up_one(found.posix_memalign, "posix_memalign");
  look_up_one(found.aligned_alloc, "aligned_alloc");
  look_up_one(found.malloc_usable_size, "malloc_usable_size");
  after_look = found;
  after_look.free = free_after_look;
  after_look.realloc = realloc_after_look;
  after_look.malloc_usable_size = size_after_look;
}

}  // namespace

const NextMalloc& next_malloc() {
  if (look.load(std::memory_order_acquire) == Look::kDone) [[likely]]
    return after_look;
  Look expected = Look::kNotYet;
  if (!look.compare_exchange_strong(expected, Look::kRunning)) {
    return expected == Look::kDone ? after_look : during_look;
  }
  look_up();
  look.store(Look::kDone, std::memory_order_release);
  // Here, so that no other library has set handlers before.
  blocks.set_fork_handlers();
  return after_look;
}

}  // namespace tutti::preload
