#include "bootstrap/blobs.h"

#include <array>

#include "net/wire.h"

namespace tutti {
namespace {

constexpr size_t kLengthBytes = 4;

/// Cuts the next blob off `packed`. False if `packed` is too short.
bool take_blob(std::span<const std::byte>& packed, std::span<const std::byte>& blob) {
  if (packed.size() < kLengthBytes) return false;
  const size_t length = get_u32(packed.first<kLengthBytes>());
  packed = packed.subspan(kLengthBytes);
  if (length > packed.size()) return false;
  blob = packed.first(length);
  packed = packed.subspan(length);
  return true;
}

}  // namespace

void append_blob(std::vector<std::byte>& packed, std::span<const std::byte> blob) {
  std::array<std::byte, kLengthBytes> length{};
  put_u32(length, static_cast<uint32_t>(blob.size()));
  packed.insert(packed.end(), length.begin(), length.end());
  packed.insert(packed.end(), blob.begin(), blob.end());
}

bool holds_blobs(std::span<const std::byte> packed, size_t count) {
  std::span<const std::byte> blob;
  for (size_t i = 0; i < count; ++i) {
    if (!take_blob(packed, blob)) return false;
  }
  return packed.empty();
}

Result<Blobs> unpack_blobs(std::span<const std::byte> packed, size_t count) {
  if (!holds_blobs(packed, count)) {
    return Status(Code::kMismatch,
                  format("%zu bytes do not hold the blobs of %zu ranks", packed.size(), count));
  }
  Blobs blobs(count);
  for (auto& blob : blobs) {
    std::span<const std::byte> bytes;
    take_blob(packed, bytes);
    blob.assign(bytes.begin(), bytes.end());
  }
  return blobs;
}

Status too_many_bytes(size_t rank, size_t bytes) {
  return {Code::kInvalidUsage,
          format("rank %zu has %zu bytes to pass on while the communicator is set up, but at most %zu are "
                 "possible: use fewer ranks, or transports with shorter addresses",
                 rank, bytes, kBlobsBytesMax)};
}

}  // namespace tutti
