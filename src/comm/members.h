// Members: which ranks of a communicator make up the next one, and the unique id under which they meet.
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
  std::vector<uint32_t> ranks;  ///< of the old communicator, increasing; their places are the new ranks
  std::vector<uint32_t> lost;   ///< increasing: left out because they are gone, not because they are excluded
  UniqueId id;

  bool contains(uint32_t rank) const;
  bool has_lost(uint32_t rank) const;
  /// For a frame.
  std::vector<std::byte> pack() const;
  /// Errors: kMismatch: not packed members.
  static Result<Members> unpack(std::span<const std::byte> packed);
};

/// Written by one thread at a time.
void write_decision(Decision& decision, const Members& members);
/// The last complete decision; no ranks when there is none, or when it is the refusal of another one with
/// that id, or, of a rank that is in `lost` itself, the word that it has given up after that one.
Members read_decision(const Decision& decision);

}  // namespace tutti
