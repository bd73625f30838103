#include "plan/plan.h"

namespace tutti {

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
