// The RDMA transport: InfiniBand and RoCE through libibverbs. This header needs no verbs, so that a build
// without them has the same registry.
#pragma once

#include <memory>
#include <vector>

#include "transports/rdma/hello.h"
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

/// The ports of this machine that ranks with these settings use, fastest first. Errors: kUnsupported, with
/// why there is none.
Result<std::vector<PortAddress>> list_ports(const Config& config);

}  // namespace tutti::rdma
