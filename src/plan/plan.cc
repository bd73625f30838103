#include "plan/plan.h"

#include <unordered_map>

namespace tutti {

std::vector<uint32_t> number_hosts(std::span<const uint64_t> labels) {
  std::unordered_map<uint64_t, uint32_t> numbers;
  std::vector<uint32_t> host_of;
  host_of.reserve(labels.size());
  for (const uint64_t label : labels) {
    host_of.push_back(numbers.emplace(label, static_cast<uint32_t>(numbers.size())).first->second);
  }
  return host_of;
}

uint32_t input_blocks(Collective collective, uint32_t rank_count) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kScatter: return rank_count;
    default: return 1;
  }
}

uint32_t output_blocks(Collective collective, uint32_t rank_count) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather: return rank_count;
    default: return 1;
  }
}

}  // namespace tutti
