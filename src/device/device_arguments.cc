#include "device/device_arguments.h"

#include <string>

namespace tutti {

Result<CUstream> check_stream(const cuda::Context& context, uint32_t rank, void* handle) {
  const auto stream = static_cast<CUstream>(handle);
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return stream;
  const cuda::Driver& driver = context.driver();
  CUcontext owner = nullptr;
  const CUresult found = driver.stream_get_ctx(stream, &owner);
  if (found == CUDA_ERROR_INVALID_HANDLE) {
    return Status(Code::kInvalidArgument,
                  format("argument stream (%p) is no CUDA stream: it was destroyed, or never made", handle));
  }
  TUTTI_TRY(driver.check(found, "cuStreamGetCtx(argument stream)"));
  if (owner != context.handle()) {
    return Status(
        Code::kInvalidArgument,
        format("argument stream belongs to another device or context: rank %u is on device %d, so its "
               "streams must be made there",
               rank, context.device()));
  }
  return stream;
}

Result<std::optional<uint64_t>> find_capture(const cuda::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  TUTTI_TRY(driver.check(driver.stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr),
                         "cuStreamGetCaptureInfo(argument stream)"));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return Status(Code::kInvalidUsage,
                  "the capture of argument stream has failed: end the capture and check its errors");
  }
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return std::optional<uint64_t>();
  return std::optional<uint64_t>(id);
}

Status order_streams(const cuda::Context& context, uint32_t rank, const cuda::Event& event,
                     std::span<void* const> earlier, std::span<void* const> later) {
  const cuda::CurrentContext current(context);
  TUTTI_TRY(current.status());
  std::optional<std::optional<uint64_t>> common;
  for (const std::span<void* const> streams : {earlier, later}) {
    for (void* const handle : streams) {
      const auto stream = check_stream(context, rank, handle);
      TUTTI_TRY(stream.status());
      const auto capture = find_capture(context.driver(), *stream);
      TUTTI_TRY(capture.status());
      if (!common) common = *capture;
      if (*common == *capture) continue;
      return {Code::kInvalidUsage,
              format("some streams of the group's calls of rank %u are being captured together and others "
                     "are not: capture all of them in one capture, or none",
                     rank)};
    }
  }
  for (void* const before : earlier) {
    TUTTI_TRY(event.record(static_cast<CUstream>(before)));
    for (void* const after : later) TUTTI_TRY(event.make_wait(static_cast<CUstream>(after)));
  }
  return Status::ok();
}

Status check_device_pointer(const cuda::Context& context, uint32_t rank, std::string_view name,
                            const void* address) {
  const cuda::Pointer found = context.driver().look_up(address);
  const std::string what = format("argument %s (%p)", std::string(name).c_str(), address);
  if (found.kind == cuda::MemoryKind::kUnknown)
    return context.driver().failure(found.failure, what + ": cuPointerGetAttributes");
  if (found.kind == cuda::MemoryKind::kHost) {
    return {
        Code::kInvalidArgument,
        format("%s is host memory that CUDA does not know: rank %u is on device %d, so pass memory of that "
               "device, or register it (cudaHostRegister), or make the communicator with config.device 0",
               what.c_str(), rank, context.device())};
  }
  if (found.kind == cuda::MemoryKind::kDevice && found.device != context.device()) {
    return {Code::kInvalidArgument, format("%s is memory of device %d: rank %u is on device %d", what.c_str(),
                                           found.device, rank, context.device())};
  }
  return Status::ok();
}

}  // namespace tutti
