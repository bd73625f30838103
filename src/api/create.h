// Creates a communicator behind a handle. All calls that make a communicator share this.
#pragma once

#include "api/handle.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti {

/// Returns the process. Errors: kInvalidUsage (a forked child), or the reason why the settings are refused.
Result<Process*> original_process();
/// The same, but also when the process's settings are refused: such a process can still join a bootstrap.
/// Errors: kSystemError, kInvalidUsage (a forked child).
Result<Process*> bootstrap_process();

/// Reads the fields that the size of the caller's struct covers. Other fields come from the process's
/// settings. Errors: kInvalidArgument, kUnsupported.
Status read_comm_config(const tutti_config_t* given, const Config& config, CommOptions& options,
                        bool& nonblocking);

/// The same checks as read_comm_config, before any other rank expects this communicator.
Status check_comm_config(const tutti_config_t* given, const Config& config);

/// The default configuration of a communicator that is made from `comm`.
tutti_config_t inherited_config(const Communicator& comm);

/// The error of a call whose parent communicator another thread has aborted.
Status aborted_meanwhile();

/// Tells the other ranks that this rank cannot take part, so that they do not wait for it. Blocks for a few
/// seconds at most. `process`: null if the process itself lacks something.
void decline(Process* process, const UniqueId& id, int rank_count, int rank, const Status& why);

/// Creates the communicator behind `handle` and sets its state. Blocks until done or until `stop` ends it.
Status create_into(tutti_comm* handle, Process& process, const UniqueId& id, int rank_count, int rank,
                   const CommOptions& options, BootstrapStop* stop);

/// tutti_comm_create. kInProgress: the set-up continues in a thread of the handle. `parent` (may be null):
/// the communicator in use by the caller; aborting the parent also ends this set-up.
Status create_comm(tutti_comm_t** result, int rank_count, const UniqueId& id, int rank,
                   const tutti_config_t* config, const tutti_comm* parent = nullptr);

}  // namespace tutti
