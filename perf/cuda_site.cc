// A rank on a CUDA device (site.h). The driver is found at run time.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/library.h"
#include "cuda/memory.h"
#include "perf/site.h"

namespace tutti::perf {
namespace {

using cuda::Context;
using cuda::CurrentContext;
using cuda::Driver;

// If the device does not tell: the size of the largest known cache.
constexpr uint64_t kUnknownCacheBytes = uint64_t{64} << 20;

// The driver compiles this. sm_80 is the oldest target that all devices of this library's kernels understand.
constexpr char kNothing[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry tutti_nothing()
{
  ret;
}
)";

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

/// cuda::DeviceMemory or cuda::PinnedMemory.
template <class Owner>
class CudaMemory final : public SiteMemory {
 public:
  explicit CudaMemory(Owner owner) : owner_(std::move(owner)) {}
  char* data() const override { return owner_.template as<char>(); }
  size_t bytes() const override { return owner_.bytes(); }

 private:
  Owner owner_;
};

template <class Owner>
Result<std::unique_ptr<SiteMemory>> hold(Result<Owner> made) {
  if (!made) return made.status();
  return std::unique_ptr<SiteMemory>(std::make_unique<CudaMemory<Owner>>(std::move(*made)));
}

class CudaGraph final : public Graph {
 public:
  CudaGraph(const Context& context, CUstream stream) : context_(context), stream_(stream) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override {
    if (executable_ != nullptr) (void)driver().graph_exec_destroy(executable_);
  }

  /// The caller keeps `graph`.
  Status instantiate(CUgraph graph) {
    return driver().check(driver().graph_instantiate(&executable_, graph, 0), "cuGraphInstantiate");
  }
  Status launch() override {
    const CurrentContext current(context_);
    TUTTI_TRY(current.status());
    return driver().check(driver().graph_launch(executable_, stream_), "cuGraphLaunch");
  }

 private:
  const Driver& driver() const { return context_.driver(); }

  const Context& context_;
  const CUstream stream_;
  CUgraphExec executable_ = nullptr;
};

class CudaSite final : public Site, private DeviceQueue {
 public:
  static Result<std::unique_ptr<Site>> open(const Driver& driver, int device, bool null_stream);

  const SiteFacts& facts() const override { return facts_; }
  tutti_stream_t stream() const override { return tutti_stream_cuda(stream_.handle()); }
  DeviceQueue* queue() override { return this; }

  Result<std::unique_ptr<SiteMemory>> allocate(size_t bytes, bool) override {
    return hold(cuda::DeviceMemory::allocate(*context_, bytes));
  }
  Result<std::unique_ptr<SiteMemory>> allocate_shared(size_t bytes) override {
    return hold(cuda::PinnedMemory::allocate(*context_, bytes));
  }
  Status copy(void* to, const void* from, size_t bytes) override {
    return cuda::copy_now(*context_, to, from, bytes);
  }
  Status fill(void* to, unsigned char value, size_t bytes) override {
    return cuda::fill_now(*context_, to, value, bytes);
  }
  uint64_t available_bytes() const override { return memory().free; }
  uint64_t used_bytes() const override {
    const MemoryInfo info = memory();
    return info.total - info.free;
  }
  Status wait() override {
    const CurrentContext current(*context_);
    TUTTI_TRY(current.status());
    return driver().check(driver().stream_synchronize(stream_.handle()), "cuStreamSynchronize");
  }

 private:
  struct MemoryInfo {
    size_t free = 0;
    size_t total = 0;
  };

  CudaSite() = default;
  const Driver& driver() const { return context_->driver(); }
  MemoryInfo memory() const;

  Status reserve_marks(size_t count) override;
  Status mark(size_t index) override;
  Result<double> between_us(size_t from, size_t to) override;
  Status copy_within(void* to, const void* from, size_t bytes) override;
  Status launch_nothing() override;
  Status go_before(DeviceQueue& other) override;
  Status begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;

