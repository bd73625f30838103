// Config: every setting of the library, read once.
//
// Order of precedence: defaults, then the environment, then what the caller's tutti_config_t sets. The
// environment is read nowhere else. docs/configuration.md lists the same fields (a test compares them).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/result.h"

namespace tutti {

/// How a rank waits for a message.
enum class WaitMode : uint8_t {
  kAuto,    ///< spin when the host has a core for every rank, else yield
  kSpin,    ///< poll; after a while sleep between polls
  kYield,   ///< give the core away between polls; after a while sleep between polls
  kBeside,  ///< progress threads: as kYield, but sleep at once where a computing thread wants the core
};

/// The longest deadline that can be asked for.
inline constexpr uint64_t kYearMs = 365ull * 24 * 3600 * 1000;

/// More threads of one rank than a socket's memory needs would only wait for each other.
inline constexpr uint32_t kMaxThreads = 16;

/// More connections than this between two ranks gain nothing on any network.
inline constexpr uint32_t kMaxConnections = 16;

struct Config {
  /// TUTTI_TIMEOUT_MS: deadline of one operation.
  uint64_t timeout_ms = 600'000;
  /// TUTTI_SETUP_TIMEOUT_MS: deadline of creating a communicator.
  uint64_t setup_timeout_ms = 120'000;
  /// TUTTI_WAIT: auto, spin or yield.
  WaitMode wait = WaitMode::kAuto;
  /// TUTTI_SLOT_BYTES: largest slice of a message that travels as one slot; power of two, 4 KiB..1 MiB. 0: 64
  /// KiB where every rank is alone on its host, else 16 KiB (src/comm/connect.cc has the reasons).
  uint32_t slot_bytes = 0;
  /// TUTTI_SLOTS: slots of a link; power of two, 4..256. Half of them serve one round.
  uint32_t slots = 32;
  /// TUTTI_REPRODUCIBLE: 1 = same bits for any algorithm, placement and message size.
  bool reproducible = false;
  /// TUTTI_THREADS: threads that work on one operation of a rank: the caller's, and workers of the
  /// communicator; 1..kMaxThreads, equal on all ranks.
  uint32_t threads = 1;
  /// TUTTI_STRIPE_BYTES: a further thread takes part for every so many bytes of a call; equal on all ranks.
  uint64_t stripe_bytes = 1u << 20;
  /// TUTTI_CHOICE_FILE: table that chooses algorithms instead of the built-in one.
  std::string choice_file;
  /// TUTTI_ALGORITHM: an algorithm's name; used wherever it supports the call, for experiments.
  std::string algorithm;
  /// TUTTI_HEAP_BYTES: address space reserved for tutti_mem_alloc in a process; 0 = physical memory.
  uint64_t heap_bytes = 0;
  /// TUTTI_REFERENCE_BYTES: messages of at least this size travel by reference where both sides can.
  uint64_t reference_bytes = 16384;
  /// TUTTI_PULL_BYTES: collectives of at least this size may copy out of the sender's process where the
  /// kernel allows it and memory is not shared. Staging through slots was as fast or faster between the cores
  /// that were measured, near ones and far ones (docs/performance.md), but no other machine is known, so a
  /// communicator times both for its large calls.
  uint64_t pull_bytes = 1u << 20;
  /// TUTTI_DIRECT_WRITE_BYTES: results of at least this size are stored straight into the receivers' buffers,
  /// where the plan allows it and they lie in shared memory.
  uint64_t direct_write_bytes = 1u << 20;
  /// TUTTI_STREAMING_BYTES: results of at least this size are written with non-temporal stores. From 1 MiB,
  /// a core's second cache, on that took 5 to 30 % less time where the result was not in a cache and as much
  /// where it was; at 256 KiB it took 20 to 40 % more where it was (`./dev bench`, with and without --hot).
  uint64_t streaming_bytes = 1u << 20;
  /// TUTTI_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME: which network interfaces serve;
  /// empty = all but loopback and docker. Prefixes separated by commas; "=" in front: whole names; "^": all
  /// but these; Gloo's spelling is of whole names and is kept here with a "=" in front.
  std::string socket_ifname;
  /// TUTTI_PORT_RANGE: "first-last", the ports to listen on; port_first 0 = any free port.
  uint16_t port_first = 0;
  uint16_t port_last = 0;
  /// TUTTI_HOSTID: processes that name different ones share no memory, as if they ran on different hosts; for
  /// tests that emulate hosts on one machine.
  std::string host_id;
  /// TUTTI_HEARTBEAT_MS: a rank that gives no sign of life for so long is lost; 0: none is asked for; equal
  /// on all ranks.
  uint64_t heartbeat_ms = 10'000;
  /// TUTTI_INSPECT_PORTS: "first-last", of which a process takes the lowest free one to answer tutti-inspect
  /// over the network; inspect_first 0 = it answers on its own host only.
  uint16_t inspect_first = 0;
  uint16_t inspect_last = 0;
  /// TUTTI_REPORT_SIGNAL: 1 = SIGUSR2 makes the process write to standard error what its ranks are doing.
  bool report_signal = false;
  /// TUTTI_CONNECTIONS: TCP connections that carry the data of two ranks; 1..16, equal on all ranks.
  uint32_t connections = 1;
  /// TUTTI_TLS: 1 = the data between hosts is encrypted and signed (TLS 1.3); equal on all ranks.
  bool tls = false;
  /// TUTTI_TRANSPORT: name of the transport that joins ranks of different hosts; empty = the cheapest; equal
  /// on all ranks.
  std::string transport;
  /// CUDA_DEVICE_MAX_CONNECTIONS, which CUDA's driver reads too: queues of a device, to which the process's
  /// streams are dealt; where the driver would ignore it, the driver's default.
  uint32_t device_queues = 8;
  /// TUTTI_KEY, else the contents of the file TUTTI_KEY_FILE: the secret that ranks prove to each other where
  /// no unique id carries one; at least 16 characters, or empty.
  std::string key;
};

using Environment = std::function<const char*(const char* name)>;

/// Errors: kInvalidArgument naming the variable, its value and the range.
Result<Config> read_config(const Environment& environment);

/// The settings by which a rank finds the others and proves itself, where they can be read, and defaults for
/// the rest: for a rank whose settings are refused, to tell the others.
Config read_bootstrap_config(const Environment& environment);

/// The process's environment.
Environment process_environment();

}  // namespace tutti
