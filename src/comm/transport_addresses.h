// The address blobs of transports, which every rank sends to all ranks during set-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"
#include "transports/transport.h"

namespace tutti {

/// Sends a blob of at most kMostSharedBytes to all ranks, and returns the blobs of all ranks, by rank. All
/// ranks call it equally often, with blobs of equal size. Blocks. As Bootstrap::share.
using ShareBlob = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte> blob)>;
inline constexpr size_t kMostSharedBytes = 512;

/// Transport::address() of every rank, by rank. Addresses of any length travel in pieces. Without a call of
/// `share` where the transport has no addresses. All ranks call it for the same transports in the same order.
/// Errors: as `share`.
Result<std::vector<std::vector<std::byte>>> share_addresses(const ShareBlob& share,
                                                            const Transport& transport, uint32_t rank_count);

}  // namespace tutti
