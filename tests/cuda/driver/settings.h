// What the environment asks of the fake driver: the machine that it pretends to be, and faults.
//
//   FAKE_CUDA_DEVICES=1            devices of the machine; CUDA_VISIBLE_DEVICES picks among them, by number
//   FAKE_CUDA_SMS=4                multiprocessors of a device
//   FAKE_CUDA_BLOCKS=2             blocks that a multiprocessor holds at a time
//   FAKE_CUDA_THREADS=32           threads of a block that run at the most; kernels here are right with any
//   FAKE_CUDA_COOPERATIVE=2        blocks that a cooperative launch may have; 0: there are no such launches
//   FAKE_CUDA_QUEUE=100            entries of a stream; a launch into a full one blocks its thread
//   FAKE_CUDA_SEED=1               order in which threads and blocks run
//   FAKE_CUDA_VERSION=13000        CUDA version of the driver
//   FAKE_CUDA_CAPABILITY=90        compute capability of the devices, without the dot
//   FAKE_CUDA_MEMORY=4294967296    bytes of a device, in each process
//   FAKE_CUDA_NO_PEER=0:1,2:3      pairs of devices without access to each other
//   FAKE_CUDA_BROKEN_PEER=0:1      pairs that claim access, between which what is written arrives wrong
//   FAKE_CUDA_NO_FILES=0           1: memory cannot be exported as a file descriptor
//   FAKE_CUDA_DMA_BUF=1            0: memory cannot be exported to network cards
//   FAKE_CUDA_WRITES_ORDERED=0     1: what cards have written is visible without a flush
//   FAKE_CUDA_HIDDEN=0             1: the host dies of SIGSEGV where it touches memory of cuMemAlloc; kernels
//   cannot run then, but what copies and network cards do is right
//   FAKE_CUDA_MULTICAST=0          1: devices have multicast memory
//   FAKE_CUDA_MPS=0                1: devices say that processes share them by MPS
//   FAKE_CUDA_TURNS=path           a file: processes run kernels in turn, each until it has none left to run
//   FAKE_CUDA_FAIL=cuMemAlloc:3:2  the third call of a function and all later ones return error 2; several:
//   by commas
//   FAKE_CUDA_SERIAL=0             1: of a graph's branches only one runs at a time
//   FAKE_CUDA_LEAKS=0              1: a process that leaves something behind says what, and exits with 86
//   CUDA_DEVICE_MAX_CONNECTIONS    queues of a device, to which its streams are dealt: what cannot begin
//   holds up all that was given to its queue later. Unset: each stream has its own
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/driver/cuda_api.h"

namespace fake_cuda {

using DevicePairs = std::vector<std::pair<int, int>>;

/// From the `after`-th call on (counted from 1) `function` returns `result`.
struct Fault {
  std::string function;
  int after = 1;
  CUresult result = CUDA_SUCCESS;
};

struct Settings {
  std::vector<int> devices;  ///< numbers, in the machine, of those that this process sees
  int multiprocessors = 4;
  int blocks_per_multiprocessor = 2;
  uint64_t most_threads = UINT64_MAX;
  uint64_t cooperative_blocks = UINT64_MAX;
  uint64_t queue_entries = UINT64_MAX;
  uint64_t seed = 1;
  int version = 13000;
  int capability = 90;
  size_t memory_bytes = size_t{4} << 30;
  bool no_files = false;
  bool dma_buf = true;
  bool writes_ordered = false;
  bool hidden = false;
  bool multicast = false;
  bool mps = false;
  std::string turns;
  DevicePairs no_peer;
  DevicePairs broken_peer;
  std::vector<Fault> faults;
  bool serial_graphs = false;
  uint64_t connections = UINT64_MAX;
  bool report_leaks = false;
};

/// Read at the first call.
const Settings& settings();

/// Whether `pairs` holds the two devices, in any order. Numbers of the machine.
bool holds(const DevicePairs& pairs, int one, int other);

}  // namespace fake_cuda
