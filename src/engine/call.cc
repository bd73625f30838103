#include "engine/call.h"

#include "core/hash.h"
#include "core/result.h"

namespace tutti {
namespace {

constexpr uint64_t kVariableBit = 1ull << 24;
constexpr uint32_t kPurposeShift = 25;  // two bits
}  // namespace

uint64_t agreed_word(const CallShape& shape) {
  const bool op_counts = reduces(shape.collective);
  const bool root_counts = has_root(shape.collective);
  return static_cast<uint64_t>(shape.collective) | static_cast<uint64_t>(shape.type) << 8 |
         (shape.variable ? kVariableBit : 0) | static_cast<uint64_t>(shape.purpose) << kPurposeShift |
         (op_counts ? static_cast<uint64_t>(shape.op) << 16 : 0) |
         (root_counts ? static_cast<uint64_t>(shape.root) << 32 : 0);
}

uint64_t signature_seed(uint64_t word, uint64_t count, uint64_t counts) {
  return mix_bits(mix_bits(word ^ count * 0x9e3779b97f4a7c15ull) ^ counts);
}

uint64_t counts_digest(const VariableBlocks* blocks) {
  if (blocks == nullptr) return 0;
  const std::vector<Extent>& table = blocks->input.size() > 1 ? blocks->input : blocks->output;
  uint64_t digest = table.size();
  for (const Extent& block : table) digest = mix_bits(digest ^ block.bytes);
  return digest;
}

uint64_t message_seed(DataType type, uint16_t tag, uint64_t bytes) {
  return mix_bits(mix_bits(bytes) ^ (static_cast<uint64_t>(type) << 16 | tag));
}

uint32_t message_signature(const Message& message) {
  return history_signature(next_history(message.history, message.seed));
}

std::string describe_message(const Message& message) {
  return format("%llu bytes of %s with tag %u", static_cast<unsigned long long>(message.bytes),
                std::string(type_name(message.type)).c_str(), message.tag);
}

std::string describe_other_message(const Message& expected, uint32_t signature) {
  constexpr uint32_t kTags = 1u << 16;
  for (uint32_t type = 0; type < kDataTypeCount; ++type) {
    for (uint32_t tag = 0; tag < kTags; ++tag) {
      const auto data_type = static_cast<DataType>(type);
      const uint64_t seed = message_seed(data_type, static_cast<uint16_t>(tag), expected.bytes);
      if (history_signature(next_history(expected.history, seed)) != signature) continue;
      std::string text;
      if (data_type != expected.type) {
        text = format("its type is %s, %s was expected", std::string(type_name(data_type)).c_str(),
                      std::string(type_name(expected.type)).c_str());
      }
      if (tag == expected.tag) return text;
      return text +
             format("%sits tag is %u, tag %u was expected", text.empty() ? "" : ", and ", tag, expected.tag);
    }
  }
  return "";
}

BufferUse buffer_use(const CallShape& shape, uint32_t rank, uint32_t rank_count) {
  const uint64_t one = shape.elements() * type_bytes(shape.type);
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
  const auto is_own = [rank](const Message& message) { return message.peer == rank; };
  if (std::none_of(messages.begin(), messages.end(), is_own)) return copies;
  for (const SelfPair& pair : self_pairs(messages, rank)) {
    const uint64_t bytes = pair.receive->bytes;
    if (bytes > 0) copies.push_back({pair.receive->buffer, pair.send->buffer, bytes});
  }
  std::erase_if(messages, is_own);
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
