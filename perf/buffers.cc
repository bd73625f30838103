#include "perf/buffers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::perf {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kFootprintFactor = 4;
constexpr size_t kUnknownCacheBytes = 32u << 20;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_file(const std::string& path) {
  return File(std::fopen(path.c_str(), "re"));
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// 0 if `cpu` is no folder of a CPU.
size_t largest_cache_of(const std::string& cpu) {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const File file = open_file(cpu + "/cache/index" + std::to_string(index) + "/size");
    if (!file) break;
    unsigned long value = 0;
    char unit = 0;
    const int fields = std::fscanf(file.get(), "%lu%c", &value, &unit);
    if (fields < 1) continue;
    const size_t scale = unit == 'K' ? 1024u : (unit == 'M' ? 1024u * 1024u : 1u);
    largest = std::max(largest, static_cast<size_t>(value) * scale);
  }
  return largest;
}

}  // namespace

RingLayout ring_layout(size_t message_bytes, size_t shift_bytes, size_t footprint_bytes, size_t least_slots) {
  RingLayout layout;
  layout.stride_bytes = std::max(kCacheLine, round_up(message_bytes + shift_bytes, kCacheLine));
  layout.slot_count =
      std::max<size_t>(least_slots, (footprint_bytes + layout.stride_bytes - 1) / layout.stride_bytes);
  return layout;
}

int most_sharing_memory(std::span<const RankInfo> ranks, size_t first, size_t count) {
  int most = 0;
  for (const RankInfo& own : ranks.subspan(first, count)) {
    const auto sharing = std::ranges::count_if(
        ranks, [&](const RankInfo& one) { return one.host == own.host && one.address == own.address; });
    most = std::max(most, static_cast<int>(sharing));
  }
  return most;
}

size_t ring_footprint(const Options& options, size_t cache_bytes, int rank_count) {
  if (options.hot) return 0;
  const size_t all = options.footprint_bytes > 0 ? options.footprint_bytes : kFootprintFactor * cache_bytes;
  return all / static_cast<size_t>(std::max(rank_count, 1));
}

size_t last_level_cache_bytes(const std::string& cpus) {
  size_t largest = 0;
  std::error_code failure;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator cpu(cpus, failure); !failure && cpu != end; cpu.increment(failure))
    largest = std::max(largest, largest_cache_of(cpu->path().string()));
  return largest > 0 ? largest : kUnknownCacheBytes;
}

uint64_t available_memory_bytes() {
  const File file = open_file("/proc/meminfo");
  char line[256];
  while (file && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    uint64_t kibibytes = 0;
    if (std::sscanf(line, "MemAvailable: %" SCNu64, &kibibytes) == 1) return kibibytes * 1024;
  }
  return 0;
}

uint64_t resident_bytes() {
  const File file = open_file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  if (!file || std::fscanf(file.get(), "%" SCNu64 " %" SCNu64, &total, &resident) != 2) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Result<Arena> Arena::create(size_t bytes, bool symmetric) {
  Arena arena;
  arena.symmetric_ = symmetric;
  arena.bytes_ = bytes;
  if (bytes == 0) return arena;
  if (symmetric) {
    void* memory = nullptr;
    const tutti_result_t result = tutti_mem_alloc(&memory, bytes);
    if (result != TUTTI_SUCCESS)
      return Status(static_cast<Code>(result), std::string("tutti_mem_alloc: ") + tutti_last_error());
    arena.data_ = static_cast<char*>(memory);
    return arena;
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return system_error("mapping " + std::to_string(bytes) + " bytes of buffer", errno);
  // Reduces first-touch faults and TLB misses. The request may fail without harm.
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  arena.data_ = static_cast<char*>(memory);
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), symmetric_(other.symmetric_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(symmetric_, other.symmetric_);
  return *this;
}

Arena::~Arena() {
  if (data_ == nullptr) return;
  if (symmetric_)
    (void)tutti_mem_free(data_);
  else
    ::munmap(data_, bytes_);
}

}  // namespace tutti::perf
