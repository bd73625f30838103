// Creating a communicator behind a handle: shared by all calls that make one.
#pragma once

#include "api/handle.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"
#include "tutti/tutti.h"

namespace tutti {

/// The process, unless this is a forked child of it.
Result<Process*> original_process();
/// The same, also where the settings of the process are refused: it can meet. Errors: kSystemError,
/// kInvalidUsage (a forked child).
Result<Process*> bootstrap_process();

/// The fields of the caller's struct that its size covers, the process's settings for the rest. Errors:
/// kInvalidArgument, kUnsupported.
Status read_comm_config(const tutti_config_t* given, const Config& config, CommOptions& options,
                        bool& nonblocking);

/// What read_comm_config says of it, before anybody is told that there will be a communicator.
Status check_comm_config(const tutti_config_t* given, const Config& config);

/// What a communicator that is made from another one gets by default.
tutti_config_t inherited_config(const Communicator& comm);

/// That the communicator which a call makes another one from is dead by now.
Status aborted_meanwhile();

/// Tells the others that this rank, which cannot take part, need not be waited for. Blocks for some seconds
/// at most.
void decline(Process& process, const UniqueId& id, int rank_count, int rank, const Status& why);

/// Creates the communicator behind `handle` and sets its state. Blocks, until `stop` ends it.
Status create_into(tutti_comm* handle, Process& process, const UniqueId& id, int rank_count, int rank,
                   const CommOptions& options, BootstrapStop* stop);

/// tutti_comm_create. kInProgress: it goes on in a thread of the handle. `parent`: the communicator that the
/// caller is in meanwhile, whose abort ends this too; or null.
Status create_comm(tutti_comm_t** result, int rank_count, const UniqueId& id, int rank,
                   const tutti_config_t* config, const tutti_comm* parent = nullptr);

}  // namespace tutti
