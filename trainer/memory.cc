#include "trainer/memory.h"

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

class HostStream : public Stream {
 public:
  HostStream() { check(tutti_host_stream_create(&stream_), "making a stream"); }
  ~HostStream() override { (void)tutti_host_stream_destroy(stream_); }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  tutti_stream_t handle() const override { return tutti_stream_host(stream_); }
  void mark() override {}
  void wait() override { check(tutti_host_stream_synchronize(stream_), "reducing gradients"); }

 private:
  tutti_host_stream_t* stream_ = nullptr;
};

class HostBackend : public Backend {
 public:
  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(tutti_mem_alloc(&memory, bytes), "memory for gradients");
    return memory;
  }
  void free(void* memory) override { (void)tutti_mem_free(memory); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
};

}  // namespace

BackendPointer host_backend() {
  return std::make_shared<HostBackend>();
}

}  // namespace tutti::trainer
