#include "comm/call.h"

#include "core/result.h"

namespace tutti {
namespace {

constexpr uint64_t kVariableBit = 1ull << 24;

/// The finaliser of MurmurHash3 (Appleby, public domain): every input bit changes every output bit with even
/// odds.
uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

}  // namespace

uint64_t agreed_word(const CallShape& shape) {
  const bool op_counts = reduces(shape.collective);
  const bool root_counts = has_root(shape.collective);
  return static_cast<uint64_t>(shape.collective) | static_cast<uint64_t>(shape.type) << 8 |
         (shape.variable ? kVariableBit : 0) | (op_counts ? static_cast<uint64_t>(shape.op) << 16 : 0) |
         (root_counts ? static_cast<uint64_t>(shape.root) << 32 : 0);
}

uint64_t signature_seed(uint64_t word, uint64_t count) {
  return mix(word ^ count * 0x9e3779b97f4a7c15ull);
}

uint16_t bytes_signature(uint64_t bytes) {
  return static_cast<uint16_t>(mix(bytes));
}

uint16_t message_signature(DataType type, uint32_t tag, uint64_t bytes) {
  const auto kind = static_cast<uint16_t>(mix(0x70327032ull << 32 | static_cast<uint64_t>(type) << 24 | tag));
  return kind ^ bytes_signature(bytes);
}

std::string describe_call(uint64_t word, uint64_t count) {
  const auto collective = static_cast<Collective>(word & 0xff);
  std::string text(collective_name(collective));
  if (collective == Collective::kBarrier) return text + "()";
  if ((word & kVariableBit) != 0) text += "_v";
  text.append("(").append(type_name(static_cast<DataType>(word >> 8 & 0xff)));
  if (reduces(collective)) text.append(", ").append(op_name(static_cast<ReduceOp>(word >> 16 & 0xff)));
  if (has_root(collective)) text += format(", root %u", static_cast<unsigned>(word >> 32));
  if ((word & kVariableBit) != 0 && collective == Collective::kAllToAll) return text + ")";
  return text + format(", count %llu)", static_cast<unsigned long long>(count));
}

}  // namespace tutti
