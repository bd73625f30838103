// Checkpoint: everything that training needs to go on as if it had not stopped, in one file.
//
// Form: "tutti trainer checkpoint 1\n", the step, three descriptions, then lists of numbers (parameters,
// buffers, optimizer, each rank's compression), every length before its content, and a hash of all bytes
// before it. Little-endian, as the machine has it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/team.h"

namespace tutti::trainer {

/// What is saved: views of the living state, and the words that must be equal when it is loaded again.
struct TrainingState {
  std::string model;
  std::string optimizer;
  std::string compression;
  std::vector<std::span<float>> shared = {};   ///< the same on every rank
  std::vector<std::span<float>> of_rank = {};  ///< this rank's own
};

/// Rank 0 writes the file, as write_file does, with every rank's part. Collective. Throws Error on every
/// rank.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state, uint64_t step,
                     Team& team);

/// Rank 0 reads the file; all ranks fill the state. Returns the step. Collective. Throws Error on every rank,
/// and then nothing has changed: no such file, damaged, of another model, optimizer, compression or shape,
/// or, where ranks have parts of their own, of another number of ranks.
uint64_t load_checkpoint(const std::filesystem::path& path, const TrainingState& state, Team& team);

}  // namespace tutti::trainer
