#include "cuda/spare_memory.h"

#include <utility>

#include "cuda/context.h"

namespace tutti::cuda {

CUresult SpareMemory::allocate(MemorySource source, size_t bytes, CUdeviceptr& address) const {
  const Driver& driver = context_.driver();
  if (source == MemorySource::kDevice) return driver.mem_alloc(&address, bytes);
  void* host = nullptr;
  const CUresult answer =
      driver.mem_host_alloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  address = reinterpret_cast<CUdeviceptr>(host);
  return answer;
}

/// Takes out a piece that is at most half wasted; 0: there is none. mutex_ is held.
CUdeviceptr SpareMemory::find(MemorySource source, size_t& bytes) {
  Pieces& spare = pieces(source);
  const auto found = spare.lower_bound(bytes);
  if (found == spare.end() || found->first / 2 > bytes) return 0;
  const CUdeviceptr address = found->second;
  bytes = found->first;
  spare.erase(found);
  return address;
}

Result<MemoryPiece> SpareMemory::take(MemorySource source, size_t bytes) {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  MemoryPiece piece{.bytes = bytes};
  {
    const std::scoped_lock lock(mutex_);
    ++owned_;
    piece.address = find(source, piece.bytes);
  }
  if (piece.address != 0) return piece;
  CUresult answer = allocate(source, bytes, piece.address);
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
    free_all();
    answer = allocate(source, bytes, piece.address);
  }
  const char* const name = source == MemorySource::kDevice ? "cuMemAlloc" : "cuMemHostAlloc";
  const Status status =
      context_.driver().check(answer, format("%s(%zu bytes on device %d)", name, bytes, context_.device()));
  if (status) return piece;
  const std::scoped_lock lock(mutex_);
  --owned_;
  return status;
}

void SpareMemory::give_back(MemorySource source, MemoryPiece piece) {
  {
    const std::scoped_lock lock(mutex_);
    pieces(source).emplace(piece.bytes, piece.address);
    if (--owned_ > 0) return;
  }
  free_all();
}

void SpareMemory::free_all() {
  Pieces device;
  Pieces host;
  {
    const std::scoped_lock lock(mutex_);
    device = std::exchange(device_, {});
    host = std::exchange(host_, {});
  }
  if (device.empty() && host.empty()) return;
  const CurrentContext current(context_);
  for (const auto& [bytes, address] : device) (void)context_.driver().mem_free(address);
  for (const auto& [bytes, address] : host)
    (void)context_.driver().mem_free_host(reinterpret_cast<void*>(address));
}

}  // namespace tutti::cuda
