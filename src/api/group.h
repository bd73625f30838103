// Groups of a thread: calls between tutti_group_start and tutti_group_end, which run together at its end.
// Many sends and receives become one operation of a rank, blocking calls of several communicators are driven
// side by side, and ranks on devices that the thread drives are launched together.
#pragma once

#include "api/work.h"

namespace tutti {

/// Groups that the calling thread has open. Initial-exec: a plain load on every call, no run-time look-up.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int group_depth;

void group_start();
Status group_end();
bool in_group();
/// Predicted time of what the calling thread's group holds so far, in microseconds: communicators side by
/// side, the operations of one after each other. Errors: kUnsupported: messages have no price.
Result<double> predict_group_us();
/// An argument error inside a group: the end will return it and issue nothing.
void spoil_group(const Status& why);
/// Records a checked call.
void add_to_group(Work work);
/// Records one send or receive; those of one communicator and stream run together.
void add_to_group(tutti_comm* handle, const Message& message, tutti_stream_t stream, uint64_t timeout_ms);

}  // namespace tutti
