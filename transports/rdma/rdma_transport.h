// The RDMA transport: InfiniBand and RoCE through libibverbs. This header needs no verbs, so that a build
// without them has the same registry.
#pragma once

#include <memory>

#include "transports/registry.h"
#include "transports/transport.h"

namespace tutti::rdma {

inline constexpr TransportTraits kRdmaTraits{
    .has_address = true,
    // The network reads registered memory only: the rings, and buffers that the user has registered.
    .reads_references = false,
    .reads_registered = true,
    .fills_posted_receives = true,
    // As TCP's, so that all ranks agree whichever transport joins them.
    .slot_bytes = 65536,
    .prefers_whole_slots = true,
};

/// A machine without an RDMA device gets a transport without an address, which joins nobody.
Result<std::unique_ptr<Transport>> open_rdma_transport(const TransportOptions& options);

}  // namespace tutti::rdma
