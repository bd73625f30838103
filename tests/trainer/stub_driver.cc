// The stub of libcuda.so.1; see stub_gpu.h.
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/trainer/stub_gpu.h"

#define STUB __attribute__((visibility("default")))

namespace tutti::test {

STUB StubGpu stub_gpu __asm__("stub_gpu");

namespace {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialized = 3;
constexpr int kInvalidContext = 201;
constexpr uint64_t kFirstAddress = uint64_t{1} << 62;  // no host address, so a mix-up faults

std::mutex mutex;
bool initialized = false;
std::map<uint64_t, std::vector<std::byte>> memory;
uint64_t next_address = kFirstAddress;
int the_context;
thread_local std::vector<void*> contexts;  // the current one last

int enter_driver(const char* name) {
  if (const int code = stub_enter(name); code != 0) return code;
  return initialized ? 0 : kNotInitialized;
}

/// Where the bytes from a device's or the host's address on really are; null where they are a device's but
/// not all in one piece. The mutex is held.
void* find_bytes(uint64_t address, size_t bytes) {
  if (address < kFirstAddress) return reinterpret_cast<void*>(address);
  auto piece = memory.upper_bound(address);
  if (piece == memory.begin()) return nullptr;
  --piece;
  const size_t offset = address - piece->first;
  return offset + bytes <= piece->second.size() ? piece->second.data() + offset : nullptr;
}

}  // namespace

STUB int stub_enter(const char* name) {
  const std::scoped_lock lock(mutex);
  stub_gpu.calls += std::string(name) + " ";
  if (stub_gpu.failing != name) return 0;
  stub_gpu.failing.clear();
  return stub_gpu.code;
}

STUB void stub_count_handles(int difference) {
  const std::scoped_lock lock(mutex);
  stub_gpu.handle_count += difference;
}

STUB int init(unsigned flags) __asm__("cuInit");
int init(unsigned flags) {
  if (const int code = stub_enter("cuInit"); code != 0) return code;
  initialized = true;
  return flags == 0 ? 0 : kInvalidValue;
}

STUB int device_get_count(int* count) __asm__("cuDeviceGetCount");
int device_get_count(int* count) {
  *count = stub_gpu.gpu_count;
  return enter_driver("cuDeviceGetCount");
}

STUB int device_get(int* device, int ordinal) __asm__("cuDeviceGet");
int device_get(int* device, int ordinal) {
  *device = 10 + ordinal;
  return ordinal < stub_gpu.gpu_count ? enter_driver("cuDeviceGet") : kInvalidValue;
}

STUB int device_get_name(char* name, int bytes, int device) __asm__("cuDeviceGetName");
int device_get_name(char* name, int bytes, int device) {
  if (device < 10 || bytes < 5) return kInvalidValue;
  std::strcpy(name, "stub");
  return enter_driver("cuDeviceGetName");
}

STUB int primary_context_retain(void** context, int device) __asm__("cuDevicePrimaryCtxRetain");
int primary_context_retain(void** context, int device) {
  if (const int code = enter_driver("cuDevicePrimaryCtxRetain"); code != 0) return code;
  const std::scoped_lock lock(mutex);
  stub_gpu.device = device - 10;
  ++stub_gpu.context_count;
  *context = &the_context;
  return 0;
}

STUB int primary_context_release(int device) __asm__("cuDevicePrimaryCtxRelease_v2");
int primary_context_release(int device) {
  const int code = enter_driver("cuDevicePrimaryCtxRelease_v2");
  const std::scoped_lock lock(mutex);
  --stub_gpu.context_count;
  return device >= 10 ? code : kInvalidValue;
}

STUB int context_push_current(void* context) __asm__("cuCtxPushCurrent_v2");
int context_push_current(void* context) {
  if (context != &the_context) return kInvalidContext;
  contexts.push_back(context);
  return 0;
}

STUB int context_pop_current(void** context) __asm__("cuCtxPopCurrent_v2");
int context_pop_current(void** context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}

STUB int context_get_current(void** context) __asm__("cuCtxGetCurrent");
int context_get_current(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return 0;
}

STUB int memory_allocate(unsigned long long* address, size_t bytes) __asm__("cuMemAlloc_v2");
int memory_allocate(unsigned long long* address, size_t bytes) {
  if (const int code = enter_driver("cuMemAlloc_v2"); code != 0) return code;
  if (contexts.empty()) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  const std::scoped_lock lock(mutex);
  if (stub_gpu.live_bytes + bytes > stub_gpu.memory_bytes) return kOutOfMemory;
  stub_gpu.live_bytes += bytes;
  *address = next_address;
  memory[next_address].assign(bytes, std::byte{0xff});
  next_address += bytes + 4096;
  return 0;
}

STUB int memory_free(unsigned long long address) __asm__("cuMemFree_v2");
int memory_free(unsigned long long address) {
  if (const int code = enter_driver("cuMemFree_v2"); code != 0) return code;
  const std::scoped_lock lock(mutex);
  const auto piece = memory.find(address);
  if (piece == memory.end()) return kInvalidValue;
  stub_gpu.live_bytes -= piece->second.size();
  memory.erase(piece);
  return 0;
}

STUB int memory_copy(uint64_t to, uint64_t from, size_t bytes, void* stream) __asm__("cuMemcpyAsync");
int memory_copy(uint64_t to, uint64_t from, size_t bytes, void* /*stream*/) {
  const std::scoped_lock lock(mutex);
  void* const target = find_bytes(to, bytes);
  const void* const source = find_bytes(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  std::memcpy(target, source, bytes);
  return 0;
}

STUB int stream_synchronize(void* stream) __asm__("cuStreamSynchronize");
int stream_synchronize(void* /*stream*/) {
  return 0;
}

STUB int get_error_string(int code, const char** text) __asm__("cuGetErrorString");
int get_error_string(int code, const char** text) {
  *text = code == kOutOfMemory ? "out of memory"
          : code == 100        ? "no CUDA-capable device is detected"
                               : nullptr;
  return *text != nullptr ? 0 : kInvalidValue;
}

}  // namespace tutti::test
