// Machine: the state of the fake driver in this process: its devices, their primary contexts, and the one
// lock over everything that a call of the driver may touch.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/driver/cuda_api.h"
#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/settings.h"

namespace fake_cuda {

class Device;
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
struct Library;
struct Kernel;
struct Capture;

/// The primary context of a device.
struct Context {
  Device* device = nullptr;
  int retained = 0;
  std::unique_ptr<Stream> legacy;                                 ///< the default stream
  std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;  ///< the other default stream
};

/// What cuMemCreate made, or an import.
struct Allocation {
  std::shared_ptr<Physical> physical;
  int references = 1;
};

/// What cuMemPoolCreate made, or a device's own.
struct Pool {
  Device* device = nullptr;
  std::map<int, uint64_t> attributes;  ///< as they were set
};

/// The objects behind one kind of handle.
template <class T>
class Handles {
 public:
  T* add(std::unique_ptr<T> object) {
    T* raw = object.get();
    live_.emplace(raw, std::move(object));
    return raw;
  }
  /// Null where the handle is none of the driver's.
  template <class Handle>
  T* find(Handle handle) const {
    const auto found = live_.find(reinterpret_cast<T*>(handle));
    return found == live_.end() ? nullptr : found->second.get();
  }
  std::unique_ptr<T> remove(T* object) {
    const auto found = live_.find(object);
    std::unique_ptr<T> owned = std::move(found->second);
    live_.erase(found);
    return owned;
  }
  size_t count() const { return live_.size(); }
  auto begin() const { return live_.begin(); }
  auto end() const { return live_.end(); }

 private:
  std::map<T*, std::unique_ptr<T>> live_;
};

struct Machine {
  Machine();
  ~Machine();

  std::mutex lock;
  std::condition_variable changed;  ///< work has ended
  bool initialized = false;
  std::vector<std::unique_ptr<Device>> devices;
  std::set<std::pair<Device*, Device*>> peers;  ///< the first may touch memory of the second
  AddressSpace memory;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Graph> graphs;
  Handles<GraphExec> executables;
  Handles<Library> libraries;
  Handles<Kernel> kernels;
  Handles<Allocation> allocations;
  Handles<Pool> pools;
  std::vector<std::weak_ptr<Capture>> captures;
  std::map<std::string, int> calls;          ///< of functions that a fault names
  std::map<std::string, uint64_t> launches;  ///< of kernels, outside captures
  uint64_t loads = 0;                        ///< of images and kernels
  uint64_t cooperative_launches = 0;
  uint64_t crossed_bytes = 0;  ///< of copies between devices and the host
  uint64_t card_flushes = 0;

  Device* device(CUdevice ordinal) const;
};

/// Never destroyed: threads of devices and of the program may still run when the process exits.
Machine& machine();

/// The contexts that are current in the calling thread, the innermost last.
std::vector<Context*>& context_stack();
/// Null: none.
Context* current_context();

using Guard = std::unique_lock<std::mutex>;

/// What every function of the driver begins with: takes the lock; CUDA_ERROR_NOT_INITIALIZED, or the fault
/// that the environment asked for.
CUresult enter(const char* function, Guard& guard);

/// Begins a function of the driver.
#define FAKE_CALL(function) \
  ::fake_cuda::Guard guard; \
  if (const CUresult refusal = ::fake_cuda::enter(#function, guard); refusal != CUDA_SUCCESS) return refusal

/// Begins one that needs a current context.
#define FAKE_CALL_IN_CONTEXT(function)                                  \
  FAKE_CALL(function);                                                  \
  ::fake_cuda::Context* const context = ::fake_cuda::current_context(); \
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT

/// Begins one that CUDA forbids while a stream is captured in a mode that covers the calling thread.
#define FAKE_UNSAFE_CALL(function) \
  FAKE_CALL_IN_CONTEXT(function);  \
  if (const CUresult refusal = ::fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal

/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the end of those captures, where the calling thread may make no
/// unsafe call now.
CUresult forbid_in_capture();

/// A line for each thing that was made and not given back.
std::vector<std::string> list_leaks();

}  // namespace fake_cuda
