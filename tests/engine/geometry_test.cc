// Goal: the chunks of a block are the block: every byte in exactly one chunk, cut at cache lines.
// Method: all block sizes up to some hundred bytes and a few odd large ones, 1 to 17 chunks a block, one
// block and several, of one size and of different sizes.
#include "engine/geometry.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

Plan make_plan(Collective collective, uint32_t rank_count, uint32_t chunks_per_block) {
  Plan plan;
  plan.collective = collective;
  plan.rank_count = rank_count;
  plan.chunks_per_block = chunks_per_block;
  return plan;
}

std::vector<uint64_t> block_sizes() {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = 0; bytes <= 400; ++bytes) sizes.push_back(bytes);
  sizes.insert(sizes.end(), {4095, 4096, 4097, 65537, 1000003, (1ull << 32) + 5});
  return sizes;
}

/// The chunks of `block` follow one another from its start to its end; all but the last that has bytes are of
/// one size, a multiple of 64.
template <class ChunkAt>
void expect_chunks_cover(const Extent& block, uint32_t chunk_count, const ChunkAt& chunk_at) {
  uint64_t covered = 0;
  const uint64_t first_bytes = chunk_at(0).bytes;
  for (uint32_t i = 0; i < chunk_count; ++i) {
    const Extent chunk = chunk_at(i);
    ASSERT_EQ(chunk.offset, block.offset + covered) << "chunk " << i << " of " << block.bytes << " bytes";
    if (chunk.bytes > 0) {
      ASSERT_TRUE(i == 0 || covered % 64 == 0) << "chunk " << i << " of " << block.bytes << " bytes";
    }
    ASSERT_LE(chunk.bytes, first_bytes);
    covered += chunk.bytes;
  }
  ASSERT_EQ(covered, block.bytes);
}

TEST(GeometryTest, ChunksCoverEveryBlockExactlyAndStartAtCacheLines) {
  for (uint32_t chunks = 1; chunks <= 17; ++chunks) {
    const Plan plan = make_plan(Collective::kAllToAll, 3, chunks);
    for (const uint64_t bytes : block_sizes()) {
      const Geometry geometry = Geometry::uniform(plan, bytes);
      for (uint32_t block = 0; block < 3; ++block) {
        const Extent whole{block * bytes, bytes};
        expect_chunks_cover(whole, chunks,
                            [&](uint32_t i) { return geometry.input_chunk(block * chunks + i); });
        expect_chunks_cover(whole, chunks,
                            [&](uint32_t i) { return geometry.output_chunk(block * chunks + i); });
      }
    }
  }
}

TEST(GeometryTest, TheLargestChunkIsTheFirst) {
  for (uint32_t chunks = 1; chunks <= 17; ++chunks) {
    for (const uint64_t bytes : block_sizes()) {
      const Geometry geometry = Geometry::uniform(make_plan(Collective::kAllReduce, 4, chunks), bytes);
      ASSERT_EQ(geometry.largest_chunk_bytes(), geometry.output_chunk(0).bytes);
    }
  }
}

TEST(GeometryTest, ASmallBlockHasEmptyChunksAtItsEnd) {
  const Geometry geometry = Geometry::uniform(make_plan(Collective::kAllReduce, 4, 4), 130);
  EXPECT_EQ(geometry.output_chunk(0).bytes, 64u);
  EXPECT_EQ(geometry.output_chunk(1).bytes, 64u);
  EXPECT_EQ(geometry.output_chunk(2).bytes, 2u);
  EXPECT_EQ(geometry.output_chunk(3).bytes, 0u);
  EXPECT_EQ(geometry.output_chunk(3).offset, 130u);
}

TEST(GeometryTest, ChunksAreEqualOnlyWhereTheyAre) {
  // What the engine relies on when it lets chunks of scratch travel as one piece.
  for (uint32_t chunks = 1; chunks <= 9; ++chunks) {
    for (const uint64_t bytes : block_sizes()) {
      const Geometry geometry = Geometry::uniform(make_plan(Collective::kAllReduce, 4, chunks), bytes);
      bool equal = true;
      for (uint32_t i = 1; i < chunks; ++i) {
        equal = equal && geometry.output_chunk(i).bytes == geometry.output_chunk(0).bytes;
      }
      ASSERT_EQ(geometry.equal_chunks(), equal) << bytes << " bytes in " << chunks << " chunks";
      ASSERT_TRUE(geometry.contiguous());
    }
  }
}