  SiteFacts facts_;
  std::unique_ptr<Context> context_;
  cuda::Stream stream_;  ///< empty: the null stream
  std::vector<cuda::Event> marks_;
  cuda::Event turn_;             ///< used by go_before
  cuda::Library nothing_image_;  ///< loaded at first use
  cuda::Kernel nothing_;
};

Result<std::unique_ptr<Site>> CudaSite::open(const Driver& driver, int device, bool null_stream) {
  std::unique_ptr<CudaSite> site(new CudaSite);
  auto context = Context::retain(driver, device);
  if (!context) return context.status();
  site->context_ = std::move(*context);
  if (!null_stream) {
    auto stream = cuda::Stream::create(*site->context_);
    if (!stream) return stream.status();
    site->stream_ = std::move(*stream);
  }
  CUdevice handle = 0;
  int cache_bytes = 0;
  TUTTI_TRY(driver.check(driver.device_get(&handle, device), "cuDeviceGet"));
  const CUresult told = driver.device_get_attribute(&cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, handle);
  const cuda::DeviceFacts& facts = site->context_->facts();
  site->facts_ = {.device = device,
                  .address = facts.pci_bus_id,
                  .name = facts.name,
                  .cache_bytes = told == CUDA_SUCCESS && cache_bytes > 0 ? static_cast<uint64_t>(cache_bytes)
                                                                         : kUnknownCacheBytes};
  return std::unique_ptr<Site>(std::move(site));
}

/// All zero if the driver does not tell.
CudaSite::MemoryInfo CudaSite::memory() const {
  const CurrentContext current(*context_);
  MemoryInfo info;
  if (!current.status() || driver().mem_get_info(&info.free, &info.total) != CUDA_SUCCESS) return {};
  return info;
}

Status CudaSite::reserve_marks(size_t count) {
  while (marks_.size() < count) {
    auto event = cuda::Event::create(*context_, true);
    if (!event) return event.status();
    marks_.push_back(std::move(*event));
  }
  return Status::ok();
}

Status CudaSite::mark(size_t index) {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  return marks_[index].record(stream_.handle());
}

Result<double> CudaSite::between_us(size_t from, size_t to) {
  float milliseconds = 0;
  TUTTI_TRY(
      driver().check(driver().event_elapsed_time(&milliseconds, marks_[from].handle(), marks_[to].handle()),
                     "cuEventElapsedTime"));
  return static_cast<double>(milliseconds) * 1e3;
}

Status CudaSite::copy_within(void* to, const void* from, size_t bytes) {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  return driver().check(driver().memcpy_async(address_of(to), address_of(from), bytes, stream_.handle()),
                        "cuMemcpyAsync");
}

Status CudaSite::launch_nothing() {
  if (nothing_.function == nullptr) {
    auto image = cuda::Library::load(*context_, std::as_bytes(std::span(kNothing)));
    if (!image) return image.status();
    auto kernel = image->kernel("tutti_nothing");
    if (!kernel) return kernel.status();
    nothing_image_ = std::move(*image);
    nothing_ = *kernel;
  }
  return cuda::launch(*context_, nothing_, {.blocks = 1, .threads = 1}, stream_.handle(), nullptr);
}

Status CudaSite::go_before(DeviceQueue& other) {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  if (turn_.handle() == nullptr) {
    auto event = cuda::Event::create(*context_);
    if (!event) return event.status();
    turn_ = std::move(*event);
  }
  TUTTI_TRY(turn_.record(stream_.handle()));
  return turn_.make_wait(static_cast<CudaSite&>(other).stream_.handle());
}

Status CudaSite::begin_capture() {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  // Captures this thread only: other threads capture and instantiate at the same time.
  return driver().check(driver().stream_begin_capture(stream_.handle(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                        "cuStreamBeginCapture");
}

Result<std::unique_ptr<Graph>> CudaSite::end_capture() {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  CUgraph graph = nullptr;
  TUTTI_TRY(driver().check(driver().stream_end_capture(stream_.handle(), &graph), "cuStreamEndCapture"));
  auto made = std::make_unique<CudaGraph>(*context_, stream_.handle());
  const Status instantiated = made->instantiate(graph);
  (void)driver().graph_destroy(graph);
  TUTTI_TRY(instantiated);
  return std::unique_ptr<Graph>(std::move(made));
}

class FoundDevices final : public CudaDevices {
 public:
  explicit FoundDevices(std::unique_ptr<const Driver> driver) : driver_(std::move(driver)) {}
  int count() const override { return driver_->device_count(); }
  Result<std::unique_ptr<Site>> open(int device, bool null_stream) const override {
    return CudaSite::open(*driver_, device, null_stream);
  }

 private:
  std::unique_ptr<const Driver> driver_;
};

}  // namespace

Result<std::unique_ptr<CudaDevices>> CudaDevices::find() {
  auto driver = Driver::find();
  if (!driver) return driver.status();
  return std::unique_ptr<CudaDevices>(std::make_unique<FoundDevices>(std::move(*driver)));
}

}  // namespace tutti::perf
