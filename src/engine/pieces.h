// Pieces: a long call that passes through host memory runs as several calls, so that copies to and from a
// device overlap with the operation on other pieces (device/staged_executor.h).
//
// All ranks cut alike, by the shape alone. Each piece counts as a collective of its own.
#pragma once

#include <vector>

#include "engine/call.h"

namespace tutti {

/// Whether the call has several pieces. Only all_reduce, broadcast and reduce: a part of their elements is
/// such a call itself, and lies in one place. Blocks of other collectives would have to be copied one by one.
bool has_pieces(const CallShape& shape);

/// The pieces of a call that has several, in order. Each one but the last has a multiple of 64 elements.
std::vector<Call> cut_into_pieces(const Call& call);

}  // namespace tutti
