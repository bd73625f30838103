#include "tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <numeric>

namespace tutti_torch {
namespace {

constexpr tutti_type_t kNoType = TUTTI_TYPE_COUNT;

tutti_type_t type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar: return TUTTI_INT8;
    case at::kByte: return TUTTI_UINT8;
    case at::kShort: return TUTTI_INT16;
    case at::kUInt16: return TUTTI_UINT16;
    case at::kInt: return TUTTI_INT32;
    case at::kUInt32: return TUTTI_UINT32;
    case at::kLong: return TUTTI_INT64;
    case at::kUInt64: return TUTTI_UINT64;
    case at::kHalf: return TUTTI_FLOAT16;
    case at::kBFloat16: return TUTTI_BFLOAT16;
    case at::kFloat: return TUTTI_FLOAT32;
    case at::kDouble: return TUTTI_FLOAT64;
    case at::kBool: return TUTTI_BOOL;
    case at::kFloat8_e4m3fn: return TUTTI_FLOAT8_E4M3;
    case at::kFloat8_e5m2: return TUTTI_FLOAT8_E5M2;
    default: return kNoType;
  }
}

void check_place(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "tutti: the tensor is undefined");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), "tutti: the tensor is on ", tensor.device(),
              "; tutti serves CPU and CUDA tensors");
  TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: the tensor has the layout ", tensor.layout(),
              "; only all_reduce takes sparse tensors");
  TORCH_CHECK(
      !tensor.is_conj() && !tensor.is_neg(),
      "tutti: the tensor is a conjugate or negative view; call resolve_conj() or resolve_neg() first");
}

Memory memory_of(const at::Tensor& tensor, bool reduces) {
  check_place(tensor);
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "tutti: the tensor has gaps or overlaps (sizes ",
              tensor.sizes(), ", strides ", tensor.strides(), "): call contiguous() first");
  const auto count = static_cast<size_t>(tensor.numel());
  Memory memory{.data = tensor.data_ptr(), .count = count, .type = type_of(tensor.scalar_type())};
  if (memory.type != kNoType) return memory;
  if (tensor.is_complex() && tensor.scalar_type() != at::kComplexHalf) {
    memory.type = tensor.scalar_type() == at::kComplexFloat ? TUTTI_FLOAT32 : TUTTI_FLOAT64;
    memory.count = 2 * count;
    return memory;
  }
  TORCH_CHECK(!reduces, "tutti: tensors of type ", tensor.scalar_type(), " cannot be reduced");
  memory.type = TUTTI_UINT8;
  memory.count = count * tensor.element_size();
  return memory;
}

bool follow_one_another(const Tensors& list) {
  const char* next = nullptr;
  for (const at::Tensor& tensor : list) {
    if (!tensor.is_contiguous()) return false;
    if (tensor.numel() == 0) continue;
    const char* data = static_cast<const char*>(tensor.data_ptr());
    if (next != nullptr && data != next) return false;
    next = data + tensor.nbytes();
  }
  return true;
}

}  // namespace

Memory reducible(const at::Tensor& tensor) {
  return memory_of(tensor, true);
}

Memory movable(const at::Tensor& tensor) {
  return memory_of(tensor, false);
}

Memory contiguous(const at::Tensor& tensor, bool reduces) {
  check_place(tensor);
  TORCH_CHECK(tensor.is_contiguous(), "tutti: the tensor is not contiguous (sizes ", tensor.sizes(),
              ", strides ", tensor.strides(), "): call contiguous() first");
  return memory_of(tensor, reduces);
}

tutti_op_t operator_of(const c10d::ReduceOp& op, const at::Tensor& tensor, Memory& memory) {
  const bool is_bool = tensor.scalar_type() == at::kBool;
  const bool is_sum = op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG;
  TORCH_CHECK(is_sum || !tensor.is_complex(), "tutti: complex tensors can be summed and averaged only");
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return TUTTI_SUM;
    case c10d::ReduceOp::AVG: return TUTTI_AVG;
    case c10d::ReduceOp::PRODUCT: return TUTTI_PROD;
    case c10d::ReduceOp::MIN: return TUTTI_MIN;
    case c10d::ReduceOp::MAX: return TUTTI_MAX;
    default: break;
  }
  TORCH_CHECK(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true),
              "tutti: bitwise operators need integers, but the tensor is of type ", tensor.scalar_type());
  if (is_bool) memory.type = TUTTI_UINT8;
  switch (op.op_) {
    case c10d::ReduceOp::BAND: return TUTTI_BAND;
    case c10d::ReduceOp::BOR: return TUTTI_BOR;
    case c10d::ReduceOp::BXOR: return TUTTI_BXOR;
    default: TORCH_CHECK(false, "tutti: the operator with number ", static_cast<int>(op.op_), " is unknown");
  }
}

Piece::Piece(const Tensors& list, bool reduces) {
  TORCH_CHECK(!list.empty(), "tutti: the list of tensors is empty");
  size_t count = 0;
  int64_t elements = 0;
  for (const at::Tensor& tensor : list) {
    TORCH_CHECK(tensor.scalar_type() == list[0].scalar_type(), "tutti: the list has tensors of type ",
                list[0].scalar_type(), " and of type ", tensor.scalar_type());
    check_place(tensor);
    elements += tensor.numel();
    memory_ = tensor.is_contiguous() ? memory_of(tensor, reduces) : memory_of(tensor.contiguous(), reduces);
    counts_.push_back(memory_.count);
    count += memory_.count;
  }
  if (follow_one_another(list)) {
    const auto first =
        std::find_if(list.begin(), list.end(), [](const at::Tensor& t) { return t.numel() > 0; });
    memory_.data = first != list.end() ? first->data_ptr() : nullptr;
  } else {
    packed_ = at::empty({elements}, list[0].options().memory_format(at::MemoryFormat::Contiguous));
    memory_.data = packed_.data_ptr();
  }
  memory_.count = count;
}

bool Piece::has_equal_counts() const {
  return std::all_of(counts_.begin(), counts_.end(), [&](size_t count) { return count == counts_[0]; });
}

std::vector<at::Tensor> Piece::parts(const Tensors& list) const {
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (const at::Tensor& tensor : list) {
    parts.push_back(packed_.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
  return parts;
}

void Piece::copy_in(const Tensors& list) const {
  if (!packed_.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto places = parts(list);
  for (size_t i = 0; i < list.size(); ++i) places[i].copy_(list[i]);
}

void Piece::copy_out(const Tensors& list) const {
  if (!packed_.defined()) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto places = parts(list);
  for (size_t i = 0; i < list.size(); ++i) list[i].copy_(places[i]);
}

const at::Tensor& only(const Tensors& list) {
  TORCH_CHECK(list.size() == 1, "tutti: a call takes one tensor for each rank, but it got ", list.size());
  return list[0];
}

}  // namespace tutti_torch
