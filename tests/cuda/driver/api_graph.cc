// The driver's functions on captures and graphs.
#include <algorithm>
#include <atomic>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/streams.h"

using fake_cuda::Capture;
using fake_cuda::find_stream;
using fake_cuda::Graph;
using fake_cuda::GraphExec;
using fake_cuda::machine;
using fake_cuda::Stream;

namespace {

/// Whether every node of the capture comes before one of `ends`.
bool is_joined(const Capture& capture, const std::vector<size_t>& ends) {
  std::vector<bool> seen(capture.nodes.size(), false);
  for (const size_t end : ends) seen[end] = true;
  for (size_t i = capture.nodes.size(); i-- > 0;) {
    if (!seen[i]) return false;
    for (const size_t dependency : capture.nodes[i].dependencies) seen[dependency] = true;
  }
  return true;
}

/// Sets the capture's streams free.
void finish(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->frontier.clear();
    stream->is_origin = false;
    stream->capture.reset();
  }
  capture.streams.clear();
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  FAKE_CALL(cuStreamBeginCapture);
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream == stream->context->legacy.get()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  static uint64_t ids = 0;
  auto capture = std::make_shared<Capture>();
  capture->id = ++ids;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams.insert(stream);
  machine().captures.push_back(capture);
  stream->is_origin = true;
  stream->capture = std::move(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* result) {
  FAKE_CALL(cuStreamEndCapture);
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *result = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream->is_origin) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool joined = is_joined(*capture, stream->frontier);
  finish(*capture);
  auto& captures = machine().captures;
  captures.erase(std::remove_if(captures.begin(), captures.end(),
                                [&](const auto& weak) { return weak.lock() == capture; }),
                 captures.end());
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  auto graph = std::make_unique<Graph>();
  graph->nodes = std::move(capture->nodes);
  *result = reinterpret_cast<CUgraph>(machine().graphs.add(std::move(graph)));
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  FAKE_CALL(cuStreamIsCapturing);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = status_of(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  FAKE_CALL(cuStreamGetCaptureInfo);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Graphs under capture cannot be looked into here.
  if (graph != nullptr || dependencies != nullptr || count != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *status = status_of(*stream);
  if (id != nullptr && stream->capture != nullptr) *id = stream->capture->id;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  FAKE_CALL(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, fake_cuda::capture_mode());
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* result, CUgraph handle, unsigned long long flags) {
  FAKE_CALL(cuGraphInstantiateWithFlags);
  // As driver 580 does: it may allocate memory.
  if (const CUresult refusal = fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  const Graph* graph = machine().graphs.find(handle);
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto executable = std::make_unique<GraphExec>();
  executable->nodes = std::make_shared<const fake_cuda::Nodes>(graph->nodes);
  *result = reinterpret_cast<CUgraphExec>(machine().executables.add(std::move(executable)));
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  FAKE_CALL(cuGraphLaunch);
  GraphExec* graph = machine().executables.find(handle);
  Stream* stream = find_stream(stream_handle);
  if (graph == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return submit_graph(*stream, *graph);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  FAKE_CALL(cuGraphExecDestroy);
  GraphExec* graph = machine().executables.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  machine().executables.remove(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  FAKE_CALL(cuGraphDestroy);
  Graph* graph = machine().graphs.find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  machine().graphs.remove(graph);
  return CUDA_SUCCESS;
}

}  // extern "C"
