// Multicast memory of ranks on CUDA devices, and the links with slots there.
//
// Cells and credits lie behind the rank's mailboxes. Each rank's copy of the slots holds two rings per stripe
// and rank: one for collecting, one for publishing.
#include "device/cuda_rank.h"
#include "engine/links.h"

namespace tutti {

using cuda::BesideCaptures;
using cuda::Multicast;

/// Rank 0 creates the object before it knows the other devices. If they cannot use the object, the rank frees
/// it.
void CudaRank::offer_multicast() {
  const bool has_code = device_.architecture >= cuda::kMulticastArchitecture;
  if (rank_count_ < 2 || rank_count_ > cuda::kMaxMulticastRanks || !context_.facts().multicasts || !has_code)
    return;
  identity_.multicasts = 1;
  if (rank_ != 0) return;
  auto created = MulticastMemory::create(context_, rank_count_, layout_.multicast_bytes());
  if (created) links_->multicast = std::move(*created);
  // Fails, for example, if there are more ranks than devices.
  if (!created) identity_.multicasts = 0;
}

Status CudaRank::add_to_multicast(const FileDescriptor* file) {
  const BesideCaptures beside(driver());
  if (rank_ != 0) {
    auto opened = MulticastMemory::open(context_, rank_count_, layout_.multicast_bytes(),
                                        file != nullptr ? *file : peers_[0].links->multicast.file());
    TUTTI_TRY(opened.status());
    links_->multicast = std::move(*opened);
  }
  return links_->multicast.add_device();
}

Status CudaRank::bind_multicast() {
  const BesideCaptures beside(driver());
  TUTTI_TRY(links_->multicast.bind());
  std::vector<cuda::SendLink> sends;
  std::vector<cuda::RecvLink> receives;
  for (uint32_t stripe = 0; stripe < shape_.multicast_stripes; ++stripe) {
    for (const Multicast use : {Multicast::kCollect, Multicast::kPublish}) {
      for (uint32_t peer = 0; peer < rank_count_; ++peer) {
        sends.push_back(multicast_send(peer, stripe, use));
        receives.push_back(multicast_receive(peer, stripe, use));
      }
    }
  }
  TUTTI_TRY(
      cuda::copy_now(context_, sends_ + layout_.link_count(), sends.data(), sends.size() * sizeof(sends[0])));
  return cuda::copy_now(context_, receives_ + layout_.link_count(), receives.data(),
                        receives.size() * sizeof(receives[0]));
}

std::byte* CudaRank::multicast_ring(uint32_t owner, uint32_t reader, uint32_t stripe, Multicast use) const {
  return peers_[owner].links->base() +
         layout_.multicast_cells_at(layout_.multicast_link(reader, stripe, use));
}

cuda::SendLink CudaRank::multicast_send(uint32_t peer, uint32_t stripe, Multicast use) const {
  const bool collected = use == Multicast::kCollect;
  const MulticastMemory& memory = links_->multicast;
  std::byte* const base = collected ? memory.own<std::byte>() : memory.all<std::byte>();
  const auto end = SendLink::at(multicast_ring(rank_, peer, stripe, use), layout_.multicast_ring());
  return {.cells = end.cells,
          .credit = end.credits,
          .slots = base + layout_.multicast_slots_at(collected ? peer : rank_, stripe, use),
          .slot_mask = end.slot_mask,
          .slot_bytes = end.slot_bytes,
          .peer = peer,
          .same_memory = 0,
          .by_slot = 1,
          .comes_back = collected ? 1u : 0u,
          .next = 0,
          .limit = end.limit,
          .last_reference = 0};
}

cuda::RecvLink CudaRank::multicast_receive(uint32_t peer, uint32_t stripe, Multicast use) const {
  const bool collects = use == Multicast::kCollect;
  const MulticastMemory& memory = links_->multicast;
  const std::byte* const base = collects ? memory.all<std::byte>() : memory.own<std::byte>();
  const auto end = RecvLink::at(multicast_ring(peer, rank_, stripe, use), layout_.multicast_ring(), 0);
  return {.cells = end.cells,
          .credit = end.credit,
          .slots = base + layout_.multicast_slots_at(collects ? rank_ : peer, stripe, use),
          .slot_mask = end.slot_mask,
          .slot_bytes = end.slot_bytes,
          .peer = peer,
          .credit_mask = collects ? 0 : end.credit_mask,
          .registered = nullptr,
          .next = 0};
}

}  // namespace tutti
