// MemoryMap: a number for every chunk of every rank's buffers. Chunks that are the same memory in place have
// the same number.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace tutti {

class MemoryMap {
 public:
  /// `plan`: any plan of the set, after check_shape. In place: as tutti.h defines for the collective.
  MemoryMap(const Plan& plan, bool in_place)
      : collective_(plan.collective),
        in_place_(in_place),
        root_(plan.root),
        chunks_per_block_(plan.chunks_per_block),
        input_chunks_(input_blocks(plan.collective, plan.rank_count) * plan.chunks_per_block),
        output_chunks_(output_blocks(plan.collective, plan.rank_count) * plan.chunks_per_block),
        rank_chunks_(input_chunks_ + output_chunks_ + plan.scratch_chunks),
        rank_count_(plan.rank_count) {}

  uint32_t size() const { return rank_chunks_ * rank_count_; }
  uint32_t output_chunks() const { return output_chunks_; }

  /// The location of a chunk of a buffer. `kind` must not be a link.
  uint32_t at(uint32_t rank, EndKind kind, uint32_t chunk) const {
    const uint32_t first = rank * rank_chunks_;
    switch (kind) {
      case EndKind::kInput: return first + chunk;
      case EndKind::kOutput:
        if (in_place_) {
          if (const auto alias = input_of_output(rank, chunk)) return first + *alias;
        }
        return first + input_chunks_ + chunk;
      default: return first + input_chunks_ + output_chunks_ + chunk;
    }
  }

  bool is_scratch(uint32_t location) const {
    return location % rank_chunks_ >= input_chunks_ + output_chunks_;
  }

 private:
  /// The input chunk that is the same memory as an output chunk, in place.
  std::optional<uint32_t> input_of_output(uint32_t rank, uint32_t chunk) const {
    const uint32_t own = rank * chunks_per_block_;
    switch (collective_) {
      case Collective::kAllReduce:
      case Collective::kAllToAll: return chunk;
      case Collective::kReduce:
      case Collective::kBroadcast: return rank == root_ ? std::optional(chunk) : std::nullopt;
      case Collective::kGather:
        if (rank != root_) return std::nullopt;
        [[fallthrough]];
      case Collective::kAllGather:
        return chunk >= own && chunk < own + chunks_per_block_ ? std::optional(chunk - own) : std::nullopt;
      case Collective::kScatter:
        if (rank != root_) return std::nullopt;
        [[fallthrough]];
      case Collective::kReduceScatter: return own + chunk;
      default: return std::nullopt;
    }
  }

  Collective collective_;
  bool in_place_;
  uint32_t root_;
  uint32_t chunks_per_block_;
  uint32_t input_chunks_;
  uint32_t output_chunks_;
  uint32_t rank_chunks_;
  uint32_t rank_count_;
};

}  // namespace tutti
