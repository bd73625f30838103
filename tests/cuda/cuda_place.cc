#include "tests/cuda/cuda_place.h"

#include <utility>

namespace tutti::test {
namespace {

constexpr size_t kStreams = 3;

}  // namespace

const char* order_name(Order order) {
  constexpr const char* kNames[] = {"blocking", "stream", "streams", "graph"};
  return kNames[static_cast<int>(order)];
}

std::unique_ptr<CudaPlace> CudaPlace::open(Rank& rank, int device, Order order) {
  std::unique_ptr<CudaPlace> place(new CudaPlace);
  place->order_ = order;
  const auto failed = [&](const Status& why) {
    rank.fail("opening device " + std::to_string(device) + ": " + std::string(why.text()));
    return nullptr;
  };
  auto driver = cuda::Driver::find();
  if (!driver) return failed(driver.status());
  place->driver_ = std::move(*driver);
  auto context = cuda::Context::retain(*place->driver_, device);
  if (!context) return failed(context.status());
  place->context_ = std::move(*context);
  for (size_t i = 0; i < kStreams; ++i) {
    auto stream = cuda::Stream::create(*place->context_);
    if (!stream) return failed(stream.status());
    place->streams_.push_back(std::move(*stream));
  }
  return place;
}

CudaPlace::~CudaPlace() {
  for (const auto& [graph, executable] : graphs_) {
    (void)driver_->graph_exec_destroy(executable);
    (void)driver_->graph_destroy(graph);
  }
}

std::byte* CudaPlace::allocate(size_t bytes) {
  auto memory = cuda::DeviceMemory::allocate(*context_, bytes);
  if (!memory) return nullptr;
  memory_.push_back(std::move(*memory));
  return memory_.back().as<std::byte>();
}

bool CudaPlace::copy(void* to, const void* from, size_t bytes) {
  return cuda::copy_now(*context_, to, from, bytes).is_ok();
}

bool CudaPlace::finished(CUstream stream) {
  return driver_->stream_synchronize(stream) == CUDA_SUCCESS;
}

tutti_result_t CudaPlace::run(const std::function<tutti_result_t(tutti_stream_t)>& call) {
  if (order_ == Order::kBlocking) return call(TUTTI_BLOCKING);
  const size_t which = order_ == Order::kStreams ? calls_++ % kStreams : 0;
  const CUstream stream = streams_[which].handle();
  if (order_ == Order::kGraph) return replay(stream, call);
  const tutti_result_t issued = call(tutti_stream_cuda(stream));
  if (issued != TUTTI_SUCCESS) return issued;
  return finished(stream) ? TUTTI_SUCCESS : TUTTI_SYSTEM_ERROR;
}

tutti_result_t CudaPlace::replay(CUstream stream, const std::function<tutti_result_t(tutti_stream_t)>& call) {
  const cuda::CurrentContext current(*context_);
  if (driver_->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS)
    return TUTTI_SYSTEM_ERROR;
  const tutti_result_t issued = call(tutti_stream_cuda(stream));
  CUgraph graph = nullptr;
  if (driver_->stream_end_capture(stream, &graph) != CUDA_SUCCESS || issued != TUTTI_SUCCESS)
    return issued != TUTTI_SUCCESS ? issued : TUTTI_SYSTEM_ERROR;
  CUgraphExec executable = nullptr;
  if (driver_->graph_instantiate(&executable, graph, 0) != CUDA_SUCCESS) return TUTTI_SYSTEM_ERROR;
  graphs_.emplace_back(graph, executable);
  if (driver_->graph_launch(executable, stream) != CUDA_SUCCESS) return TUTTI_SYSTEM_ERROR;
  return finished(stream) ? TUTTI_SUCCESS : TUTTI_SYSTEM_ERROR;
}

CUgraphExec end_capture(Rank& rank, const cuda::Driver& driver, CUstream stream,
                        const std::function<void()>& between) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  rank.expect_true(driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS, "the end of the capture");
  if (between) between();
  rank.expect_true(driver.graph_instantiate(&executable, graph, 0) == CUDA_SUCCESS, "the graph");
  (void)driver.graph_destroy(graph);
  return executable;
}

}  // namespace tutti::test
