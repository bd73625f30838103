// Issue: from a checked call to the way that it takes: now, by the progress thread, onto a CUDA stream, or
// into the group that the thread has open.
#pragma once

#include "api/handle.h"
#include "engine/call.h"

namespace tutti {

/// The stream is one that operations of the communicator can be ordered on.
Status check_stream(const tutti_comm* handle, tutti_stream_t stream);
/// The stream is a live host stream.
Status check_host_stream(tutti_stream_t stream);
/// That it is none.
Status no_host_stream();
/// Runs the communicator's last collective again, blocking, in the calling thread: the short path. Only when
/// nothing stands between the call and its run: no group, no stream, no queue. Ends the caller's CallGuard.
tutti_result_t repeat(tutti_comm* handle, const void* send, void* recv) noexcept;

// By a caller that is inside the communicator (CallGuard, HandleRef):

/// Issues a checked collective. Inside a group it is only recorded.
Status issue(tutti_comm* handle, Call call, tutti_stream_t stream);
/// The same for an all_to_all_v, which is made of messages.
Status issue(tutti_comm* handle, MessageCall call, tutti_stream_t stream);
/// Issues one send or receive; in a group those of one communicator and stream run together.
Status issue(tutti_comm* handle, const Message& message, tutti_stream_t stream);

}  // namespace tutti
