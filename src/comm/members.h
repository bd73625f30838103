// Members: the ranks of the next communicator, and the unique id that they join.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/unique_id.h"
#include "core/result.h"
#include "transports/shm/segment.h"

namespace tutti {

struct Members {
  std::vector<uint32_t> ranks;  ///< in the old communicator, increasing; the index is the new rank
  std::vector<uint32_t> lost;   ///< increasing; left out because they are gone, not excluded
  UniqueId id;

  bool contains(uint32_t rank) const;
  bool has_lost(uint32_t rank) const;
  /// The body of a frame.
  std::vector<std::byte> pack() const;
  /// Errors: kMismatch if the bytes are no packed members.
  static Result<Members> unpack(std::span<const std::byte> packed);
};

void write_decision(Decision& decision, const Members& members);
/// The last complete decision. Without ranks: none; or a refusal of the decision `id`; or, if the writing
/// rank is in `lost`, that it has given up after following `id`.
Members read_decision(const Decision& decision);

}  // namespace tutti
