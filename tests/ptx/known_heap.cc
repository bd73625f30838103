// Every allocation of the process, for the bounds of what translated PTX touches: the program's own operator
// new keeps a list. Also known are the variables of the program and of the calling thread's stack.
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>

#include "tests/simt/known_memory.h"

extern "C" char __data_start;
extern "C" char _end;

namespace {

template <class T>
struct Malloc {
  using value_type = T;
  Malloc() = default;
  template <class U>
  explicit Malloc(const Malloc<U>& /*other*/) {}
  T* allocate(size_t count) { return static_cast<T*>(std::malloc(count * sizeof(T))); }
  void deallocate(T* memory, size_t /*count*/) { std::free(memory); }
  bool operator==(const Malloc& /*other*/) const { return true; }
};
using Blocks = std::map<uint64_t, uint64_t, std::less<>, Malloc<std::pair<const uint64_t, uint64_t>>>;

class Lock {
 public:
  Lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Lock() { flag_.clear(std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static inline std::atomic_flag flag_;
};

/// Lives as long as the process: memory is freed until its end.
Blocks& blocks() {
  static Blocks* const known = new (std::malloc(sizeof(Blocks))) Blocks;
  return *known;
}

bool in_stack(uint64_t address, uint64_t bytes) {
  static const auto [begin, end] = [] {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    size_t size = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    const auto first = reinterpret_cast<uint64_t>(lowest);
    return std::pair(first, first + size);
  }();
  return address >= begin && address + bytes <= end;
}

bool is_known(uint64_t address, uint64_t bytes) {
  const auto data = reinterpret_cast<uint64_t>(&__data_start);
  if (address >= data && address + bytes <= reinterpret_cast<uint64_t>(&_end)) return true;
  if (in_stack(address, bytes)) return true;
  const Lock lock;
  const auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address - begin <= size && bytes <= size - (address - begin);
}

[[maybe_unused]] const bool g_installed = (tutti::simt::set_memory_check(&is_known), true);

void* allocate(size_t bytes, size_t alignment) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                     bytes == 0 ? 1 : bytes) != 0)
    throw std::bad_alloc();
  const Lock lock;
  blocks()[reinterpret_cast<uint64_t>(memory)] = bytes;
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  {
    const Lock lock;
    blocks().erase(reinterpret_cast<uint64_t>(memory));
  }
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  release(memory);
}
void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  release(memory);
}
