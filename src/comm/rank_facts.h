// RankFacts: what a rank tells all others during set-up: facts, never decisions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bootstrap/blobs.h"
#include "bootstrap/servers.h"
#include "bootstrap/unique_id.h"
#include "comm/process.h"
#include "core/cpu.h"
#include "device/device_rank.h"
#include "net/endpoint.h"
#include "net/process_file.h"
#include "transports/registry.h"

namespace tutti {

/// Files of a rank at its process's file server, in this order.
inline constexpr size_t kSegmentFile = 0;
inline constexpr size_t kHeapFile = 1;
inline constexpr size_t kLifeFile = 2;
inline constexpr size_t kDeviceFile =
    3;  ///< if device.has_file; otherwise any file, because all ranks offer the same number
inline constexpr size_t kMulticastFile = 4;  ///< of rank 0, if its device.multicasts; otherwise any file
inline constexpr size_t kRankFiles = 5;
/// The first ones, which every peer of the host needs.
inline constexpr size_t kNamedFiles = 3;

struct RankFacts {
  Process::Token process{};
  uint64_t machine = 0;
  uint64_t host = 0;
  PackedEndpoints data{};    ///< of its data port; none if all ranks are on one host
  FileSecret secret{};       ///< lets peers fetch its files from the file server
  uint64_t segment_key = 0;  ///< finds its segment within its process
  uint64_t token_address =
      0;  ///< of `process` in its memory: a peer that reads it has shown that it can pull
  int64_t pid = 0;
  std::array<ProcessFile, kNamedFiles> files{};  ///< for peers that may open them without asking
  uint64_t heap_base = 0;
  uint64_t heap_bytes = 0;
  uint32_t slots = 0;             ///< of the rings that it writes
  uint32_t demotes_lines = 0;     ///< 1: its processor can (core/cache_hints.h)
  uint32_t configured_slots = 0;  ///< 0: automatic
  uint32_t slot_bytes = 0;        ///< 0: automatic
  CpuSet cpus;                    ///< that its thread may use; launchers bind ranks to cores
  uint32_t cpu_quota = 0;
  uint32_t reproducible = 0;
  uint32_t threads = 0;
  AgreedValues transports{};  ///< settings of transports
  uint64_t heartbeat_ms = 0;
  uint64_t stripe_bytes = 0;
  uint64_t reference_bytes = 0;
  uint64_t pull_bytes = 0;
  DeviceIdentity device{};
  uint64_t tuned = 0;             ///< hash of Process::tuned_text(); 0: none
  uint32_t names_topology = 0;    ///< 1: the user has named a topology file
  uint16_t pull_bytes_set = 0;    ///< 1: by the user
  uint16_t sibling_distance = 0;  ///< of `cpus`, as sibling_distance() gives it
  uint64_t choice = 0;            ///< hash of everything that chooses algorithms

  /// The CPUs, and the first ones of their cores, by which a graph knows cores.
  CpuSet core_cpus() const { return with_first_siblings(cpus, sibling_distance); }
};
static_assert(sizeof(RankFacts) <= 512);

/// By rank. Thousands of ranks of one process share one table: a table each would take gigabytes.
using RankTable = std::shared_ptr<const std::vector<RankFacts>>;
/// Reads what all ranks of the bootstrap `id` have said. Any thread.
RankTable read_introductions(const UniqueId& id, const Blobs& introductions);

/// Files that are needed after set-up.
struct KeptFiles {
  FileDescriptor life;       ///< of the first rank of each process
  FileDescriptor device;     ///< of ranks on devices
  FileDescriptor multicast;  ///< of rank 0
};

}  // namespace tutti
