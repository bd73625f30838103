// Tensors as the library sees them: an address, a count, a type. Lists of tensors as one piece of memory.
#pragma once

#include <ATen/ATen.h>
#include <tutti/tutti.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;

/// Memory of a tensor. Complex numbers are pairs of floats.
struct Memory {
  void* data = nullptr;
  size_t count = 0;
  tutti_type_t type = TUTTI_UINT8;

  size_t bytes() const { return count * tutti_type_bytes(type); }
};

/// For calls that reduce. The elements may lie in any order without gaps, the same on all ranks. Errors,
/// which name the tensor's place, type or layout: neither on the CPU nor on a CUDA device, a sparse layout,
/// gaps, a type that tutti cannot reduce.
Memory reducible(const at::Tensor& tensor);
/// For calls that move bytes: any type.
Memory movable(const at::Tensor& tensor);
/// The same for calls that cut the tensor into blocks: it must be contiguous.
Memory contiguous(const at::Tensor& tensor, bool reduces);

/// tutti's operator for torch's, but not for PREMUL_SUM. `memory` changes its type where bitwise operators
/// need it.
tutti_op_t operator_of(const c10d::ReduceOp& op, const at::Tensor& tensor, Memory& memory);

/// A list of tensors in one piece of memory: the list's own memory if its tensors follow one another,
/// otherwise new memory.
class Piece {
 public:
  /// Errors: tensors of different types; what `movable` and `reducible` refuse.
  Piece(const Tensors& list, bool reduces);

  const Memory& memory() const { return memory_; }
  /// Elements of each tensor.
  const std::vector<size_t>& counts() const { return counts_; }
  bool has_equal_counts() const;
  /// The new memory; undefined where the list is the piece. Keep it until the call is complete.
  const at::Tensor& packed() const { return packed_; }
  void copy_in(const Tensors& list) const;
  void copy_out(const Tensors& list) const;

 private:
  std::vector<at::Tensor> parts(const Tensors& list) const;

  Memory memory_;
  std::vector<size_t> counts_;
  at::Tensor packed_;
};

/// The only tensor of a list. Errors: the list has another length.
const at::Tensor& only(const Tensors& list);

}  // namespace tutti_torch
