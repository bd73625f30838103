// Packets: plans whose messages can travel between devices as packets of data and flag, for short calls
// (src/engine/cuda/short.cuh). The choice of algorithms, the engine and its kernels share rule and limits.
#pragma once

#include <cstdint>

namespace tutti {

struct Plan;
struct Request;

/// Most ranks of a communicator that sends packets.
inline constexpr uint32_t kPacketRanksMax = 8;
/// Most bytes of full packets' data that a rank sends another in one call.
inline constexpr uint32_t kMailboxDataBytes = 524288;
/// A block holds a lane's steps and a step's ends in tables.
inline constexpr uint32_t kPacketStepsMax = 20;
inline constexpr uint32_t kPacketEndsMax = 16;
/// A packet, and its data. The rest is the flag.
inline constexpr uint32_t kWholePacketBytes = 16;
inline constexpr uint32_t kFullPacketDataBytes = 12;

/// The data in each packet of a call. An element that is reduced lies in one packet, so that one thread needs
/// no other packet for it.
constexpr uint32_t data_of_packet(bool reduces, uint64_t element_bytes) {
  return reduces && element_bytes == 8 ? 8 : kFullPacketDataBytes;
}

/// The most that a rank can send another in such a call. `full_bytes`: the same in full packets; 0: none.
uint64_t packet_bytes_max(const Request& request, uint64_t full_bytes = kMailboxDataBytes);

/// Whether a plan suits packets: 2 to kPacketRanksMax ranks, which send inputs, or what they make of
/// messages, straight on. All ranks' plans must pass.
bool suits_packets(const Plan& plan);

}  // namespace tutti
