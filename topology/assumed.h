// Assumed: the numbers used where no source knows better. Every one carries the origin "assumed", so that
// tutti-topo can warn. They are rates of the parts' data sheets, or typical figures. Wrong by a factor of two
// is normal; --measure replaces them.
#pragma once

#include "topology/graph.h"

namespace tutti::topology::assumed {

constexpr uint64_t kGiga = 1'000'000'000;

// Inside a server processor. A cache line goes from core to core in about 55 ns below one L3 cache (measured
// on Zen 5), in about 250 ns between packages.
constexpr Fact kCoreSpeed = {40 * kGiga};
constexpr Fact kCoreLatency = {28};
constexpr Fact kL3Speed = {80 * kGiga};
constexpr Fact kL3Latency = {35};
constexpr Fact kNumaSpeed = {100 * kGiga};
constexpr Fact kNumaLatency = {25};
/// Three UPI links of 20.8 GB/s, or three xGMI links between EPYC processors.
constexpr Fact kPackagesSpeed = {62 * kGiga};
constexpr Fact kPackagesLatency = {75};

// PCI Express: 16 lanes of the third generation, and a hop through a port.
constexpr Fact kPciSpeed = {15'753'846'000};
constexpr Fact kPciLatency = {250};

constexpr Fact kNvlinkLatency = {500};
constexpr Fact kXgmiLatency = {600};

constexpr Fact kNicSpeed = {1'250'000'000};  ///< 10 Gbit/s
constexpr Fact kNetworkLatency = {700};      ///< one hop: wire and switch

}  // namespace tutti::topology::assumed
