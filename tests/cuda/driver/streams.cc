#include "tests/cuda/driver/streams.h"

#include <algorithm>
#include <utility>

namespace fake_cuda {
namespace {

thread_local bool host_function = false;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
uint64_t stream_ids = 0;

/// What the stream's next work waits for because of the default stream.
std::vector<TokenPointer> implicit_waits(const Stream& stream) {
  std::vector<TokenPointer> waits;
  const Stream* legacy = stream.context->legacy.get();
  const auto add = [&](const TokenPointer& token) {
    if (token != nullptr && !token->done) waits.push_back(token);
  };
  if (&stream != legacy) {
    if (stream.blocking) add(legacy->last);
    return waits;
  }
  for (const Stream* other : stream.device->streams()) {
    if (other->blocking && other != legacy) add(other->last);
  }
  return waits;
}

/// The default stream may not be used while a stream that takes turns with it is captured.
CUresult check_implicit(const Stream& stream) {
  if (&stream != stream.context->legacy.get()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (Stream* other : stream.device->streams()) {
    if (other->capture == nullptr || !other->blocking) continue;
    invalidate(*other->capture);
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

std::shared_ptr<Work> single(Task task) {
  auto work = std::make_shared<Work>();
  auto nodes = std::make_shared<Nodes>(1);
  nodes->front().task = std::move(task);
  work->nodes = std::move(nodes);
  return work;
}

void enqueue(Stream& stream, const std::shared_ptr<Work>& work) {
  for (TokenPointer& token : implicit_waits(stream)) work->waits.push_back(std::move(token));
  stream.device->enqueue(stream, work);
}

}  // namespace

bool in_host_function() {
  return host_function;
}

void run_host_function(const HostTask& task) {
  host_function = true;
  task.function(task.argument);
  host_function = false;
}

CUstreamCaptureMode& capture_mode() {
  return thread_mode;
}

std::unique_ptr<Stream> make_stream(Context& context, bool blocking) {
  auto stream = std::make_unique<Stream>();
  stream->context = &context;
  stream->device = context.device;
  stream->id = ++stream_ids;
  stream->blocking = blocking;
  context.device->add_stream(stream.get());
  return stream;
}

Stream* find_stream(CUstream handle) {
  Stream* const own = machine().streams.find(handle);
  if (own != nullptr) return own->destroyed ? nullptr : own;
  Context* const context = current_context();
  if (context == nullptr) return nullptr;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context->legacy.get();
  if (handle != CU_STREAM_PER_THREAD) return nullptr;
  std::unique_ptr<Stream>& stream = context->per_thread[std::this_thread::get_id()];
  if (stream == nullptr) stream = make_stream(*context, true);
  return stream.get();
}

CUresult submit(Stream& stream, Task task) {
  if (Capture* const capture = stream.capture.get(); capture != nullptr) {
    if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    Node& node = capture->nodes.emplace_back();
    node.task = std::move(task);
    node.dependencies = stream.frontier;
    stream.frontier = {capture->nodes.size() - 1};
    return CUDA_SUCCESS;
  }
  if (const CUresult result = check_implicit(stream); result != CUDA_SUCCESS) return result;
  enqueue(stream, single(std::move(task)));
  return CUDA_SUCCESS;
}

CUresult submit_graph(Stream& stream, GraphExec& graph) {
  if (stream.capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = check_implicit(stream); result != CUDA_SUCCESS) return result;
  auto work = std::make_shared<Work>();
  work->nodes = graph.nodes;
  if (graph.last != nullptr) work->waits.push_back(graph.last);
  graph.last = work->token;
  enqueue(stream, work);
  return CUDA_SUCCESS;
}

CUresult submit_record(Stream& stream, Event& event) {
  event.capture = stream.capture;
  event.frontier = stream.frontier;
  if (stream.capture != nullptr) {
    event.token = nullptr;
    return stream.capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  }
  if (const CUresult result = check_implicit(stream); result != CUDA_SUCCESS) return result;
  const auto work = single(EmptyTask{});
  // It may throw: then nothing has been recorded.
  enqueue(stream, work);
  event.token = work->token;
  return CUDA_SUCCESS;
}

CUresult submit_wait(Stream& stream, Event& event) {
  if (event.capture != nullptr && event.capture->streams.empty()) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream.capture == nullptr && event.capture == nullptr) {
    if (event.token == nullptr) return CUDA_SUCCESS;
    const auto work = single(EmptyTask{});
    work->waits.push_back(event.token);
    enqueue(stream, work);
    return CUDA_SUCCESS;
  }
  if (event.capture == nullptr) {
    if (event.token == nullptr) return CUDA_SUCCESS;
    invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream.capture != nullptr && stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (event.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture == nullptr) {
    if (&stream == stream.context->legacy.get()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream.capture = event.capture;
    stream.capture->streams.insert(&stream);
    stream.frontier.clear();
  }
  for (const size_t node : event.frontier) {
    if (std::find(stream.frontier.begin(), stream.frontier.end(), node) == stream.frontier.end()) {
      stream.frontier.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

void wait_for(const TokenPointer& token, Guard& guard) {
  if (token != nullptr) machine().changed.wait(guard, [&] { return token->done; });
}

void invalidate(Capture& capture) {
  capture.invalid = true;
}

CUresult forbid_in_capture() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const std::weak_ptr<Capture>& weak : machine().captures) {
    const std::shared_ptr<Capture> capture = weak.lock();
    if (capture == nullptr || capture->streams.empty()) continue;
    // A capture in global mode forbids them to all threads whose own mode is global, one in thread-local mode
    // to the thread that began it.
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                          (own || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) ||
                         (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own);
    if (!forbids) continue;
    invalidate(*capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace fake_cuda
