// Blobs: what each rank tells all others in one exchange. On the wire each blob follows its length, in the
// order of the ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/result.h"

namespace tutti {

/// By rank.
using Blobs = std::vector<std::vector<std::byte>>;

/// Limit for all blobs of one exchange together, with their lengths.
inline constexpr size_t kBlobsBytesMax = size_t{16} << 20;

void append_blob(std::vector<std::byte>& packed, std::span<const std::byte> blob);
bool holds_blobs(std::span<const std::byte> packed, size_t count);
/// Errors: kMismatch if `packed` does not hold exactly `count` blobs.
Result<Blobs> unpack_blobs(std::span<const std::byte> packed, size_t count);
/// The error if `rank` has to pass on more than kBlobsBytesMax.
Status too_many_bytes(size_t rank, size_t bytes);

}  // namespace tutti
