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
  }
  release_owner();
}

Status SpareMemory::lend(const LentMemory& memory) {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  const Driver& driver = context_.driver();
  TUTTI_TRY(driver.check(driver.mem_host_register(memory.address, memory.bytes, flags),
                         format("cuMemHostRegister(%zu bytes)", memory.bytes)));
  const std::scoped_lock lock(mutex_);
  ++owned_;
  return Status::ok();
}

std::optional<LentMemory> SpareMemory::find_lent(size_t bytes) {
  const std::scoped_lock lock(mutex_);
  for (LentMemory& memory : lent_) {
    if (memory.bytes < bytes || memory.bytes / 2 > bytes) continue;
    LentMemory found = std::exchange(memory, std::move(lent_.back()));
    lent_.pop_back();
    ++owned_;
    return found;
  }
  return std::nullopt;
}

void SpareMemory::give_back(LentMemory memory) {
  {
    const std::scoped_lock lock(mutex_);
    lent_.push_back(std::move(memory));
  }
  release_owner();
}

void SpareMemory::release_owner() {
  {
    const std::scoped_lock lock(mutex_);
    if (--owned_ > 0) return;
  }
  free_all();
}

void SpareMemory::free_all() {
  Pieces device;
  Pieces host;
  std::vector<LentMemory> lent;
  {
    const std::scoped_lock lock(mutex_);
    device = std::exchange(device_, {});
    host = std::exchange(host_, {});
    lent = std::exchange(lent_, {});
  }
  if (device.empty() && host.empty() && lent.empty()) return;
  // A communicator may be destroyed amid a capture.
  const BesideCaptures beside(context_.driver());
  const CurrentContext current(context_);
  for (const auto& [bytes, address] : device) (void)context_.driver().mem_free(address);
  for (const auto& [bytes, address] : host)
    (void)context_.driver().mem_free_host(reinterpret_cast<void*>(address));
  for (const LentMemory& memory : lent) (void)context_.driver().mem_host_unregister(memory.address);
}

}  // namespace tutti::cuda
