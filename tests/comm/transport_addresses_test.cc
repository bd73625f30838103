// Goal: address blobs of any length reach all ranks whole. Method: ranks in threads that exchange blobs over
// a barrier, each with a transport whose address has another length.
#include "comm/transport_addresses.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace tutti::test {
namespace {

using Address = std::vector<std::byte>;

class AddressedTransport final : public Transport {
 public:
  AddressedTransport(Address address, bool has_address)
      : address_(std::move(address)), traits_{.has_address = has_address} {}
  const TransportTraits& traits() const override { return traits_; }
  std::vector<std::byte> address() const override { return address_; }
  std::optional<LinkCost> reach(const RankDescription&, const RankDescription&) const override { return {}; }
  Result<Connection*> connect(PeerHandover) override { return Status(Code::kSystemError, "not here"); }
  bool progress() override { return false; }
  bool arm_wait(std::vector<pollfd>&) override { return false; }

 private:
  Address address_;
  TransportTraits traits_;
};

Address address_of(uint32_t rank, size_t bytes) {
  Address address(bytes);
  for (size_t i = 0; i < bytes; ++i) address[i] = static_cast<std::byte>(i * 7 + rank);
  return address;
}

TEST(TransportAddressesTest, AddressesOfAnyLengthReachAllRanks) {
  constexpr size_t kSizes[] = {0, 1, 511, 512, 513, 5000};
  constexpr uint32_t kRanks = std::size(kSizes);
  std::vector<Address> table(kRanks);
  std::barrier round(kRanks);
  std::vector<std::jthread> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto share = [&](std::span<const std::byte> blob) -> Result<std::vector<Address>> {
        EXPECT_LE(blob.size(), kMostSharedBytes);
        table[rank].assign(blob.begin(), blob.end());
        round.arrive_and_wait();
        std::vector<Address> all = table;
        round.arrive_and_wait();
        return all;
      };
      const AddressedTransport transport(address_of(rank, kSizes[rank]), true);
      const auto addresses = share_addresses(share, transport, kRanks);
      ASSERT_TRUE(addresses.is_ok()) << addresses.status().text();
      for (uint32_t peer = 0; peer < kRanks; ++peer)
        EXPECT_EQ((*addresses)[peer], address_of(peer, kSizes[peer])) << "rank " << peer;
    });
  }
}

TEST(TransportAddressesTest, ATransportWithoutAddressCostsNoRound) {
  const auto share = [](std::span<const std::byte>) -> Result<std::vector<Address>> {
    return Status(Code::kSystemError, "called");
  };
  const auto addresses = share_addresses(share, AddressedTransport({}, false), 3);
  ASSERT_TRUE(addresses.is_ok()) << addresses.status().text();
  EXPECT_EQ(*addresses, std::vector<Address>(3));
}

}  // namespace
}  // namespace tutti::test
