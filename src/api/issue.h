// Issue: decides how a checked call runs: now, by the progress thread, on a CUDA stream, or in the thread's
// open group.
#pragma once

#include "api/handle.h"
#include "engine/call.h"

namespace tutti {

/// Checks that the stream can order operations of the communicator.
Status check_stream(const tutti_comm* handle, tutti_stream_t stream);
/// Checks that the stream is a live host stream.
Status check_host_stream(tutti_stream_t stream);
/// The error for a stream that is no live host stream.
Status no_host_stream();
/// The short path: runs the communicator's last collective again, blocking, in the calling thread. The caller
/// makes sure that there is no group, stream or queue. Ends the caller's CallGuard.
tutti_result_t repeat(tutti_comm* handle, const void* send, void* recv) noexcept;
/// The same for a message like the last one of its direction (LastMessage::ran_alone).
tutti_result_t repeat(tutti_comm* handle, const Message& message) noexcept;

// The caller of these functions is inside the communicator (CallGuard, HandleRef):

/// Issues a checked collective. Inside a group the call is only recorded.
Status issue(tutti_comm* handle, Call call, tutti_stream_t stream);
/// The same for an all_to_all_v, which consists of messages.
Status issue(tutti_comm* handle, MessageCall call, tutti_stream_t stream);
/// Issues one send or receive. In a group, messages of one communicator and stream run together.
Status issue(tutti_comm* handle, const Message& message, tutti_stream_t stream);

}  // namespace tutti
