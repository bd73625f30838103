// RankFacts: what a rank tells all others during set-up: facts, never decisions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bootstrap/servers.h"
#include "comm/process.h"
#include "core/cpu.h"
#include "device/device_rank.h"
#include "net/endpoint.h"
#include "transports/registry.h"

namespace tutti {

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
  uint64_t heap_base = 0;
  uint64_t heap_bytes = 0;
  uint32_t slots = 0;
  uint32_t slot_bytes = 0;  ///< 0: automatic
  CpuSet cpus;              ///< that its thread may use; launchers bind ranks to cores
  uint32_t cpu_quota = 0;
  uint32_t reproducible = 0;
  uint32_t threads = 0;
  AgreedValues transports{};  ///< settings of transports
  uint64_t heartbeat_ms = 0;
  uint64_t stripe_bytes = 0;
  DeviceIdentity device{};
  uint64_t choice = 0;  ///< hash of everything that chooses algorithms
};
static_assert(sizeof(RankFacts) <= 512);

/// Files of a rank at its process's file server, in this order.
inline constexpr size_t kSegmentFile = 0;
inline constexpr size_t kHeapFile = 1;
inline constexpr size_t kLifeFile = 2;
inline constexpr size_t kDeviceFile =
    3;  ///< if device.has_file; otherwise any file, because all ranks offer the same number
inline constexpr size_t kMulticastFile = 4;  ///< of rank 0, if its device.multicasts; otherwise any file
inline constexpr size_t kRankFiles = 5;

/// Files that are needed after set-up.
struct KeptFiles {
  FileDescriptor life;       ///< of the first rank of each process
  FileDescriptor device;     ///< of ranks on devices
  FileDescriptor multicast;  ///< of rank 0
};

}  // namespace tutti
