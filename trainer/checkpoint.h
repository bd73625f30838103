// Checkpoint: one file with everything that training needs to continue as if it had not stopped.
//
// Form: "tutti trainer checkpoint 2\n", an object in CBOR (RFC 8949) with the step, three descriptions, the
// tensors (parameters, buffers, optimizer; for each rank those of its compression, as CBOR of its own), and a
// hash of all earlier bytes. Numbers are little-endian, like the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/team.h"

namespace tutti::trainer {

/// The saved state: views of the live state, and descriptions that must be equal at loading.
struct TrainingState {
  std::string model;
  std::string optimizer;
  std::string compression;
  std::vector<std::span<float>> shared = {};   ///< equal on every rank
  std::vector<std::span<float>> of_rank = {};  ///< this rank's own
};

/// Rank 0 writes the file with every rank's part (write_file). Collective. Throws Error on every rank.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, uint64_t step,
                     Team& team);

/// Rank 0 reads the file, and all ranks fill the state. Returns the step. Collective. Throws Error on every
/// rank, with the state unchanged: no such file, a damaged file, another model, optimizer, compression or
/// shape, or, if ranks have own parts, another number of ranks.
uint64_t load_checkpoint(const std::filesystem::path& path, const TrainingState& state, Team& team);

}  // namespace tutti::trainer
