// The process managers of MPI launchers as carriers of one value: rank 0 publishes a text, every rank reads
// it. PMI-1 is MPICH's line protocol over an inherited descriptor; PMIx is a library, loaded when a launcher
// offers it.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace tutti {

/// Rank 0's `value` (printable, without spaces, at most 900 characters), on every rank. Collective: all ranks
/// of the job call it. `fd` is PMI_FD's, and stays open. Blocks as long as the process manager does, at most
/// until the deadline. Errors: kPeerLost (the process manager has gone, or rank 0 has), kTimeout, kMismatch
/// (it speaks another protocol).
Result<std::string> share_by_pmi1(int fd, uint32_t rank, const std::string& value, uint64_t deadline_ns);

/// The same through libpmix. Errors: kUnsupported: the library is not there; kSystemError: what PMIx said. A
/// rank that never comes is PMIx's to notice.
Result<std::string> share_by_pmix(uint32_t rank, const std::string& value);

}  // namespace tutti
