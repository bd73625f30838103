// Call: a user's request, after the API has checked it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"
#include "engine/geometry.h"
#include "engine/operation.h"

namespace tutti {

/// Blocks of a variable-count collective, in bytes.
struct VariableBlocks {
  std::vector<Extent> input;
  std::vector<Extent> output;

  friend bool operator==(const VariableBlocks&, const VariableBlocks&) = default;
};

/// Who calls. kSplit, kRegister: the library exchanges facts in host memory. Such a call never matches a
/// user's.
enum class CallPurpose : uint8_t { kUsers, kSplit, kRegister };

/// What decides the plan and its binding. Calls of equal shape reuse a bound operation.
struct CallShape {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  uint32_t root = 0;
  bool variable = false;  ///< all_gather_v, reduce_scatter_v, all_to_all_v
  CallPurpose purpose = CallPurpose::kUsers;
  uint64_t count = 0;       ///< as in the C call; variable: sum over the blocks that every rank knows
  uint64_t scale_bits = 0;  ///< kPremulSum
  uint64_t piece = 0;       ///< elements of this piece (engine/pieces.h); 0: the whole call

  uint64_t elements() const { return piece != 0 ? piece : count; }

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// The blocks of an all_to_all_v are the messages of a MessageCall.
inline bool is_all_to_all_v(const CallShape& shape) {
  return shape.collective == Collective::kAllToAll && shape.variable;
}

struct Call {
  CallShape shape;
  const void* send = nullptr;
  void* recv = nullptr;
  const void* scale = nullptr;  ///< kPremulSum on a device: where the scalar lies, if not in the shape
  std::shared_ptr<const VariableBlocks> blocks;  ///< variable counts; shared with the stream's queue
  uint64_t first_element = 0;                    ///< of a piece, in the whole call

  bool is_last_piece() const { return first_element + shape.elements() == shape.count; }
};

/// A group of sends and receives, an all_to_all_v, or a collective that moves bytes (engine/byte_moves.h).
struct MessageCall {
  std::vector<Message> messages;
  bool collective = false;                             ///< all ranks take part, in the order of collectives
  CallShape shape;                                     ///< of a collective
  std::vector<std::shared_ptr<const void>> held = {};  ///< registrations that its messages use
};

/// The bytes that a rank reads and writes in a call with equal blocks, and where the buffers may coincide.
struct BufferUse {
  uint64_t send_bytes = 0;  ///< 0: the call ignores `send`
  uint64_t recv_bytes = 0;
  uint64_t send_place = 0;  ///< in place: send == recv + send_place
  uint64_t recv_place = 0;  ///< in place: recv == send + recv_place
};
BufferUse buffer_use(const CallShape& shape, uint32_t rank, uint32_t rank_count);

/// A send of a rank to itself and the matching receive.
struct SelfPair {
  const Message* send = nullptr;     ///< null: the receive has no send
  const Message* receive = nullptr;  ///< null: the send has no receive
};

/// The messages of `rank` to itself: the first send meets the first receive, and so on.
std::vector<SelfPair> self_pairs(const std::vector<Message>& messages, uint32_t rank);

struct SelfCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};

/// Takes the messages of `rank` to itself off the list. The messages must match; those without bytes make no
/// copy.
std::vector<SelfCopy> take_self_copies(std::vector<Message>& messages, uint32_t rank);

/// What all ranks must agree on, packed for a status page: this word and the count.
uint64_t agreed_word(const CallShape& shape);
/// A hash of both and of the table of counts (counts_digest; 0: none), for next_history.
uint64_t signature_seed(uint64_t word, uint64_t count, uint64_t counts = 0);
/// A hash of the counts that every rank knows, in rank order; 0: no table. Displacements are each rank's own.
uint64_t counts_digest(const VariableBlocks* blocks);
/// A hash of type, tag and bytes of a point-to-point message, for next_history.
uint64_t message_seed(DataType type, uint16_t tag, uint64_t bytes);
/// What the flag words of a message show; in an all_to_all_v, before the call's own part.
uint32_t message_signature(const Message& message);
/// "its tag is 4, tag 3 was expected": how the message with this signature differs, if it has the expected
/// bytes and follows the expected message's history. Empty: in another way. Tries all types and tags.
std::string describe_other_message(const Message& expected, uint32_t signature);
/// "40 bytes of float32 with tag 3"
std::string describe_message(const Message& message);
/// "all_reduce(float32, sum, count 1024)" from a status page.
std::string describe_call(uint64_t word, uint64_t count);

}  // namespace tutti
