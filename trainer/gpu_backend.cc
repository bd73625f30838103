#include "trainer/gpu_backend.h"

#include <cstring>
#include <string>
#include <utility>

namespace tutti::trainer {
namespace {

// Constants of cuda.h.
constexpr unsigned kPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE: for all contexts
constexpr unsigned kNonBlocking =
    1;  // CU_STREAM_NON_BLOCKING: runs beside cuBLAS, which uses the null stream
constexpr unsigned kBlockingSyncUntimed =
    1 | 2;  // CU_EVENT_BLOCKING_SYNC: waits asleep; CU_EVENT_DISABLE_TIMING

/// The one stream of a rank.
class CudaStream {
 public:
  CudaStream(std::shared_ptr<const Gpu> gpu, tutti_comm_t* comm)
      : gpu_(std::move(gpu)), comm_(comm), functions_{gpu_->library()} {
    const Gpu::Entered entered(*gpu_);
    gpu_->check(functions_.stream_create(&stream_, kNonBlocking), "making a stream");
  }
  ~CudaStream() { (void)functions_.stream_destroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  const Gpu& gpu() const { return *gpu_; }
  const StreamFunctions& functions() const { return functions_; }
  void* handle() const { return stream_; }
  tutti_comm_t* comm() const { return comm_; }

 private:
  std::shared_ptr<const Gpu> gpu_;
  tutti_comm_t* comm_;
  StreamFunctions functions_;
  void* stream_ = nullptr;
};

/// A bucket's part of the stream: the operations up to an event.
class CudaStreamPart : public Stream {
 public:
  explicit CudaStreamPart(const CudaStream& whole) : whole_(whole) {
    const Gpu::Entered entered(whole.gpu());
    whole.gpu().check(whole.functions().event_create(&event_, kBlockingSyncUntimed), "making an event");
  }
  ~CudaStreamPart() override { (void)whole_.functions().event_destroy(event_); }
  CudaStreamPart(const CudaStreamPart&) = delete;
  CudaStreamPart& operator=(const CudaStreamPart&) = delete;

  tutti_stream_t handle() const override { return tutti_stream_cuda(whole_.handle()); }
  void mark() override {
    const Gpu::Entered entered(whole_.gpu());
    whole_.gpu().check(whole_.functions().event_record(event_, whole_.handle()), "noting an event");
  }
  void wait() override {
    const Gpu::Entered entered(whole_.gpu());
    whole_.gpu().check(whole_.functions().event_synchronize(event_), "reducing gradients");
    // A CUDA stream goes on after a failed operation. The communicator has the error.
    tutti_result_t result = TUTTI_SUCCESS;
    trainer::check(tutti_comm_async_error(whole_.comm(), &result), "reducing gradients");
    trainer::check(result, "reducing gradients");
  }

 private:
  const CudaStream& whole_;
  void* event_ = nullptr;
};

class GpuBackend : public Backend {
 public:
  GpuBackend(std::shared_ptr<const Gpu> gpu, tutti_comm_t* comm) : stream_(std::move(gpu), comm) {}

  void* allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const Gpu& gpu = stream_.gpu();
    const Gpu::Entered entered(gpu);
    void* memory = nullptr;
    gpu.check(stream_.functions().host_allocate(&memory, bytes, kPortable),
              std::to_string(bytes) + " bytes of host memory for gradients");
    return std::memset(memory, 0, bytes);
  }
  void free(void* memory) override {
    try {
      const Gpu::Entered entered(stream_.gpu());
      (void)stream_.functions().host_free(memory);
    } catch (const Error&) {
      // The failure of the GPU has been reported.
    }
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStreamPart>(stream_); }

 private:
  CudaStream stream_;
};

}  // namespace

BackendPointer gpu_backend(std::shared_ptr<const Gpu> gpu, tutti_comm_t* comm) {
  return std::make_shared<GpuBackend>(std::move(gpu), comm);
}

}  // namespace tutti::trainer
