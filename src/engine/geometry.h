// Geometry: where the chunks of a plan lie in the buffers of one call, in bytes.
//
// Chunks start at multiples of 64 bytes within a block, so that two ranks never write one cache line. The
// last chunks of a small block may be short or empty. The cut depends only on the block's bytes, so all ranks
// cut a block alike. The same rule cuts blocks into stripes, one per thread that works on a call.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tutti {

struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// One of `count` parts of every block. The last parts of a small block are empty.
struct Stripe {
  uint32_t index = 0;
  uint32_t count = 1;
};

class Geometry {
 public:
  /// Every block has `block_bytes`, and the blocks are adjacent.
  static Geometry uniform(const Plan& plan, uint64_t block_bytes, Stripe stripe = {});
  /// `input` and `output` have as many blocks as the collective has.
  static Geometry variable(const Plan& plan, std::vector<Extent> input, std::vector<Extent> output,
                           Stripe stripe = {});

  Extent input_chunk(uint32_t chunk) const { return chunk_of(input_, chunk); }
  Extent output_chunk(uint32_t chunk) const { return chunk_of(output_, chunk); }
  /// The chunk that Step::first_chunk counts: on the side that every rank knows whole.
  Extent agreed_chunk(uint32_t chunk) const {
    return agreed_is_input_ ? input_chunk(chunk) : output_chunk(chunk);
  }

  uint64_t largest_chunk_bytes() const { return largest_chunk_bytes_; }
  /// Whether consecutive chunks are adjacent in memory on both sides.
  bool contiguous() const { return contiguous_; }
  /// Whether all chunks have one size, so that they are adjacent in scratch as well.
  bool equal_chunks() const { return equal_chunks_; }

 private:
  struct Side {
    Extent block;                ///< uniform: the part of the first block that is cut
    uint64_t stride = 0;         ///< uniform: distance of blocks
    std::vector<Extent> blocks;  ///< variable: not empty
  };

  Extent chunk_of(const Side& side, uint32_t chunk) const;
  uint64_t largest_chunk_bytes(uint64_t block_bytes) const;

  Side input_;
  Side output_;
  uint32_t chunks_per_block_ = 1;
  bool agreed_is_input_ = false;
  bool contiguous_ = true;
  bool equal_chunks_ = true;
  uint64_t largest_chunk_bytes_ = 0;
};

}  // namespace tutti
