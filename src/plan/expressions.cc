#include "plan/expressions.h"

#include <bit>

namespace tutti {
namespace {

constexpr size_t kMaxTextLength = 120;

}  // namespace

Expressions::Id Expressions::intern(Kind kind, uint32_t left, uint32_t right) {
  const auto [entry, is_new] = ids_[static_cast<size_t>(kind)].try_emplace((uint64_t{left} << 32) | right,
                                                                           static_cast<Id>(nodes_.size()));
  if (!is_new) return entry->second;
  const Id id = entry->second;
  Node node{.kind = kind, .left = left, .right = right, .rank = left, .chunk = right};
  rank_sets_.resize(rank_sets_.size() + words_);
  uint64_t* set = &rank_sets_[size_t{id} * words_];
  if (kind == Kind::kLeaf) {
    set[left / 64] |= uint64_t{1} << (left % 64);
  } else {
    node.rank = nodes_[left].rank;
    node.chunk = nodes_[left].chunk;
    for (size_t i = 0; i < words_; ++i) {
      set[i] = ranks(left)[i];
      if (kind == Kind::kReduction || kind == Kind::kUnordered) set[i] |= ranks(right)[i];
    }
  }
  nodes_.push_back(node);
  return id;
}

Expressions::Id Expressions::reduce_canonically(std::span<const Id> terms) {
  if (terms.size() == 1) return terms[0];
  const size_t split = std::bit_ceil(terms.size()) / 2;
  const Id left = reduce_canonically(terms.first(split));
  return reduce(left, reduce_canonically(terms.subspan(split)));
}

bool Expressions::ranks_intersect(Id a, Id b) const {
  for (size_t i = 0; i < words_; ++i) {
    if ((ranks(a)[i] & ranks(b)[i]) != 0) return true;
  }
  return false;
}

uint32_t Expressions::count_ranks(Id id) const {
  uint32_t count = 0;
  for (const uint64_t word : ranks(id)) count += static_cast<uint32_t>(std::popcount(word));
  return count;
}

std::string Expressions::text(Id id) const {
  if (id == kUndefined) return "nothing";
  std::string out;
  append_text(id, out);
  if (out.size() > kMaxTextLength) out = out.substr(0, kMaxTextLength) + "...";
  return (nodes_[id].kind == Kind::kLeaf ? "rank " : "") + out + " of input chunk " +
         std::to_string(nodes_[id].chunk);
}

void Expressions::append_text(Id id, std::string& out) const {
  if (out.size() > kMaxTextLength) return;
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kLeaf: out += std::to_string(node.left); return;
    case Kind::kFinished:
      out += "finished ";
      append_text(node.left, out);
      return;
    case Kind::kReduction:
    case Kind::kUnordered: {
      const bool is_ordered = node.kind == Kind::kReduction;
      out += is_ordered ? "(" : "{";
      append_text(node.left, out);
      out += "+";
      append_text(node.right, out);
      out += is_ordered ? ")" : "}";
      return;
    }
  }
}

}  // namespace tutti
