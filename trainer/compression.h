// Reductions of a bucket: the plain sum, and compressed sums that send fewer bytes and are less exact.
//
// Error feedback: the loss of a compression is added to the next step's gradient, so it arrives late instead
// of never.
// Sources: Stich et al., "Sparsified SGD with memory", 2018; Vogels et al., "PowerSGD", 2019.
#pragma once

#include <memory>
#include <string>

#include "trainer/bucketer.h"
#include "tutti/tutti.h"

namespace tutti::trainer {

struct CompressionOptions {
  /// "none"; "f16", "bf16": the sum in a type of half the bytes; "topk": only each rank's largest gradients;
  /// "powersgd": matrices as products of two thin matrices.
  std::string name = "none";
  double share = 0.01;  ///< topk: share of the numbers that is sent, 0 to 1
  size_t rank = 4;      ///< powersgd: columns of the thin matrices
};

/// Makes a reduction for these buckets, with memory from `backend`. Uses `comm` only when called. Throws
/// Error for unknown names and numbers out of range, the same on every rank.
std::unique_ptr<Reduction> make_reduction(const CompressionOptions& options,
                                          const std::vector<Bucket>& buckets, tutti_comm_t* comm,
                                          const BackendPointer& backend = host_backend());

/// IEEE binary16 and bfloat16, rounded to nearest, ties to even.
uint16_t to_f16(float value);
float from_f16(uint16_t bits);
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);

}  // namespace tutti::trainer
