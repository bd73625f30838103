// Binomial tree: log2 P latencies from one rank to all, or from all to one. In gather and scatter a message
// holds the blocks of a subtree, so the root handles few large messages.
#include "algorithms/binomial_tree.h"

#include "algorithms/generators.h"

namespace tutti::generators {

uint32_t BinomialTree::reach(uint32_t position) const {
  return position == 0 ? rank_count_ : std::min(position & (~position + 1), rank_count_ - position);
}

Chunks BinomialTree::subtree(uint32_t position) const {
  return {position, reach(position)};
}

std::vector<uint32_t> BinomialTree::children(uint32_t position) const {
  std::vector<uint32_t> found;
  if (reach(position) < 2) return found;
  for (uint32_t distance = floor_power(reach(position) - 1); distance > 0; distance /= 2)
    found.push_back(position + distance);
  return found;
}

uint32_t BinomialTree::largest_subtree() const {
  uint32_t largest = 0;
  for (const uint32_t child : children(0)) largest = std::max(largest, subtree(child).count);
  return largest;
}

namespace {

/// One merge of the canonical tree, by its leader. The other half's sum comes from `peer`.
struct Merge {
  uint32_t peer = 0;
  bool own_first = false;
  bool peer_is_leaf = false;
};

/// A rank's part in the canonical tree over [0, P). The root leads every range that contains the root. The
/// first rank leads each other range.
struct MergeRole {
  std::vector<Merge> merges;  ///< from the leaves up
  uint32_t parent = UINT32_MAX;
};

MergeRole find_role(uint32_t rank, uint32_t rank_count, uint32_t root) {
  const auto leader = [root](uint32_t begin, uint32_t end) {
    return root >= begin && root < end ? root : begin;
  };
  MergeRole role;
  uint32_t begin = 0;
  uint32_t end = rank_count;
  while (end - begin > 1) {
    const uint32_t middle = begin + canonical_split(end - begin);
    const bool is_left = rank < middle;
    const uint32_t top = leader(begin, end);
    const auto [other_begin, other_end] = is_left ? std::pair(middle, end) : std::pair(begin, middle);
    const uint32_t other = leader(other_begin, other_end);
    (is_left ? end : begin) = middle;
    if (rank == top) {
      role.merges.insert(role.merges.begin(), {other, is_left, other_end - other_begin == 1});
    } else if (rank == leader(begin, end)) {
      role.parent = top;
    }
  }
  return role;
}

/// Cuts blocks into pieces that are consecutive for positions and for ranks, and that fit the slots of a
/// link.
class BlockRange {
 public:
  BlockRange(const Request& request, const Facts& facts)
      : tree_(request.rank_count, request.root),
        wrap_(request.rank_count - request.root),
        window_(window_of(tree_.largest_subtree(), facts)) {}

  const BinomialTree& tree() const { return tree_; }
  uint32_t window() const { return window_; }

  /// Calls body(positions, the blocks of their ranks) in ascending order.
  template <class Body>
  void each_piece(Chunks positions, const Body& body) const {
    const auto with_ranks = [&](Chunks piece) { body(piece, Chunks{tree_.rank(piece.first), piece.count}); };
    const uint32_t middle = std::clamp(wrap_, positions.first, positions.end());
    for_each_piece({positions.first, middle - positions.first}, window_, with_ranks);
    for_each_piece({middle, positions.end() - middle}, window_, with_ranks);
  }

