#include "engine/call.h"

#include "core/result.h"

namespace tutti {
namespace {

constexpr uint64_t kVariableBit = 1ull << 24;
constexpr uint32_t kPurposeShift = 25;  // two bits
// In a message's signature the type lies above most tags that people use.
constexpr uint32_t kTypeShift = 12;
static_assert(kDataTypeCount <= 1 << (16 - kTypeShift));

/// The finaliser of MurmurHash3 (Appleby, public domain): each input bit flips each output bit with
/// probability 1/2.
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
         (shape.variable ? kVariableBit : 0) | static_cast<uint64_t>(shape.purpose) << kPurposeShift |
         (op_counts ? static_cast<uint64_t>(shape.op) << 16 : 0) |
         (root_counts ? static_cast<uint64_t>(shape.root) << 32 : 0);
}

uint64_t signature_seed(uint64_t word, uint64_t count) {
  return mix(word ^ count * 0x9e3779b97f4a7c15ull);
}

uint16_t bytes_signature(uint64_t bytes) {
  return static_cast<uint16_t>(mix(bytes));
}

uint16_t message_signature(DataType type, uint16_t tag, uint64_t bytes) {
  const auto type_bits = static_cast<uint16_t>(static_cast<uint32_t>(type) << kTypeShift);
  return type_bits ^ tag ^ bytes_signature(bytes);
}

std::string describe_message(const Message& message) {
  return format("%llu bytes of %s with tag %u", static_cast<unsigned long long>(message.bytes),
                std::string(type_name(message.type)).c_str(), message.tag);
}

bool may_be_as_long(const Message& expected, uint16_t signature) {
  constexpr uint32_t kTagBits = (1u << kTypeShift) - 1;
  const uint32_t difference = uint32_t{signature} ^ expected.signature;
  return (difference & kTagBits) == 0 || difference <= kTagBits;
}

std::string describe_other_message(const Message& expected, uint16_t signature) {
  // The exclusive or leaves only the difference. Tags that differ by a multiple of 4096 look like types.
  const auto difference = static_cast<uint16_t>(signature ^ expected.signature);
  const uint32_t type = static_cast<uint32_t>(expected.type) ^ difference >> kTypeShift;
  const std::string wanted(type_name(expected.type));
  if (difference % (1u << kTypeShift) == 0 && type < kDataTypeCount) {
    return format("its type is %s, %s was expected",
                  std::string(type_name(static_cast<DataType>(type))).c_str(), wanted.c_str());
  }
  return format("its tag is %u (if it is %s), tag %u was expected", expected.tag ^ difference, wanted.c_str(),
                expected.tag);
}

BufferUse buffer_use(const CallShape& shape, uint32_t rank, uint32_t rank_count) {
  const uint64_t one = shape.count * type_bytes(shape.type);
  const uint64_t all = one * rank_count;
  const bool root = rank == shape.root;
  switch (shape.collective) {
    case Collective::kAllReduce: return {one, one, 0, 0};
    case Collective::kReduce: return {one, root ? one : 0, 0, 0};
    case Collective::kBroadcast: return {root ? one : 0, one, 0, 0};
    case Collective::kAllGather: return {one, all, rank * one, 0};
    case Collective::kReduceScatter: return {all, one, 0, rank * one};
    case Collective::kAllToAll: return {all, all, 0, 0};
    case Collective::kGather: return {one, root ? all : 0, rank * one, 0};
    case Collective::kScatter: return {root ? all : 0, one, 0, rank * one};
    default: return {};
  }
}

std::vector<SelfPair> self_pairs(const std::vector<Message>& messages, uint32_t rank) {
  std::vector<SelfPair> pairs;
  size_t sends = 0;
  size_t receives = 0;
  for (const Message& message : messages) {
    if (message.peer != rank) continue;
    size_t& next = message.sending ? sends : receives;
    if (next == pairs.size()) pairs.emplace_back();
    (message.sending ? pairs[next].send : pairs[next].receive) = &message;
    ++next;
  }
  return pairs;
}

std::vector<SelfCopy> take_self_copies(std::vector<Message>& messages, uint32_t rank) {
  std::vector<SelfCopy> copies;
  for (const SelfPair& pair : self_pairs(messages, rank)) {
    const uint64_t bytes = pair.receive->bytes;
    if (bytes > 0) copies.push_back({pair.receive->buffer, pair.send->buffer, bytes});
  }
  std::erase_if(messages, [rank](const Message& message) { return message.peer == rank; });
  return copies;
}

std::string describe_call(uint64_t word, uint64_t count) {
  const auto purpose = static_cast<CallPurpose>(word >> kPurposeShift & 3);
  if (purpose != CallPurpose::kUsers)
    return purpose == CallPurpose::kSplit ? "comm_split()" : "memory_register()";
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
