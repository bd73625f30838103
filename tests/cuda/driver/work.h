// What streams hold: tasks, alone or as the nodes of a graph, and the token of each piece of work, by which
// others wait for it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "tests/cuda/driver/cuda_api.h"
#include "tests/cuda/driver/kernels.h"

namespace fake_cuda {

class Device;
struct Context;

/// Whether a piece of work has ended, and when. Guarded by Machine::lock.
struct Token {
  bool done = false;
  uint64_t done_ns = 0;
};
using TokenPointer = std::shared_ptr<Token>;

struct EmptyTask {};
struct KernelTask {
  const HostKernel* kernel = nullptr;
  uint32_t blocks = 1;
  uint32_t threads = 1;
  bool cooperative = false;
  std::vector<unsigned char> argument;
  // Of a kernel of PTX; `kernel` is null.
  ptx::GridFacts grid;
  std::shared_ptr<std::vector<uint64_t>> workspace;
};
/// `bytes` of each row.
struct CopyTask {
  uintptr_t target = 0;
  uintptr_t source = 0;
  size_t bytes = 0;
  size_t rows = 1;
  size_t slices = 1;
  size_t target_pitch = 0;
  size_t source_pitch = 0;
  size_t target_slice = 0;  ///< bytes from a slice to the next
  size_t source_slice = 0;
  std::vector<unsigned char> staged;  ///< what a source in pageable host memory held at the call
  bool corrupt = false;               ///< between a broken pair of devices
};
struct FillTask {
  uintptr_t target = 0;
  size_t bytes = 0;  ///< of each row
  uint32_t value = 0;
  unsigned value_bytes = 1;
  size_t rows = 1;
  size_t pitch = 0;
};
/// Gives memory of cuMemAllocAsync back.
struct FreeTask {
  uintptr_t address = 0;
};
/// Waits for, or writes, a word of 4 or 8 bytes.
struct ValueTask {
  bool waits = false;
  uintptr_t address = 0;
  uint64_t value = 0;
  unsigned bytes = 4;
  unsigned flags = 0;
};
struct HostTask {
  CUhostFn function = nullptr;
  void* argument = nullptr;
};
using Task = std::variant<EmptyTask, KernelTask, CopyTask, FillTask, ValueTask, HostTask, FreeTask>;

struct Node {
  Task task;
  std::vector<size_t> dependencies;  ///< earlier nodes
};
using Nodes = std::vector<Node>;

/// One entry of a stream: starts once what it waits for has ended, and ends with the last of its nodes.
struct Work {
  enum class State : uint8_t { kPending, kRunning, kDone };

  std::vector<TokenPointer> waits;
  std::shared_ptr<const Nodes> nodes;
  std::vector<State> states;
  std::vector<uint64_t> grids;  ///< of running kernels
  uint64_t stream = 0;          ///< for the scheduler
  uint64_t order = 0;           ///< in which the device was given its work
  TokenPointer token = std::make_shared<Token>();
};

/// The capture of one stream, and of those that have joined it, into a graph.
struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Nodes nodes;
  bool invalid = false;
  std::set<struct Stream*> streams;
};

struct Stream {
  Context* context = nullptr;
  Device* device = nullptr;
  uint64_t id = 0;
  bool blocking = true;  ///< takes turns with the legacy default stream
  bool destroyed = false;
  int priority = 0;
  std::deque<std::shared_ptr<Work>> queue;
  TokenPointer last;  ///< of the latest work; null: none yet
  std::shared_ptr<Capture> capture;
  bool is_origin = false;        ///< the capture began here
  std::vector<size_t> frontier;  ///< nodes that the next one will depend on
};

struct Event {
  Context* context = nullptr;
  bool timed = true;
  TokenPointer token;  ///< null: never recorded
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

/// A node as programs know it.
struct GraphNode {
  struct Graph* graph = nullptr;
  size_t index = 0;
};

struct Graph {
  Nodes nodes;
  std::map<size_t, std::unique_ptr<GraphNode>> handles;  ///< those that somebody has asked for
};

struct GraphExec {
  std::shared_ptr<const Nodes> nodes;
  TokenPointer last;  ///< launches of one graph run one after the other
};

}  // namespace fake_cuda
