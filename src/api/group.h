// Groups of a thread. Calls between tutti_group_start and tutti_group_end run together at the end. A rank's
// sends and receives become one operation. Blocking calls of several communicators are driven side by side.
// Ranks on devices that one thread drives are launched together.
#pragma once

#include "api/work.h"

namespace tutti {

/// Number of open groups in the calling thread. Initial-exec makes each access a plain load, without a
/// run-time look-up.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int group_depth;

void group_start();
Status group_end();
bool in_group();
/// Whether the calling thread's open group holds a call on the communicator.
bool group_has_calls_on(const tutti_comm* handle);
/// Predicted time of the calling thread's open group, in microseconds. Communicators run side by side; the
/// operations of one communicator run one after another. Errors: kUnsupported: messages have no price.
Result<double> predict_group_us();
/// Records an argument error inside a group: tutti_group_end returns the error and issues nothing.
void spoil_group(const Status& why);
/// Records a checked call.
void add_to_group(Work work);
/// Records one send or receive. Messages of one communicator and stream run together.
void add_to_group(tutti_comm* handle, const Message& message, tutti_stream_t stream, uint64_t timeout_ms);

}  // namespace tutti
