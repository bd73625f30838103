// Benchmark driver for Gloo. Its only transport for one host is TCP; ranks find each other through a file
// store.
//
// --options bcube selects the bcube all-reduce instead of the default ring.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "driver.h"

namespace peers {
namespace {

class GlooLibrary {
 public:
  explicit GlooLibrary(const Arguments& arguments)
      : algorithm_(arguments.options == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                : gloo::AllreduceOptions::Algorithm::RING) {
    gloo::rendezvous::FileStore store(arguments.dir);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    auto context = std::make_shared<gloo::rendezvous::Context>(arguments.rank, arguments.rank_count);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  const char* name() const { return "gloo"; }
  std::string version() const {
    return std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
           std::to_string(GLOO_VERSION_PATCH);
  }
  int rank() const { return context_->rank; }
  int rank_count() const { return context_->size; }
  bool supports(Collective collective, ElementType type) const {
    return type == ElementType::kFloat32 && collective != Collective::kReduceScatter;
  }
  std::function<void()> progress() { return {}; }  // Gloo's device thread moves the bytes
  void begin(ElementType) {}
  void* allocate(size_t bytes) { return std::aligned_alloc(64, bytes); }
  void release(void* memory) { std::free(memory); }

  void all_reduce(void* send, void* recv, size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_);
    options.setInput(static_cast<float*>(send), count);
    options.setOutput(static_cast<float*>(recv), count);
    options.setReduceFunction(sum_);
    options.setTag(next_tag());
    gloo::allreduce(options);
  }
  void all_gather(void* send, void* recv, size_t count) {
    gloo::AllgatherOptions options(context_);
    options.setInput(static_cast<float*>(send), count);
    options.setOutput(static_cast<float*>(recv), count * static_cast<size_t>(context_->size));
    options.setTag(next_tag());
    gloo::allgather(options);
  }
  void reduce_scatter(const void*, void*, size_t) {}  // Gloo's current interface has none: see supports()
  void broadcast(void* buffer, size_t count, int root) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(static_cast<float*>(buffer), count);
    options.setRoot(root);
    options.setTag(next_tag());
    gloo::broadcast(options);
  }
  void reduce(void* send, void* recv, size_t count, int root) {
    gloo::ReduceOptions options(context_);
    options.setInput(static_cast<float*>(send), count);
    options.setOutput(static_cast<float*>(recv), count);
    options.setRoot(root);
    options.setReduceFunction(sum_);
    options.setTag(next_tag());
    gloo::reduce(options);
  }
  void all_to_all(void* send, void* recv, size_t count) {
    const size_t total = count * static_cast<size_t>(context_->size);
    gloo::AlltoallOptions options(context_);
    options.setInput(static_cast<float*>(send), total);
    options.setOutput(static_cast<float*>(recv), total);
    options.setTag(next_tag());
    gloo::alltoall(options);
  }
  void send(void* buffer, size_t count, int peer) {
    auto unbound = context_->createUnboundBuffer(buffer, count * sizeof(float));
    unbound->send(peer, kPointToPointSlot);
    unbound->waitSend(context_->getTimeout());
  }
  void recv(void* buffer, size_t count, int peer) {
    auto unbound = context_->createUnboundBuffer(buffer, count * sizeof(float));
    unbound->recv(peer, kPointToPointSlot);
    unbound->waitRecv(context_->getTimeout());
  }
  void barrier() {
    gloo::BarrierOptions options(context_);
    options.setTag(next_tag());
    gloo::barrier(options);
  }
  std::optional<double> create_microseconds(Board&) { return std::nullopt; }

 private:
  static constexpr uint64_t kPointToPointSlot = uint64_t{1} << 60;  // outside the range that collectives use

  uint32_t next_tag() { return tag_ = (tag_ + 1) & 0xFFFF; }

  std::shared_ptr<gloo::Context> context_;
  gloo::AllreduceOptions::Algorithm algorithm_;
  gloo::AllreduceOptions::Func sum_ =
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>);
  uint32_t tag_ = 0;
};

}  // namespace
}  // namespace peers

int main(int argc, char** argv) {
  return peers::guarded_main([&] {
    const peers::Arguments arguments = peers::parse_arguments(argc, argv);
    peers::GlooLibrary library(arguments);
    return peers::serve(library, arguments);
  });
}
