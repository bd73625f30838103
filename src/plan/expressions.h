// Expressions: the contents of a chunk as hash-consed terms over (rank, input chunk).
//
// Equal terms have equal ids, so two reductions of a thousand operands compare as two numbers. Each term also
// has the exact set of ranks among its operands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti {

class Expressions {
 public:
  using Id = uint32_t;
  static constexpr Id kUndefined = UINT32_MAX;
  enum class Kind : uint8_t { kLeaf, kReduction, kUnordered, kFinished };

  explicit Expressions(uint32_t rank_count) : rank_count_(rank_count), words_((rank_count + 63) / 64) {}

  /// The contents of `rank`'s input chunk before the operation.
  Id leaf(uint32_t rank, uint32_t chunk) { return intern(Kind::kLeaf, rank, chunk); }
  /// `left` op `right`. The result has left's chunk.
  Id reduce(Id left, Id right) { return intern(Kind::kReduction, left, right); }
  /// `left` op `right` in unknown order. Such a term is part of no tree.
  Id reduce_unordered(Id left, Id right) { return intern(Kind::kUnordered, left, right); }
  /// `value`, marked as complete.
  Id finish(Id value) { return intern(Kind::kFinished, value, 0); }
  /// Reduces `terms` (at least one) in the canonical tree over their positions: [a,b) splits at the largest
  /// power of two below its size.
  Id reduce_canonically(std::span<const Id> terms);

  Kind kind(Id id) const { return nodes_[id].kind; }
  /// The input chunk of the first operand.
  uint32_t chunk(Id id) const { return nodes_[id].chunk; }
  /// The rank of the first operand.
  uint32_t rank(Id id) const { return nodes_[id].rank; }
  /// The value inside a kFinished term.
  Id finished_value(Id id) const { return nodes_[id].left; }

  /// The ranks among the operands, one bit for each rank.
  std::span<const uint64_t> ranks(Id id) const {
    return std::span(rank_sets_).subspan(size_t{id} * words_, words_);
  }
  /// Whether `a` and `b` share an operand's rank.
  bool ranks_intersect(Id a, Id b) const;
  uint32_t count_ranks(Id id) const;
  bool has_all_ranks(Id id) const { return count_ranks(id) == rank_count_; }

  /// Text for messages, e.g. "((0+1)+2) of input chunk 3". Shortened if long.
  std::string text(Id id) const;

 private:
  struct Node {
    Kind kind;
    uint32_t left;
    uint32_t right;
    uint32_t rank;
    uint32_t chunk;
  };

  Id intern(Kind kind, uint32_t left, uint32_t right);
  void append_text(Id id, std::string& out) const;

  uint32_t rank_count_;
  size_t words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> rank_sets_;
  std::unordered_map<uint64_t, Id> ids_[4];
};

}  // namespace tutti
