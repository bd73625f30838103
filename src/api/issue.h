// Issue: from a checked call to the thread that runs it: now, by the progress thread, or at the end of a
// group.
#pragma once

#include "api/handle.h"
#include "comm/call.h"

namespace tutti {

/// The stream is one that operations of the communicator can be ordered on.
Status check_stream(const tutti_comm* handle, tutti_stream_t stream);
/// The stream is a live host stream.
Status check_host_stream(tutti_stream_t stream);
/// Runs the communicator's last collective again, blocking, in the calling thread: the short path. Only when
/// nothing stands between the call and its run: no group, no stream, no queue.
tutti_result_t repeat(tutti_comm* handle, const void* send, void* recv) noexcept;

/// Groups that the calling thread has open. Initial-exec: a plain load on every call, no run-time look-up.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int group_depth;

/// Issues a checked collective. Inside a group it is only recorded.
Status issue(tutti_comm* handle, Call call, tutti_stream_t stream);
/// The same for an all_to_all_v, which is made of messages.
Status issue(tutti_comm* handle, MessageCall call, tutti_stream_t stream);
/// Issues one send or receive; in a group those of one communicator and stream run together.
Status issue(tutti_comm* handle, const Message& message, tutti_stream_t stream);

/// Groups of the calling thread.
void group_start();
Status group_end();
bool in_group();
/// Predicted time of what the calling thread's group holds so far, in microseconds: communicators side by
/// side, the operations of one after each other. Errors: kUnsupported: messages have no price.
Result<double> predict_group_us();
/// An argument error inside a group: the end will return it and issue nothing.
void spoil_group(const Status& why);

}  // namespace tutti
