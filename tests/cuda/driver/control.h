// What tests ask the fake driver besides what a driver answers. On a real driver there is nothing to ask.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace fake_cuda {

/// Signature of `fake_cuda_leaks`, which the fake driver exports: a line for each thing that this process has
/// made through the driver and not given back. Valid until the thread asks again.
using LeaksFunction = const char* (*)();

/// A function of the fake driver that this process has loaded; null: it has a real one, or none.
inline void* control(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver != nullptr ? dlsym(driver, name) : nullptr;
}

inline bool is_loaded() {
  return control("fake_cuda_leaks") != nullptr;
}

/// Empty: nothing is left behind, or nobody knows.
inline std::string leaks() {
  const auto ask = reinterpret_cast<LeaksFunction>(control("fake_cuda_leaks"));
  return ask != nullptr ? ask() : "";
}

/// Whether the fake driver keeps the host from touching device memory on this machine.
inline bool guards_memory() {
  const auto ask = reinterpret_cast<bool (*)()>(control("fake_cuda_guards_memory"));
  return ask != nullptr && ask();
}

/// Images that this process has loaded so far, and kernels that it has found in them. 0 also where nobody
/// knows.
inline uint64_t loads() {
  const auto ask = reinterpret_cast<uint64_t (*)()>(control("fake_cuda_loads"));
  return ask != nullptr ? ask() : 0;
}

/// Launches so far of a kernel of this name, without those that were captured. 0 also where nobody knows.
inline uint64_t launches(const char* kernel) {
  const auto ask = reinterpret_cast<uint64_t (*)(const char*)>(control("fake_cuda_launches"));
  return ask != nullptr ? ask(kernel) : 0;
}

/// Launches so far of which all blocks are resident at once. 0: none, or nobody knows.
inline uint64_t cooperative_launches() {
  const auto ask = reinterpret_cast<uint64_t (*)()>(control("fake_cuda_cooperative_launches"));
  return ask != nullptr ? ask() : 0;
}

/// Bytes that were copied between devices and the host so far, captured copies once.
inline uint64_t crossed_bytes() {
  const auto ask = reinterpret_cast<uint64_t (*)()>(control("fake_cuda_crossed_bytes"));
  return ask != nullptr ? ask() : 0;
}

/// Calls of cuFlushGPUDirectRDMAWrites so far.
inline uint64_t card_flushes() {
  const auto ask = reinterpret_cast<uint64_t (*)()>(control("fake_cuda_card_flushes"));
  return ask != nullptr ? ask() : 0;
}

/// How often the bytes occur in memory of devices that processes share by file, such as that of links; only
/// while nothing runs there. 0 also where nobody knows.
inline uint64_t count_shared(const void* pattern, size_t bytes) {
  const auto ask = reinterpret_cast<uint64_t (*)(const void*, size_t)>(control("fake_cuda_count_shared"));
  return ask != nullptr ? ask(pattern, bytes) : 0;
}

}  // namespace fake_cuda
