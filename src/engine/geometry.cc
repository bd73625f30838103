#include "engine/geometry.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t kChunkAlignBytes = 64;

/// Part `index` of `count` of an extent.
Extent part_of(const Extent& whole, uint32_t index, uint32_t count) {
  if (count == 1) return whole;
  const uint64_t even = whole.bytes / count + (whole.bytes % count != 0 ? 1 : 0);
  const uint64_t each = (even + kChunkAlignBytes - 1) / kChunkAlignBytes * kChunkAlignBytes;
  const uint64_t start = std::min(whole.bytes, index * each);
  return {whole.offset + start, std::min(each, whole.bytes - start)};
}

void cut_stripe(std::vector<Extent>& blocks, Stripe stripe) {
  for (Extent& block : blocks) block = part_of(block, stripe.index, stripe.count);
}

}  // namespace

uint64_t Geometry::largest_chunk_bytes(uint64_t block_bytes) const {
  return part_of({0, block_bytes}, 0, chunks_per_block_).bytes;
}

Extent Geometry::chunk_of(const Side& side, uint32_t chunk) const {
  const uint32_t block = chunk / chunks_per_block_;
  const uint32_t index = chunk % chunks_per_block_;
  const Extent whole = side.blocks.empty() ? Extent{side.block.offset + block * side.stride, side.block.bytes}
                                           : side.blocks[block];
  return part_of(whole, index, chunks_per_block_);
}

Geometry Geometry::uniform(const Plan& plan, uint64_t block_bytes, Stripe stripe) {
  Geometry geometry;
  geometry.chunks_per_block_ = plan.chunks_per_block;
  const Extent block = part_of({0, block_bytes}, stripe.index, stripe.count);
  geometry.input_ = {.block = block, .stride = block_bytes, .blocks = {}};
  geometry.output_ = geometry.input_;
  const uint32_t inputs = input_blocks(plan.collective, plan.rank_count);
  const uint32_t outputs = output_blocks(plan.collective, plan.rank_count);
  geometry.agreed_is_input_ = inputs > 1 && outputs == 1;
  geometry.contiguous_ = stripe.count == 1 || (inputs == 1 && outputs == 1);
  geometry.largest_chunk_bytes_ = geometry.largest_chunk_bytes(block.bytes);
  geometry.equal_chunks_ =
      plan.chunks_per_block == 1 || geometry.largest_chunk_bytes_ * plan.chunks_per_block == block.bytes;
  return geometry;
}

Geometry Geometry::variable(const Plan& plan, std::vector<Extent> input, std::vector<Extent> output,
                            Stripe stripe) {
  Geometry geometry = uniform(plan, 0);
  geometry.contiguous_ = false;
  geometry.equal_chunks_ = false;
  cut_stripe(input, stripe);
  cut_stripe(output, stripe);
  geometry.input_.blocks = std::move(input);
  geometry.output_.blocks = std::move(output);
  const auto& agreed = geometry.agreed_is_input_ ? geometry.input_.blocks : geometry.output_.blocks;
  for (const Extent& block : agreed) {
    geometry.largest_chunk_bytes_ =
        std::max(geometry.largest_chunk_bytes_, geometry.largest_chunk_bytes(block.bytes));
  }
  return geometry;
}

}  // namespace tutti
