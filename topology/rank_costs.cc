#include "topology/rank_costs.h"

namespace tutti::topology {

RankCosts usual_costs(bool on_gpus) {
  if (!on_gpus) return {};
  // Estimates (algorithms/choice.txt): a launch, a flag over links with its barrier, and a multiprocessor
  // that copies 33 GB/s, which is to say reads and writes 66 GB/s. The network writes straight to GPU memory
  // (RDMA).
  return {.call_us = 4,
          .step_us = 0.5,
          .message_us = 0.7,
          .network_step_us = 0.5,
          .network_message_us = 3,
          .stripe_bytes_per_us = 66000,
          .switch_us = 0,
          .stripes_max = 32,
          .stripe_bytes = 32768,
          .slots = 16,
          .slices = {.least = 8192, .most = 65536, .wanted = SliceLimits::kWantedOnDevices}};
}

RankCosts packet_costs() {
  // Estimates (algorithms/choice.txt): no flag besides the packet, no barrier, no slices; a block for each 4
  // KiB of data, which are 3/4 of the packets.
  RankCosts costs = usual_costs(true);
  costs.step_us = 0.1;
  costs.message_us = 0;
  costs.stripe_bytes = 4096 * 4 / 3;
  costs.slices = {.least = 1 << 24, .most = 1 << 24};
  return costs;
}

uint32_t usual_slots(uint32_t rank_count) {
  return rank_count > 16 ? 32 : rank_count > 8 ? 64 : 128;
}

}  // namespace tutti::topology
