// A rank in host memory (site.h).
#include <cstring>
#include <utility>

#include "perf/agree.h"
#include "perf/buffers.h"
#include "perf/site.h"

namespace tutti::perf {
namespace {

class HostMemory final : public SiteMemory {
 public:
  explicit HostMemory(Arena arena) : arena_(std::move(arena)) {}
  char* data() const override { return arena_.data(); }
  size_t bytes() const override { return arena_.bytes(); }

 private:
  Arena arena_;
};

struct DestroyStream {
  void operator()(tutti_host_stream_t* stream) const { (void)tutti_host_stream_destroy(stream); }
};

class HostSite final : public Site {
 public:
  explicit HostSite(tutti_host_stream_t* stream) : stream_(stream) {
    facts_.name = processor_name();
    facts_.cache_bytes = last_level_cache_bytes();
  }

  const SiteFacts& facts() const override { return facts_; }
  tutti_stream_t stream() const override {
    return stream_ == nullptr ? TUTTI_BLOCKING : tutti_stream_host(stream_.get());
  }
  DeviceQueue* queue() override { return nullptr; }

  Result<std::unique_ptr<SiteMemory>> allocate(size_t bytes, bool symmetric) override {
    Result<Arena> arena = Arena::create(bytes, symmetric);
    if (!arena) return arena.status();
    return std::unique_ptr<SiteMemory>(std::make_unique<HostMemory>(std::move(*arena)));
  }
  Result<std::unique_ptr<SiteMemory>> allocate_shared(size_t bytes) override {
    return allocate(bytes, false);
  }
  Status copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return Status::ok();
  }
  Status fill(void* to, unsigned char value, size_t bytes) override {
    std::memset(to, value, bytes);
    return Status::ok();
  }
  uint64_t available_bytes() const override { return available_memory_bytes(); }
  uint64_t used_bytes() const override { return resident_bytes(); }

  Status wait() override {
    if (stream_ == nullptr) return Status::ok();
    return check(tutti_host_stream_synchronize(stream_.get()), "waiting for the stream");
  }

 private:
  std::unique_ptr<tutti_host_stream_t, DestroyStream> stream_;
  SiteFacts facts_;
};

}  // namespace

Result<std::unique_ptr<Site>> open_host_site(bool has_stream) {
  tutti_host_stream_t* stream = nullptr;
  if (has_stream) TUTTI_TRY(check(tutti_host_stream_create(&stream), "creating a host stream"));
  return std::unique_ptr<Site>(std::make_unique<HostSite>(stream));
}

}  // namespace tutti::perf
