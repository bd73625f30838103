// What goes wrong in an RDMA network, in words: completion statuses and asynchronous events.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace tutti::rdma {

/// What a failed completion means and what to try: "the peer did not answer ...; try ...".
std::string describe_completion(ibv_wc_status status);

/// What an asynchronous event means; empty for events that are no trouble.
std::string describe_event(ibv_event_type event);
/// Whether the event ends all connections of the device or of the port.
bool ends_connections(ibv_event_type event);

}  // namespace tutti::rdma