 private:
  BinomialTree tree_;
  uint32_t wrap_;  ///< the position of rank 0
  uint32_t window_;
};

/// The scratch that holds the blocks of `positions`, at a rank whose subtree starts at `position`.
End held(Chunks positions, uint32_t position) {
  return scratch({positions.first - position, positions.count});
}

}  // namespace

bool supports_equal_blocks(const Request& request, const Facts&) {
  return !request.variable_counts;
}

/// Binomial reduce: sums climb a binomial tree, in the order of the canonical tree for any root.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed.
/// Cost: at most ceil(log2 P) steps, floor(log2 P) latencies; each rank but the root sends the message once.
/// Scratch: one chunk.
/// Association: canonical for any P.
/// Errors: none of its own.
/// Source: the binomial tree of Thakur, Rabenseifner & Gropp 2005, on the canonical tree's ranges.
Plan make_binomial_reduce(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  const Chunks all{0, 1};
  builder.scratch_chunks(request.rank_count > 2 ? 1 : 0).canonical(true);
  const MergeRole role = find_role(rank, request.rank_count, request.root);
  if (role.merges.empty()) {
    builder.step(all, {input(all)}, {to(role.parent, Allow::kReference)});
    return builder.take();
  }
  End own = input(all);
  for (size_t i = 0; i < role.merges.size(); ++i) {
    const Merge& merge = role.merges[i];
    const End other = from(merge.peer, merge.peer_is_leaf ? Allow::kReference : Allow::kCopy);
    std::vector<End> operands = in_order(merge.own_first, own, other);
    own = scratch(all);
    if (i + 1 < role.merges.size()) {
      builder.step(all, std::move(operands), {own});
    } else if (rank == request.root) {
      builder.finish(all, std::move(operands), {output(all)});
    } else {
      builder.step(all, std::move(operands), {to(role.parent, Allow::kCopy)});
    }
  }
  return builder.take();
}

/// Binomial broadcast.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed.
/// Cost: 1 step a rank to 128 ranks, floor(log2 P) latencies; the root sends the message ceil(log2 P)
/// times.
/// Scratch: none.
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp 2005.
Plan make_binomial_broadcast(const Request& request, const Facts&, uint32_t rank) {
  const BinomialTree tree(request.rank_count, request.root);
  const uint32_t position = tree.position(rank);
  Builder builder(request, rank);
  const Chunks all{0, 1};
  std::vector<End> sinks;
  for (const uint32_t child : tree.children(position))
    sinks.push_back(to(tree.rank(child), Allow::kReference));
  const size_t at_once = std::min<size_t>(sinks.size(), kMaxStepSinks - 1);
  const std::vector<End> later(sinks.begin() + static_cast<ptrdiff_t>(at_once), sinks.end());
  sinks.resize(at_once);
  sinks.push_back(output(all));
  const End source = position == 0 ? input(all) : from(tree.rank(tree.parent(position)), Allow::kReference);
  builder.step(all, {source}, std::move(sinks));
  builder.spread(all, output(all), later);
  return builder.take();
}

/// Binomial gather: each rank collects the blocks of its subtree and sends them to its parent together.
/// Shapes: input is [count], output (at the root) [P * count] of T; in place at the root allowed.
/// Cost: floor(log2 P) latencies; the root receives P-1 blocks in log2 P messages (more if a subtree does not
/// fit the slots of a link, or wraps around the last rank).
/// Scratch: the largest subtree, at most P/2 chunks.
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp 2005.
Plan make_binomial_gather(const Request& request, const Facts& facts, uint32_t rank) {
  const BlockRange range(request, facts);
  const BinomialTree& tree = range.tree();
  const uint32_t position = tree.position(rank);
  Builder builder(request, rank);
  builder.scratch_chunks(tree.largest_subtree()).slots_needed(range.window());
  const Chunks subtree = tree.subtree(position);
  const Chunks own{rank, 1};
  if (subtree.count == 1) {
    builder.step(own, {input({0, 1})}, {to(tree.rank(tree.parent(position)), Allow::kReference)});
    return builder.take();
  }
  builder.step(own, {input({0, 1})}, {position == 0 ? output(own) : scratch({0, 1})});
  std::vector<uint32_t> children = tree.children(position);
  std::reverse(children.begin(), children.end());  // small subtrees complete first
  for (const uint32_t child : children) {
    const Chunks below = tree.subtree(child);
    const Allow allow = below.count == 1 ? Allow::kReference : Allow::kCopy;
    range.each_piece(below, [&](Chunks positions, Chunks blocks) {
      builder.step(blocks, {from(tree.rank(child), allow)},
                   {position == 0 ? output(blocks) : held(positions, position)});
    });
  }
  if (position == 0) return builder.take();
  range.each_piece(subtree, [&](Chunks positions, Chunks blocks) {
    builder.step(blocks, {held(positions, position)}, {to(tree.rank(tree.parent(position)), Allow::kCopy)});
  });
  return builder.take();
}

/// Binomial scatter: each rank receives the blocks of its subtree together and passes them on.
/// Shapes: input (at the root) is [P * count], output [count] of T; in place at the root allowed.
/// Cost: floor(log2 P) latencies; the root sends P-1 blocks in log2 P messages (more as in gather).
/// Scratch: the largest subtree, at most P/2 chunks.
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp 2005.
Plan make_binomial_scatter(const Request& request, const Facts& facts, uint32_t rank) {
  const BlockRange range(request, facts);
  const BinomialTree& tree = range.tree();
  const uint32_t position = tree.position(rank);
  Builder builder(request, rank);
  builder.scratch_chunks(tree.largest_subtree()).slots_needed(range.window());
  const Chunks subtree = tree.subtree(position);
  const Chunks own{rank, 1};
  const auto allow_from = [](uint32_t sender) { return sender == 0 ? Allow::kReference : Allow::kCopy; };
  if (position != 0) {
    const uint32_t parent = tree.parent(position);
    range.each_piece(subtree, [&](Chunks positions, Chunks blocks) {
      builder.step(blocks, {from(tree.rank(parent), allow_from(parent))},
                   {subtree.count == 1 ? output({0, 1}) : held(positions, position)});
    });
  }
  for (const uint32_t child : tree.children(position)) {
    range.each_piece(tree.subtree(child), [&](Chunks positions, Chunks blocks) {
      builder.step(blocks, {position == 0 ? input(blocks) : held(positions, position)},
                   {to(tree.rank(child), allow_from(position))});
    });
  }
  if (position == 0 || subtree.count > 1) {
    builder.step(own, {position == 0 ? input(own) : scratch({0, 1})}, {output({0, 1})});
  }
  return builder.take();
}

}  // namespace tutti::generators
