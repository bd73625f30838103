// Geometry: where the chunks of a plan lie in the buffers of one call, in bytes.
//
// A block is cut into chunks whose starts are 64-byte aligned relative to the block, so that two ranks never
// write one cache line; the last chunks of a small block may be short or empty. The cut depends on the
// block's bytes alone, so every rank that knows a block cuts it alike. Where several threads work on a call,
// each has a stripe of every block, cut by the same rule, and cuts its stripe into chunks.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tutti {

/// A piece of a buffer.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// One of `count` parts of every block; the last ones of a small block are empty.
struct Stripe {
  uint32_t index = 0;
  uint32_t count = 1;
};

class Geometry {
 public:
  /// Every block has `block_bytes`; blocks follow one another.
  static Geometry uniform(const Plan& plan, uint64_t block_bytes, Stripe stripe = {});
  /// Blocks of their own sizes and places. `input` and `output` have as many blocks as the collective has.
  static Geometry variable(const Plan& plan, std::vector<Extent> input, std::vector<Extent> output,
                           Stripe stripe = {});

  Extent input_chunk(uint32_t chunk) const { return chunk_of(input_, chunk); }
  Extent output_chunk(uint32_t chunk) const { return chunk_of(output_, chunk); }
  /// The chunk of a step's numbering (Step::first_chunk): of the side that every rank knows whole.
  Extent agreed_chunk(uint32_t chunk) const {
    return agreed_is_input_ ? input_chunk(chunk) : output_chunk(chunk);
  }

  uint64_t largest_chunk_bytes() const { return largest_chunk_bytes_; }
  /// Whether consecutive chunks are adjacent in memory on both sides.
  bool contiguous() const { return contiguous_; }
  /// Whether all chunks are of one size, so that they are adjacent in scratch as well.
  bool equal_chunks() const { return equal_chunks_; }

 private:
  struct Side {
    Extent block;                ///< uniform: the first block's part that is cut
    uint64_t stride = 0;         ///< uniform: from block to block
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
