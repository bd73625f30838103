// PMI: brings one value from rank 0 to all ranks through an MPI launcher's process manager. PMI-1 is MPICH's
// line protocol over an inherited descriptor. PMIx is a library, loaded if offered.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace tutti {

/// Rank 0's `value` (printable, no spaces, at most 900 characters). All ranks of the job call it. `fd` is
/// PMI_FD's, and stays open. Once for each process: MPICH's manager hangs up afterwards. Blocks until the
/// deadline at most. Errors: kPeerLost (the process manager or rank 0 has gone), kTimeout, kMismatch (another
/// protocol).
Result<std::string> share_by_pmi1(int fd, uint32_t rank, const std::string& value, uint64_t deadline_ns);

/// The same through libpmix, any number of rounds. Its waits end at the deadline, rounded up to a second, if
/// the launcher's server heeds PMIX_TIMEOUT, as OpenPMIx's does. Errors: kUnsupported (no library), kTimeout,
/// kSystemError.
Result<std::string> share_by_pmix(uint32_t rank, uint32_t round, const std::string& value,
                                  uint64_t deadline_ns);

}  // namespace tutti
