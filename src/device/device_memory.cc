#include "device/device_memory.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t kAlign = 256;
constexpr uint64_t kPieceBytes = 1u << 20;
constexpr uint64_t kLeastScratch = 1u << 20;
constexpr uint64_t kLeastPinned = 1u << 16;

}  // namespace

Status DeviceHeap::open() {
  auto stream = cuda::Stream::create(context_);
  TUTTI_TRY(stream.status());
  stream_ = std::move(*stream);
  return grow(kPieceBytes);
}

uint64_t DeviceHeap::rounded(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
}

Status DeviceHeap::grow(uint64_t bytes) {
  auto piece = cuda::DeviceMemory::allocate(context_, std::max(bytes, kPieceBytes));
  TUTTI_TRY(piece.status());
  next_ = piece->address();
  left_ = piece->bytes();
  pieces_.push_back(std::move(*piece));
  return Status::ok();
}

Result<CUdeviceptr> DeviceHeap::take(uint64_t bytes) {
  const uint64_t wanted = rounded(bytes);
  // Wasting a little is better than leaving a piece too small for any program.
  const auto found = free_.lower_bound(wanted);
  if (found != free_.end() && found->first == wanted) {
    const CUdeviceptr address = found->second;
    free_.erase(found);
    return address;
  }
  if (left_ < wanted) TUTTI_TRY(grow(wanted));
  left_ -= wanted;
  return std::exchange(next_, next_ + wanted);
}

void DeviceHeap::give_back(CUdeviceptr address, uint64_t bytes) {
  free_.emplace(rounded(bytes), address);
}

Result<unsigned char*> DeviceHeap::scratch(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  if (scratch_.empty() || scratch_.back().bytes() < bytes) {
    const uint64_t before = scratch_.empty() ? kLeastScratch : 2 * scratch_.back().bytes();
    auto memory = cuda::DeviceMemory::allocate(context_, std::max(bytes, before));
    TUTTI_TRY(memory.status());
    scratch_.push_back(std::move(*memory));
  }
  return scratch_.back().as<unsigned char>();
}

/// The last piece, or a new, larger one. Smaller ones are kept: freeing waits for the device, where others
/// may wait for this rank.
Result<std::byte*> DeviceHeap::pinned(std::vector<cuda::PinnedMemory>& pieces, uint64_t bytes) {
  if (pieces.empty() || pieces.back().bytes() < bytes) {
    const uint64_t before = pieces.empty() ? kLeastPinned : 2 * pieces.back().bytes();
    auto memory = cuda::PinnedMemory::allocate(context_, std::max(bytes, before));
    TUTTI_TRY(memory.status());
    pieces.push_back(std::move(*memory));
  }
  return pieces.back().as<std::byte>();
}

Status DeviceHeap::upload(CUdeviceptr to, uint64_t bytes, const std::function<void(std::byte*)>& fill) {
  auto staging = pinned(staging_, bytes);
  TUTTI_TRY(staging.status());
  fill(*staging);
  const cuda::CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const cuda::Driver& driver = context_.driver();
  const auto from = reinterpret_cast<CUdeviceptr>(*staging);
  TUTTI_TRY(driver.check(driver.memcpy_async(to, from, bytes, stream_.handle()), "cuMemcpyAsync"));
  return stream_.synchronize();
}

Result<std::byte*> DeviceHeap::shared_scratch(uint64_t bytes) {
  const cuda::BesideCaptures beside(context_.driver());
  return pinned(shared_, bytes);
}

}  // namespace tutti
