// Blobs: what each rank tells all others in one exchange. On the wire they stand one after the other in the
// order of the ranks, each behind its length: the blobs of the ranks may differ in length.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/result.h"

namespace tutti {

/// What every rank has said, by rank.
using Blobs = std::vector<std::vector<std::byte>>;

/// Most bytes of all blobs of one exchange together, with their lengths.
inline constexpr size_t kBlobsBytesMax = size_t{16} << 20;

/// Adds one blob to packed blobs.
void append_blob(std::vector<std::byte>& packed, std::span<const std::byte> blob);
/// Whether `packed` holds exactly `count` blobs.
bool holds_blobs(std::span<const std::byte> packed, size_t count);
/// Errors: kMismatch: `packed` does not hold exactly `count` blobs.
Result<Blobs> unpack_blobs(std::span<const std::byte> packed, size_t count);
/// The error where `rank` has to pass on so many bytes, more than kBlobsBytesMax.
Status too_many_bytes(size_t rank, size_t bytes);

}  // namespace tutti
