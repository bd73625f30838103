// What calls do with streams: give them tasks, order them, capture them.
#pragma once

#include <vector>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/work.h"

namespace fake_cuda {

// All with Machine::lock held.

/// The stream behind a handle, default streams too; null: there is none, or no context is current for a
/// default one.
Stream* find_stream(CUstream handle);
/// A new stream of the context, which is not yet the driver's.
std::unique_ptr<Stream> make_stream(Context& context, bool blocking);
/// Whether all that the stream was given has ended.
inline bool is_idle(const Stream& stream) {
  return stream.queue.empty();
}

/// Gives `task` to a stream, or to the capture that it is in. Errors of capturing.
CUresult submit(Stream& stream, Task task);
/// The same for a graph's nodes. Errors: CUDA_ERROR_NOT_SUPPORTED: the stream is captured.
CUresult submit_graph(Stream& stream, GraphExec& graph);
/// What the stream gets from now on waits for the event.
CUresult submit_wait(Stream& stream, Event& event);
CUresult submit_record(Stream& stream, Event& event);
/// Blocks until the token is done; null: at once.
void wait_for(const TokenPointer& token, Guard& guard);

/// Ends the capture without a graph.
void invalidate(Capture& capture);
/// The mode of the calling thread.
CUstreamCaptureMode& capture_mode();

/// Whether the calling thread runs a host function, which may not call the driver.
bool in_host_function();
void run_host_function(const HostTask& task);

}  // namespace fake_cuda
