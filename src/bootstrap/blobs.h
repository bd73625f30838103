// Blobs: what each rank tells all others in one exchange.
//
// On the wire they follow each other in the order of the ranks. Each begins with its length, whose highest
// bit says how it is written: 0, as its bytes; 1, by its differences from the blob before it, which has the
// same length. What ranks of one job say differs in few bytes, and a table of thousands of ranks goes to each
// of them. The differences are pairs: the number of bytes that are equal (16 bits), the number of bytes that
// follow (16 bits), and these bytes; until the length is reached.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/result.h"

namespace tutti {

/// By rank.
using Blobs = std::vector<std::vector<std::byte>>;

/// Limit for all blobs of one exchange together, with their lengths, whole and as differences.
inline constexpr size_t kBlobsBytesMax = size_t{16} << 20;

/// Appends a whole blob.
void append_blob(std::vector<std::byte>& packed, std::span<const std::byte> blob);
bool holds_blobs(std::span<const std::byte> packed, size_t count);
/// Errors: kMismatch if `packed` does not hold exactly `count` blobs.
Result<Blobs> unpack_blobs(std::span<const std::byte> packed, size_t count);
/// The same blobs by their differences, where that is shorter. `packed` holds `count` blobs.
std::vector<std::byte> compact_blobs(std::span<const std::byte> packed, size_t count);
/// The error if `rank` has to pass on more than kBlobsBytesMax.
Status too_many_bytes(size_t rank, size_t bytes);

}  // namespace tutti
