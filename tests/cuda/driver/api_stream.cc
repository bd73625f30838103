// The driver's functions on streams and events.
#include <algorithm>
#include <memory>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/streams.h"

using fake_cuda::Event;
using fake_cuda::find_stream;
using fake_cuda::machine;
using fake_cuda::Stream;

namespace {

/// A word that streams may wait for or write: aligned, in memory that the driver knows.
bool is_word(CUdeviceptr address, unsigned bytes) {
  return address % bytes == 0 && machine().memory.covers(address, bytes);
}

CUresult submit_value(CUstream handle, const fake_cuda::ValueTask& task) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_word(task.address, task.bytes)) return CUDA_ERROR_INVALID_VALUE;
  return submit(*stream, task);
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* handle, unsigned int flags) {
  FAKE_UNSAFE_CALL(cuStreamCreate);
  if (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const bool blocking = flags != CU_STREAM_NON_BLOCKING;
  *handle = reinterpret_cast<CUstream>(machine().streams.add(fake_cuda::make_stream(*context, blocking)));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) {
  const CUresult result = cuStreamCreate(handle, flags);
  if (result == CUDA_SUCCESS) reinterpret_cast<Stream*>(*handle)->priority = std::clamp(priority, -5, 0);
  return result;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  FAKE_CALL(cuStreamGetPriority);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  FAKE_CALL(cuStreamGetFlags);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *flags = stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  FAKE_CALL(cuStreamGetId);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  FAKE_CALL(cuStreamGetDevice);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *device = stream->device->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream handle) {
  FAKE_CALL(cuStreamDestroy);
  Stream* stream = machine().streams.find(handle);
  if (stream == nullptr || stream->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {
    fake_cuda::invalidate(*stream->capture);
    stream->capture->streams.erase(stream);
    stream->capture.reset();
  }
  stream->destroyed = true;
  if (!is_idle(*stream)) return CUDA_SUCCESS;  // the device drops it when it is
  stream->device->remove_stream(stream);
  machine().streams.remove(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  FAKE_CALL(cuStreamSynchronize);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refusal = fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  fake_cuda::wait_for(stream->last, guard);
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  FAKE_CALL(cuStreamQuery);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refusal = fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  return is_idle(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  FAKE_CALL(cuStreamGetCtx);
  const Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int /*flags*/) {
  FAKE_CALL(cuStreamWaitEvent);
  Stream* stream = find_stream(handle);
  Event* event = machine().events.find(event_handle);
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return submit_wait(*stream, *event);
}

CUresult cuStreamWaitValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  FAKE_CALL(cuStreamWaitValue32);
  return submit_value(handle,
                      {.waits = true, .address = address, .value = value, .bytes = 4, .flags = flags});
}

CUresult cuStreamWaitValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  FAKE_CALL(cuStreamWaitValue64);
  return submit_value(handle,
                      {.waits = true, .address = address, .value = value, .bytes = 8, .flags = flags});
}

CUresult cuStreamWriteValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  FAKE_CALL(cuStreamWriteValue32);
  return submit_value(handle,
                      {.waits = false, .address = address, .value = value, .bytes = 4, .flags = flags});
}

CUresult cuStreamWriteValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  FAKE_CALL(cuStreamWriteValue64);
  return submit_value(handle,
                      {.waits = false, .address = address, .value = value, .bytes = 8, .flags = flags});
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  FAKE_CALL(cuLaunchHostFunc);
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return submit(*stream, fake_cuda::HostTask{.function = function, .argument = argument});
}

/// A callback gets the stream and its state besides.
struct Callback {
  CUstream stream;
  CUstreamCallback function;
  void* argument;
};

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* argument, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto callback = std::make_unique<Callback>(Callback{handle, function, argument});
  const auto run = [](void* raw) {
    const std::unique_ptr<Callback> owned(static_cast<Callback*>(raw));
    owned->function(owned->stream, CUDA_SUCCESS, owned->argument);
  };
  const CUresult result = cuLaunchHostFunc(handle, run, callback.get());
  if (result == CUDA_SUCCESS) callback.release();
  return result;
}

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  FAKE_CALL_IN_CONTEXT(cuEventCreate);
  auto event = std::make_unique<Event>();
  event->context = context;
  event->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *handle = reinterpret_cast<CUevent>(machine().events.add(std::move(event)));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
  FAKE_CALL(cuEventDestroy);
  Event* event = machine().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  machine().events.remove(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  FAKE_CALL(cuEventRecord);
  Event* event = machine().events.find(handle);
  Stream* stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr || event->context != stream->context)
    return CUDA_ERROR_INVALID_HANDLE;
  return submit_record(*stream, *event);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int /*flags*/) {
  return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent handle) {
  FAKE_CALL(cuEventQuery);
  const Event* event = machine().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) {
    fake_cuda::invalidate(*event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (const CUresult refusal = fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  return event->token == nullptr || event->token->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
  FAKE_CALL(cuEventSynchronize);
  const Event* event = machine().events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) {
    fake_cuda::invalidate(*event->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (const CUresult refusal = fake_cuda::forbid_in_capture(); refusal != CUDA_SUCCESS) return refusal;
  fake_cuda::wait_for(fake_cuda::TokenPointer(event->token), guard);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from_handle, CUevent to_handle) {
  FAKE_CALL(cuEventElapsedTime);
  const Event* from = machine().events.find(from_handle);
  const Event* to = machine().events.find(to_handle);
  if (from == nullptr || to == nullptr || !from->timed || !to->timed) return CUDA_ERROR_INVALID_HANDLE;
  if (from->token == nullptr || to->token == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->token->done || !to->token->done) return CUDA_ERROR_NOT_READY;
  const auto elapsed_ns = static_cast<int64_t>(to->token->done_ns - from->token->done_ns);
  *milliseconds = static_cast<float>(static_cast<double>(elapsed_ns) * 1e-6);
  return CUDA_SUCCESS;
}

}  // extern "C"