TEST(GeometryTest, VariableBlocksLieWhereTheyAreSaidToLie) {
  const std::vector<Extent> output = {{1000, 300}, {0, 0}, {40, 129}, {2000, 64}};
  const Plan plan = make_plan(Collective::kAllGather, 4, 3);
  const Geometry geometry = Geometry::variable(plan, {{0, 129}}, output);
  for (uint32_t block = 0; block < output.size(); ++block) {
    expect_chunks_cover(output[block], 3, [&](uint32_t i) { return geometry.output_chunk(block * 3 + i); });
  }
  expect_chunks_cover({0, 129}, 3, [&](uint32_t i) { return geometry.input_chunk(i); });
  EXPECT_EQ(geometry.largest_chunk_bytes(), 128u);
  EXPECT_FALSE(geometry.contiguous());
  EXPECT_FALSE(geometry.equal_chunks());
}

// Goal: the stripes of a block are the block, and each is cut into chunks as a block is.
// Method: all block sizes, 1 to 5 stripes of 1 to 5 chunks, in the last of three blocks.
TEST(GeometryTest, StripesCoverEveryBlockExactlyAndStartAtCacheLines) {
  for (uint32_t chunks = 1; chunks <= 5; ++chunks) {
    const Plan plan = make_plan(Collective::kAllToAll, 3, chunks);
    for (const uint64_t bytes : block_sizes()) {
      for (uint32_t count = 1; count <= 5; ++count) {
        uint64_t covered = 0;
        for (uint32_t index = 0; index < count; ++index) {
          const Geometry uniform = Geometry::uniform(plan, bytes, {index, count});
          const Geometry variable = Geometry::variable(plan, {{0, 9}, {9, 0}, {2 * bytes, bytes}},
                                                       {{0, 0}, {0, 5}, {2 * bytes, bytes}}, {index, count});
          const uint64_t start = uniform.input_chunk(2 * chunks).offset;
          ASSERT_EQ(start, 2 * bytes + covered);
          uint64_t stripe_bytes = 0;
          for (uint32_t i = 0; i < chunks; ++i) stripe_bytes += uniform.input_chunk(2 * chunks + i).bytes;
          if (stripe_bytes > 0) {
            ASSERT_EQ(covered % 64, 0u);
          }
          const Extent stripe{start, stripe_bytes};
          for (const Geometry& geometry : {uniform, variable}) {
            expect_chunks_cover(stripe, chunks,
                                [&](uint32_t i) { return geometry.input_chunk(2 * chunks + i); });
            expect_chunks_cover(stripe, chunks,
                                [&](uint32_t i) { return geometry.output_chunk(2 * chunks + i); });
          }
          ASSERT_EQ(uniform.largest_chunk_bytes(), uniform.input_chunk(0).bytes);
          covered += stripe_bytes;
        }
        ASSERT_EQ(covered, bytes) << bytes << " bytes in " << count << " stripes of " << chunks << " chunks";
      }
    }
  }
}

// Goal: chunks of neighbouring blocks travel as one piece only where they are adjacent.
TEST(GeometryTest, StripesOfSeveralBlocksAreNotContiguous) {
  const Plan one = make_plan(Collective::kAllReduce, 3, 3);
  const Plan several = make_plan(Collective::kAllGather, 3, 1);
  EXPECT_TRUE(Geometry::uniform(one, 1000, {1, 2}).contiguous());
  EXPECT_TRUE(Geometry::uniform(several, 1000, {0, 1}).contiguous());
  EXPECT_FALSE(Geometry::uniform(several, 1000, {0, 2}).contiguous());
}

TEST(GeometryTest, TheAgreedSideIsTheOneThatEveryRankKnowsWhole) {
  const std::vector<Extent> many = {{0, 10}, {10, 20}, {30, 0}};
  const Geometry gather = Geometry::variable(make_plan(Collective::kAllGather, 3, 1), {{0, 20}}, many);
  EXPECT_EQ(gather.agreed_chunk(1).bytes, 20u);
  const Geometry scatter = Geometry::variable(make_plan(Collective::kReduceScatter, 3, 1), many, {{0, 0}});
  EXPECT_EQ(scatter.agreed_chunk(1).bytes, 20u);
  EXPECT_EQ(scatter.agreed_chunk(2).bytes, 0u);
}

}  // namespace
}  // namespace tutti
