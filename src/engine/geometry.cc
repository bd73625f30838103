#include "engine/geometry.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t kChunkAlignBytes = 64;

}  // namespace

uint64_t Geometry::chunk_bytes(uint64_t block_bytes) const {
  if (chunks_per_block_ == 1) return block_bytes;
  const uint64_t even = block_bytes / chunks_per_block_ + (block_bytes % chunks_per_block_ != 0 ? 1 : 0);
  return (even + kChunkAlignBytes - 1) / kChunkAlignBytes * kChunkAlignBytes;
}

Extent Geometry::chunk_of(const Side& side, uint32_t chunk) const {
  const uint32_t block = chunk / chunks_per_block_;
  const uint32_t index = chunk % chunks_per_block_;
  const Extent whole =
      side.blocks.empty() ? Extent{block * side.block_bytes, side.block_bytes} : side.blocks[block];
  const uint64_t each = chunk_bytes(whole.bytes);
  const uint64_t start = std::min(whole.bytes, index * each);
  return {whole.offset + start, std::min(each, whole.bytes - start)};
}

Geometry Geometry::uniform(const Plan& plan, uint64_t block_bytes) {
  Geometry geometry;
  geometry.chunks_per_block_ = plan.chunks_per_block;
  geometry.input_.block_bytes = block_bytes;
  geometry.output_.block_bytes = block_bytes;
  geometry.agreed_is_input_ = input_blocks(plan.collective, plan.rank_count) > 1 &&
                              output_blocks(plan.collective, plan.rank_count) == 1;
  geometry.largest_chunk_bytes_ = std::min(block_bytes, geometry.chunk_bytes(block_bytes));
  geometry.equal_chunks_ =
      plan.chunks_per_block == 1 || geometry.largest_chunk_bytes_ * plan.chunks_per_block == block_bytes;
  return geometry;
}

Geometry Geometry::variable(const Plan& plan, std::vector<Extent> input, std::vector<Extent> output) {
  Geometry geometry = uniform(plan, 0);
  geometry.contiguous_ = false;
  geometry.equal_chunks_ = false;
  geometry.input_.blocks = std::move(input);
  geometry.output_.blocks = std::move(output);
  const auto& agreed = geometry.agreed_is_input_ ? geometry.input_.blocks : geometry.output_.blocks;
  for (const Extent& block : agreed) {
    geometry.largest_chunk_bytes_ =
        std::max(geometry.largest_chunk_bytes_, std::min(block.bytes, geometry.chunk_bytes(block.bytes)));
  }
  return geometry;
}

}  // namespace tutti
