// The order in which a rank should use the network cards of its machine, for transports that choose cards.
#pragma once

#include <cstdint>
#include <span>

#include "comm/process.h"
#include "comm/rank_facts.h"
#include "transports/transport.h"

namespace tutti {

/// Looks for the machine's graph when it is called, because few transports ask. Without a graph all cards
/// are as near, and the ranks of the machine begin with different ones.
OrderCards card_order(Process& process, std::span<const RankFacts> facts, uint32_t rank);

}  // namespace tutti
