#include "bootstrap/blobs.h"

#include <algorithm>
#include <array>

#include "net/wire.h"

namespace tutti {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr uint32_t kIsDifference = uint32_t{1} << 31;
constexpr size_t kPairBytes = 4;
constexpr size_t kRunMax = UINT16_MAX;

using Bytes = std::vector<std::byte>;

/// Cuts `count` bytes off. False if there are fewer.
bool take(std::span<const std::byte>& from, size_t count, std::span<const std::byte>& bytes) {
  if (count > from.size()) return false;
  bytes = from.first(count);
  from = from.subspan(count);
  return true;
}

bool take_u32(std::span<const std::byte>& from, uint32_t& value) {
  std::span<const std::byte> bytes;
  if (!take(from, kLengthBytes, bytes)) return false;
  value = get_u32(bytes.first<kLengthBytes>());
  return true;
}

/// Changes `blob` by the differences at the front of `packed`. False if they do not fit.
bool take_differences(std::span<const std::byte>& packed, Bytes& blob) {
  size_t place = 0;
  while (place < blob.size()) {
    uint32_t pair = 0;
    std::span<const std::byte> changed;
    if (!take_u32(packed, pair)) return false;
    const size_t equal = pair & kRunMax;
    const size_t other = pair >> 16;
    if (equal + other == 0 || equal + other > blob.size() - place) return false;
    if (!take(packed, other, changed)) return false;
    std::ranges::copy(changed, blob.begin() + static_cast<ptrdiff_t>(place + equal));
    place += equal + other;
  }
  return true;
}

/// Makes the blob at the front of `packed` out of the one before it. False if it is not whole.
bool take_blob(std::span<const std::byte>& packed, Bytes& blob) {
  uint32_t length = 0;
  if (!take_u32(packed, length)) return false;
  if ((length & kIsDifference) != 0) {
    return (length ^ kIsDifference) == blob.size() && take_differences(packed, blob);
  }
  std::span<const std::byte> bytes;
  if (!take(packed, length, bytes)) return false;
  blob.assign(bytes.begin(), bytes.end());
  return true;
}

/// Gives each blob to `use`. False if `packed` does not hold exactly `count`, or more bytes than are allowed.
template <typename Use>
bool read_blobs(std::span<const std::byte> packed, size_t count, const Use& use) {
  Bytes blob;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!take_blob(packed, blob)) return false;
    bytes += kLengthBytes + blob.size();
    if (bytes > kBlobsBytesMax + count * kLengthBytes) return false;
    use(blob);
  }
  return packed.empty();
}

void append_u32(Bytes& to, uint32_t value) {
  std::array<std::byte, kLengthBytes> bytes{};
  put_u32(bytes, value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// The length of a run of bytes from `place` on that are all equal in both, or all different; at most
/// kRunMax.
size_t run_length(const Bytes& a, const Bytes& b, size_t place, bool equal) {
  const size_t end = std::min(a.size(), place + kRunMax);
  size_t at = place;
  while (at < end && (a[at] == b[at]) == equal) ++at;
  return at - place;
}

void append_differences(Bytes& packed, const Bytes& before, const Bytes& blob) {
  append_u32(packed, static_cast<uint32_t>(blob.size()) | kIsDifference);
  for (size_t place = 0; place < blob.size();) {
    const size_t equal = run_length(before, blob, place, true);
    place += equal;
    size_t other = run_length(before, blob, place, false);
    // A few equal bytes cost less than another pair.
    while (place + other < blob.size()) {
      const size_t gap = run_length(before, blob, place + other, true);
      if (gap >= kPairBytes || place + other + gap == blob.size()) break;
      const size_t more = gap + run_length(before, blob, place + other + gap, false);
      if (other + more > kRunMax) break;
      other += more;
    }
    append_u32(packed, static_cast<uint32_t>(equal | other << 16));
    const auto first = blob.begin() + static_cast<ptrdiff_t>(place);
    packed.insert(packed.end(), first, first + static_cast<ptrdiff_t>(other));
    place += other;
  }
}

}  // namespace

void append_blob(std::vector<std::byte>& packed, std::span<const std::byte> blob) {
  append_u32(packed, static_cast<uint32_t>(blob.size()));
  packed.insert(packed.end(), blob.begin(), blob.end());
}

bool holds_blobs(std::span<const std::byte> packed, size_t count) {
  return read_blobs(packed, count, [](const Bytes&) {});
}

Result<Blobs> unpack_blobs(std::span<const std::byte> packed, size_t count) {
  Blobs blobs;
  blobs.reserve(std::min(count, packed.size() / kLengthBytes));
  if (read_blobs(packed, count, [&blobs](const Bytes& blob) { blobs.push_back(blob); })) return blobs;
  return Status(Code::kMismatch,
                format("%zu bytes do not hold the blobs of %zu ranks", packed.size(), count));
}

std::vector<std::byte> compact_blobs(std::span<const std::byte> packed, size_t count) {
  Bytes compact;
  Bytes before;
  read_blobs(packed, count, [&](const Bytes& blob) {
    const size_t start = compact.size();
    if (blob.size() == before.size() && !blob.empty()) {
      append_differences(compact, before, blob);
      if (compact.size() - start > kLengthBytes + blob.size()) compact.resize(start);
    }
    if (compact.size() == start) append_blob(compact, blob);
    before = blob;
  });
  return compact;
}

Status too_many_bytes(size_t rank, size_t bytes) {
  return {Code::kInvalidUsage,
          format("rank %zu has %zu bytes to pass on while the communicator is set up, but at most %zu are "
                 "possible: use fewer ranks, or transports with shorter addresses",
                 rank, bytes, kBlobsBytesMax)};
}

}  // namespace tutti
