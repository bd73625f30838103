#include "algorithms/levels.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "algorithms/builder.h"

namespace tutti::generators {
namespace {

uint32_t group_count(std::span<const uint32_t> group_of) {
  return *std::max_element(group_of.begin(), group_of.end()) + 1;
}

/// Whether all groups have one size, and each lies inside one group of `around`.
bool is_regular(std::span<const uint32_t> group_of, std::span<const uint32_t> around) {
  const uint32_t count = group_count(group_of);
  std::vector<uint32_t> ranks(count, 0);
  std::vector<uint32_t> group_around(count, UINT32_MAX);
  for (size_t rank = 0; rank < group_of.size(); ++rank) {
    const uint32_t group = group_of[rank];
    ++ranks[group];
    if (group_around[group] == UINT32_MAX) group_around[group] = around[rank];
    if (group_around[group] != around[rank]) return false;
  }
  return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t size) { return size == ranks[0]; });
}

/// The usable levels, from large groups to small ones.
std::vector<std::span<const uint32_t>> usable_levels(const Request& request, const Facts& facts) {
  std::vector<std::span<const uint32_t>> known;
  for (const std::vector<uint32_t>& level : facts.levels) {
    if (level.size() == request.rank_count) known.emplace_back(level);
  }
  if (known.empty() && facts.host_of.size() == request.rank_count) known.push_back(facts.host_of);
  std::vector<std::span<const uint32_t>> usable;
  const std::vector<uint32_t> everybody(request.rank_count, 0);
  std::span<const uint32_t> around = everybody;
  for (auto level = known.rbegin(); level != known.rend(); ++level) {
    const uint32_t count = group_count(*level);
    if (count <= group_count(around) || count == request.rank_count || !is_regular(*level, around)) continue;
    usable.push_back(*level);
    around = *level;
  }
  return usable;
}

}  // namespace

Levels::Levels(const Request& request, const Facts& facts) : rank_at_(request.rank_count) {
  const auto levels = usable_levels(request, facts);
  std::iota(rank_at_.begin(), rank_at_.end(), 0u);
  uint32_t parts = request.rank_count;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    std::stable_sort(rank_at_.begin(), rank_at_.end(),
                     [&](uint32_t a, uint32_t b) { return (*level)[a] < (*level)[b]; });
    const uint32_t groups = group_count(*level);
    sizes_.push_back(parts / groups);
    parts = groups;
  }
  sizes_.push_back(parts);
  uint32_t stride = 1;
  for (const uint32_t size : sizes_) {
    strides_.push_back(stride);
    stride *= size;
  }
}

uint32_t Levels::place_of(uint32_t rank) const {
  return static_cast<uint32_t>(std::find(rank_at_.begin(), rank_at_.end(), rank) - rank_at_.begin());
}

bool Levels::is_canonical() const {
  if (!std::is_sorted(rank_at_.begin(), rank_at_.end())) return false;
  // The canonical tree splits at powers of two.
  return std::all_of(sizes_.begin(), sizes_.end() - 1,
                     [](uint32_t size) { return floor_power(size) == size; });
}

}  // namespace tutti::generators
