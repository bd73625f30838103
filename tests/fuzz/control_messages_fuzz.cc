// Fuzz target: what ranks tell each other beside their data, in the bodies of frames: status, members of the
// next communicator; and unique ids, which come out of files, stores and launchers. Any bytes are refused or
// can be told, and written again to what they were.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/members.h"
#include "health/status_copy.h"

namespace {

using namespace tutti;

void try_status(std::span<const std::byte> bytes) {
  if (bytes.size() < kStatusCopyBytes) return;
  const std::span<const std::byte, kStatusCopyBytes> packed(bytes.data(), kStatusCopyBytes);
  const StatusCopy copy = decode_status(packed);
  if (describe_status(3, copy).empty()) std::abort();
  const auto again = encode(copy);
  if (std::memcmp(again.data(), packed.data(), again.size()) != 0) std::abort();
}

void try_members(std::span<const std::byte> bytes) {
  // Most inputs are shorter than a list: the rest is zeros.
  std::vector<std::byte> packed = Members{}.pack();
  std::memcpy(packed.data(), bytes.data(), std::min(bytes.size(), packed.size()));
  const auto members = Members::unpack(packed);
  if (!members || members->pack() != packed) std::abort();
  for (const uint32_t rank : members->ranks) {
    if (!members->contains(rank) || rank >= kMaxCommRanks) std::abort();
  }
  if (bytes.size() != packed.size() && Members::unpack(bytes)) std::abort();
}

void try_id(std::span<const std::byte> bytes) {
  UniqueId id;
  std::memcpy(static_cast<void*>(&id), bytes.data(), std::min(bytes.size(), sizeof(id)));
  if (check_unique_id(id) && !unpack_endpoints(id.endpoints)) std::abort();
  if (local_name_of(id).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  const auto bytes = std::as_bytes(std::span(data, data_bytes));
  if (bytes.empty()) return 0;
  try_status(bytes);
  try_members(bytes);
  try_id(bytes);
  return 0;
}
