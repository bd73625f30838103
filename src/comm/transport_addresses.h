// The transports' address blobs: during set-up every rank sends its own to all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"
#include "transports/transport.h"

namespace tutti {

/// Sends a blob of at most kMostSharedBytes to all ranks, and returns all blobs by rank. All ranks call it
/// equally often with equal sizes. Blocks. Errors: as Bootstrap::share.
using ShareBlob = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte> blob)>;
inline constexpr size_t kMostSharedBytes = 512;

/// Transport::address() of every rank, sent in pieces; no `share` for a transport without addresses. All
/// ranks call it for the same transports in the same order. Errors: as `share`.
Result<std::vector<std::vector<std::byte>>> share_addresses(const ShareBlob& share,
                                                            const Transport& transport, uint32_t rank_count);

}  // namespace tutti
