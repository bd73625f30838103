// CudaPlace: trials on a CUDA device, through the driver: buffers in its memory, calls on a stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/memory.h"
#include "tests/conformance/trial.h"

namespace tutti::test {

/// How the calls of a trial are made.
enum class Order {
  kBlocking,  ///< TUTTI_BLOCKING
  kStream,
  kStreams,  ///< a stream of several in turn, each waited for at the end only
  kGraph,    ///< captured, then launched
};

const char* order_name(Order order);

class CudaPlace final : public Place {
 public:
  /// Of one rank. Null and a failure of the rank when the device cannot be used.
  static std::unique_ptr<CudaPlace> open(Rank& rank, int device, Order order);
  ~CudaPlace() override;

  std::byte* allocate(size_t bytes) override;
  bool copy(void* to, const void* from, size_t bytes) override;
  tutti_result_t run(const std::function<tutti_result_t(tutti_stream_t)>& call) override;

  const cuda::Context& context() const { return *context_; }
  const cuda::Driver& driver() const { return *driver_; }
  CUstream stream() const { return streams_[0].handle(); }
  /// Gives the memory of earlier trials back.
  void clear() { memory_.clear(); }

 private:
  CudaPlace() = default;
  tutti_result_t replay(CUstream stream, const std::function<tutti_result_t(tutti_stream_t)>& call);
  bool finished(CUstream stream);

  Order order_ = Order::kBlocking;
  std::unique_ptr<const cuda::Driver> driver_;
  std::unique_ptr<cuda::Context> context_;
  std::vector<cuda::Stream> streams_;
  std::vector<cuda::DeviceMemory> memory_;
  std::vector<std::pair<CUgraph, CUgraphExec>> graphs_;
  size_t calls_ = 0;
};

/// Ends the stream's capture and makes its graph, which the caller destroys. Null and a failure of the rank
/// when the driver refuses. `between`, if any, runs when the capture has ended: while another thread captures
/// in global mode, the driver makes no graph and spoils that capture.
CUgraphExec end_capture(Rank& rank, const cuda::Driver& driver, CUstream stream,
                        const std::function<void()>& between = {});

}  // namespace tutti::test
