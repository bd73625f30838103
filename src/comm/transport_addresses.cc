#include "comm/transport_addresses.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti {
namespace {

using Address = std::vector<std::byte>;

/// The piece at `offset`; empty beyond the end.
template <typename Bytes>
auto piece_of(Bytes& address, uint64_t offset) {
  const uint64_t start = std::min<uint64_t>(offset, address.size());
  return std::span(address).subspan(start, std::min<uint64_t>(kMostSharedBytes, address.size() - start));
}

}  // namespace

Result<std::vector<Address>> share_addresses(const ShareBlob& share, const Transport& transport,
                                             uint32_t rank_count) {
  std::vector<Address> addresses(rank_count);
  if (!transport.traits().has_address) return addresses;
  const Address own = transport.address();
  const uint64_t own_bytes = own.size();
  auto sizes = share(std::as_bytes(std::span(&own_bytes, 1)));
  TUTTI_TRY(sizes.status());
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, (*sizes)[rank].data(), sizeof(bytes));
    addresses[rank].resize(bytes);
    most = std::max(most, bytes);
  }
  for (uint64_t offset = 0; offset < most; offset += kMostSharedBytes) {
    std::array<std::byte, kMostSharedBytes> blob{};
    std::ranges::copy(piece_of(own, offset), blob.begin());
    auto pieces = share(blob);
    TUTTI_TRY(pieces.status());
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
      const auto target = piece_of(addresses[rank], offset);
      std::copy_n((*pieces)[rank].begin(), target.size(), target.begin());
    }
  }
  return addresses;
}

}  // namespace tutti
