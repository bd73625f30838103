#include "comm/members.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti {
namespace {

using Bits = std::array<uint64_t, kMaxCommRanks / 64>;
static_assert(sizeof(Decision::id) == sizeof(UniqueId));

Bits bits_of(const std::vector<uint32_t>& ranks) {
  Bits bits{};
  for (const uint32_t rank : ranks) bits[rank / 64] |= uint64_t{1} << (rank % 64);
  return bits;
}

std::vector<uint32_t> ranks_of(const Bits& bits) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < kMaxCommRanks; ++rank) {
    if ((bits[rank / 64] >> (rank % 64) & 1) != 0) ranks.push_back(rank);
  }
  return ranks;
}

constexpr size_t kBitsBytes = kMaxCommRanks / 8;
constexpr size_t kPackedBytes = sizeof(UniqueId) + 2 * kBitsBytes;

void pack_bits(const std::vector<uint32_t>& ranks, std::byte* at) {
  const Bits bits = bits_of(ranks);
  for (uint32_t i = 0; i < kBitsBytes; ++i) at[i] = static_cast<std::byte>(bits[i / 8] >> (8 * (i % 8)));
}

std::vector<uint32_t> unpack_bits(const std::byte* at) {
  Bits bits{};
  for (uint32_t i = 0; i < kBitsBytes; ++i) bits[i / 8] |= std::to_integer<uint64_t>(at[i]) << (8 * (i % 8));
  return ranks_of(bits);
}

}  // namespace

bool Members::contains(uint32_t rank) const {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

bool Members::has_lost(uint32_t rank) const {
  return std::binary_search(lost.begin(), lost.end(), rank);
}

std::vector<std::byte> Members::pack() const {
  std::vector<std::byte> bytes(kPackedBytes);
  std::memcpy(bytes.data(), &id, sizeof(id));
  pack_bits(ranks, &bytes[sizeof(id)]);
  pack_bits(lost, &bytes[sizeof(id) + kBitsBytes]);
  return bytes;
}

Result<Members> Members::unpack(std::span<const std::byte> packed) {
  Members members;
  if (packed.size() != kPackedBytes) {
    return Status(Code::kMismatch, format("a list of members has %zu bytes", packed.size()));
  }
  std::memcpy(&members.id, packed.data(), sizeof(members.id));
  members.ranks = unpack_bits(&packed[sizeof(members.id)]);
  members.lost = unpack_bits(&packed[sizeof(members.id) + kBitsBytes]);
  return members;
}

void write_decision(Decision& decision, const Members& members) {
  const uint64_t number = decision.number.load(std::memory_order_relaxed);
  decision.number.store(number + 1, std::memory_order_seq_cst);
  const Bits bits = bits_of(members.ranks);
  const Bits lost = bits_of(members.lost);
  for (size_t i = 0; i < bits.size(); ++i) {
    decision.members[i].store(bits[i], std::memory_order_release);
    decision.lost[i].store(lost[i], std::memory_order_release);
  }
  std::array<uint64_t, 16> id{};
  std::memcpy(id.data(), &members.id, sizeof(members.id));
  for (size_t i = 0; i < id.size(); ++i) decision.id[i].store(id[i], std::memory_order_release);
  decision.number.store(number + 2, std::memory_order_release);
}

Members read_decision(const Decision& decision) {
  const uint64_t number = decision.number.load(std::memory_order_acquire);
  if (number == 0 || number % 2 != 0) return {};
  Bits bits{};
  Bits lost{};
  std::array<uint64_t, 16> id{};
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = decision.members[i].load(std::memory_order_acquire);
    lost[i] = decision.lost[i].load(std::memory_order_acquire);
  }
  for (size_t i = 0; i < id.size(); ++i) id[i] = decision.id[i].load(std::memory_order_acquire);
  if (decision.number.load(std::memory_order_acquire) != number) return {};
  Members members;
  members.ranks = ranks_of(bits);
  members.lost = ranks_of(lost);
  std::memcpy(static_cast<void*>(&members.id), id.data(), sizeof(members.id));
  return members;
}

}  // namespace tutti
