// Config: every setting of the library, read once. docs/configuration.md describes the settings; a test
// compares the two lists.
//
// The caller's tutti_config_t overrides the environment, and the environment overrides the defaults. No other
// code reads the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/result.h"

namespace tutti {

/// How a rank waits for a message.
enum class WaitMode : uint8_t {
  kAuto,    ///< spin if the host has a core for every rank, else yield
  kSpin,    ///< poll; after a while sleep between polls
  kYield,   ///< yield the core between polls; after a while sleep between polls
  kBeside,  ///< progress threads: as kYield, but sleep at once if a computing thread wants the core
};

/// The longest deadline that a user can set.
inline constexpr uint64_t kYearMs = 365ull * 24 * 3600 * 1000;

/// More threads of one rank than a socket's memory can serve would only wait for each other.
inline constexpr uint32_t kMaxThreads = 16;

/// More connections between two ranks gain nothing on any network.
inline constexpr uint32_t kMaxConnections = 16;

/// Settings of InfiniBand and RoCE. Each has a name of NCCL too, read where TUTTI's is not set.
struct InfinibandConfig {
  /// TUTTI_IB_DISABLE: 1 = RDMA is not used.
  bool is_disabled = false;
  /// TUTTI_IB_HCA: devices or device:port. Prefixes separated by commas; "=" in front: whole names; "^": all
  /// but these. Empty: all.
  std::string devices;
  /// TUTTI_IB_GID_INDEX: entry of the port's GID table; -1: chosen (transports/rdma/device.h).
  int32_t gid_index = -1;
  /// TUTTI_IB_SL: service level of InfiniBand; RoCE: priority.
  uint32_t service_level = 0;
  /// TUTTI_IB_TC: traffic class; its upper six bits are the DSCP of RoCE v2.
  uint32_t traffic_class = 0;
  /// TUTTI_IB_TIMEOUT: one try takes 4.096 us * 2^timeout; 0: derived from TUTTI_HEARTBEAT_MS and
  /// TUTTI_TIMEOUT_MS.
  uint32_t timeout = 0;
  /// TUTTI_IB_PINNED_BYTES: memory of a rank that may be registered for slots and the heap.
  uint64_t pinned_bytes = 1ull << 30;
};

struct Config {
  /// TUTTI_TIMEOUT_MS: how long one operation may make no progress.
  uint64_t timeout_ms = 600'000;
  /// TUTTI_SETUP_TIMEOUT_MS: deadline of creating a communicator.
  uint64_t setup_timeout_ms = 120'000;
  /// TUTTI_WAIT: auto, spin or yield.
  WaitMode wait = WaitMode::kAuto;
  /// TUTTI_SLOT_BYTES: largest slice in one slot; power of two, 4 KiB..1 MiB. 0: 64 KiB if every rank is
  /// alone on its host, else 16 KiB, and wide slots for long messages (src/comm/builder.cc says why).
  uint32_t slot_bytes = 0;
  /// TUTTI_SLOTS: slots of a link; power of two, 4..256; 0: by the number of ranks. One round uses half of
  /// the slots.
  uint32_t slots = 0;
  /// TUTTI_REPRODUCIBLE: 1 = same bits for any algorithm, placement and message size.
  bool reproducible = false;
  /// TUTTI_THREADS: threads of a rank for one operation, the caller's included; 1..kMaxThreads, equal on all
  /// ranks.
  uint32_t threads = 1;
  /// TUTTI_STRIPE_BYTES: bytes of a call for each further thread; equal on all ranks.
  uint64_t stripe_bytes = 1u << 20;
  /// TUTTI_CHOICE_FILE: replaces the built-in table of algorithms.
  std::string choice_file;
  /// TUTTI_PRICES: 0 = no algorithm is chosen by its price; equal on all ranks.
  bool prices = true;
  /// TUTTI_TOPOLOGY_FILE: what is connected to what, in place of detection. Rank 0's may describe all hosts.
  std::string topology_file;
  /// TUTTI_CACHE_DIR, else XDG_CACHE_HOME/tutti, else HOME/.cache/tutti: where measured tables and detected
  /// graphs are kept. Empty: nowhere.
  std::string cache_folder;
  /// TUTTI_ALGORITHM: used for every call that this algorithm supports; for experiments.
  std::string algorithm;
  /// TUTTI_HEAP_BYTES: address space of a process for tutti_mem_alloc; 0 = physical memory.
  uint64_t heap_bytes = 0;
  /// TUTTI_REFERENCE_BYTES: from this size on, messages travel by reference if both sides can.
  uint64_t reference_bytes = 16384;
  /// TUTTI_PULL_BYTES: from this size on, collectives and messages may be copied out of the sender's process,
  /// if the kernel allows this and memory is not shared. Both ways are timed (transports/carriage_trials.h).
  uint64_t pull_bytes = 32768;
  /// Whether the user has set it. Else ranks that share cores pull from 16 MiB on, others only where slots
  /// are slow.
  bool pull_bytes_set = false;
  /// TUTTI_DIRECT_WRITE_BYTES: from this size on, the sender stores results in the receivers' buffers, if the
  /// plan allows this and the buffers are in shared memory.
  uint64_t direct_write_bytes = 1u << 20;
  /// TUTTI_STREAMING_BYTES: from this size on, results may be written with non-temporal stores: calls
  /// time both ways (src/engine/result_trials.h). With small L2 caches read_config sets 32768.
  uint64_t streaming_bytes = 49152;
  /// TUTTI_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME: network interfaces; empty = all
  /// but loopback and docker. Prefixes separated by commas; "=" in front: whole names; "^": all but these.
  /// Gloo's value holds whole names and gets a "=" in front.
  std::string socket_ifname;
  /// TUTTI_PORT_RANGE: "first-last", the ports to listen on; port_first 0 = any free port.
  uint16_t port_first = 0;
  uint16_t port_last = 0;
  /// TUTTI_HOSTID: processes with different ids share no memory. Tests emulate hosts this way.
  std::string host_id;
  /// TUTTI_HEARTBEAT_MS: a rank without a heartbeat for this time is lost; 0: never; equal on all ranks.
  uint64_t heartbeat_ms = 10'000;
  /// TUTTI_INSPECT_PORTS: "first-last"; tutti-inspect reaches a process at the lowest free port.
  /// inspect_first 0: only from the process's own host.
  uint16_t inspect_first = 0;
  uint16_t inspect_last = 0;
  /// TUTTI_REPORT_SIGNAL: 1 = on SIGUSR2 the process writes its ranks' state to standard error.
  bool report_signal = false;
  /// TUTTI_CONNECTIONS: TCP connections for the data of two ranks; 1..16, equal on all ranks.
  uint32_t connections = 1;
  /// TUTTI_TLS: 1 = the data between hosts is encrypted and signed (TLS 1.3); equal on all ranks.
  bool tls = false;
  /// TUTTI_TRANSPORT: name of the transport between ranks of different hosts; empty = the cheapest; equal on
  /// all ranks.
  std::string transport;
  InfinibandConfig infiniband;
  /// TUTTI_GPU_DIRECT, else NCCL_DMABUF_ENABLE, else NCCL_NET_GDR_LEVEL (LOC: 0): 0 = network cards do not
  /// access the memory of GPUs; all ranks do without if one does.
  bool gpu_direct = true;
  /// CUDA_DEVICE_MAX_CONNECTIONS: a device's queues, over which the driver spreads the streams. For values
  /// that the driver ignores: the driver's default.
  uint32_t device_queues = 8;
  /// TUTTI_GPU_YIELD: 1 = launches that wait for another process on the same device leave the device to that
  /// process.
  bool gpu_yield = false;
  /// TUTTI_KEY, else the contents of the file TUTTI_KEY_FILE: the secret of a bootstrap without a unique id;
  /// at least 16 characters, or empty.
  std::string key;
};

using Environment = std::function<const char*(const char* name)>;

/// Errors: kInvalidArgument naming the variable, its value and the range.
Result<Config> read_config(const Environment& environment);

/// The bootstrap's settings that can be read, and defaults for the rest. A rank with wrong settings uses them
/// to tell the other ranks.
Config read_bootstrap_config(const Environment& environment);

/// The process's environment.
Environment process_environment();

}  // namespace tutti
