#include "engine/executor.h"

#include <algorithm>

namespace tutti {

uint64_t message_bytes(const BoundCall& call, const BindRequest& request) {
  // With variable counts, every rank knows only the sum over all blocks.
  return request.blocks != nullptr ? request.block_bytes : std::max(call.input_bytes, call.output_bytes);
}

Geometry stripe_geometry(const Plan& plan, const BindRequest& request, Stripe stripe) {
  return request.blocks != nullptr
             ? Geometry::variable(plan, request.blocks->input, request.blocks->output, stripe)
             : Geometry::uniform(plan, request.block_bytes, stripe);
}

}  // namespace tutti
