// The UCX transport: active messages over whatever network UCX knows. This header needs no UCX, so that a
// build without it has the same registry.
#pragma once

#include <memory>

#include "transports/registry.h"
#include "transports/transport.h"

namespace tutti::ucx {

inline constexpr TransportTraits kUcxTraits{
    .has_address = true,
    .fills_posted_receives = true,
    // As TCP's, so that all ranks agree whichever transport joins them.
    .slot_bytes = 65536,
    .reference_bytes = 16384,
    .prefers_whole_slots = true,
};

/// Without Config::transport "ucx", UCX is loaded only on a machine with devices of a fabric. Without them,
/// or without UCX, the transport has no address and joins nobody.
Result<std::unique_ptr<Transport>> open_ucx_transport(const TransportOptions& options);

}  // namespace tutti::ucx
