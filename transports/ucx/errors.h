// UCX's status codes in sentences.
#pragma once

#include <string>

#include "transports/ucx/ucp.h"

namespace tutti::ucx {

/// What happened and what to try: "UCX: Endpoint timeout: the peer's host does not answer; check that ...".
std::string describe(const Ucp& ucp, ucs_status_t status);

/// A failed call of UCX. `doing`: "making a worker".
Status ucx_error(const Ucp& ucp, const char* doing, ucs_status_t status);

}  // namespace tutti::ucx
