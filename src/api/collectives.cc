// Exported functions that move data: they check the arguments, then issue the call.
#include <algorithm>

#include "api/group.h"
#include "api/handle.h"
#include "api/issue.h"

using namespace tutti;  // NOLINT: this file is the border between the C names and ours

static_assert(static_cast<int>(DataType::kBool) == TUTTI_BOOL && kDataTypeCount == TUTTI_TYPE_COUNT);
static_assert(static_cast<int>(DataType::kFloat8E5M2) == TUTTI_FLOAT8_E5M2);
// Each row of core/operators.h has a constant, except the last row, mulsum.
static_assert(operators::kCount == TUTTI_OP_COUNT + 1 && operators::value_of("mulsum") == TUTTI_OP_COUNT);
static_assert(operators::value_of("sum") == TUTTI_SUM && operators::value_of("prod") == TUTTI_PROD &&
              operators::value_of("max") == TUTTI_MAX && operators::value_of("min") == TUTTI_MIN);
static_assert(operators::value_of("avg") == TUTTI_AVG && operators::value_of("band") == TUTTI_BAND &&
              operators::value_of("bor") == TUTTI_BOR && operators::value_of("bxor") == TUTTI_BXOR);
static_assert(static_cast<int>(Code::kInProgress) == TUTTI_IN_PROGRESS);

namespace {

/// The arguments of a C call, unchecked.
struct Arguments {
  Collective collective;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t count = 0;
  tutti_type_t type = TUTTI_UINT8;
  tutti_op_t op = TUTTI_SUM;
  int root = 0;
};

Status bad_argument(const char* name, long long value, const char* rule) {
  return {Code::kInvalidArgument, format("argument %s is %lld: %s", name, value, rule)};
}

/// Turns type, op and root into a shape. Checks everything that does not depend on the buffers.
Status make_shape(tutti_comm* handle, const Arguments& arguments, Call& call) {
  CallShape& shape = call.shape;
  if (tutti_type_bytes(arguments.type) == 0)
    return bad_argument("type", arguments.type, "it is not a tutti_type_t");
  shape.collective = arguments.collective;
  shape.type = static_cast<DataType>(arguments.type);
  shape.count = arguments.count;
  const auto ranks = static_cast<int>(handle->comm->rank_count());
  if (has_root(arguments.collective)) {
    if (arguments.root < 0 || arguments.root >= ranks) {
      return {Code::kInvalidArgument,
              format("argument root is %d: it must be 0 to %d", arguments.root, ranks - 1)};
    }
    shape.root = static_cast<uint32_t>(arguments.root);
  }
  if (!reduces(arguments.collective)) return Status::ok();
  if (arguments.op >= TUTTI_OP_COUNT) {
    const auto premul = handle->premul_ops.find(arguments.op);
    if (premul == handle->premul_ops.end()) {
      return bad_argument("op", arguments.op, "this communicator has made no such operator");
    }
    if (premul->second.type != shape.type) {
      return {Code::kInvalidArgument, format("argument op was made for %s, argument type is %s",
                                             std::string(type_name(premul->second.type)).c_str(),
                                             std::string(type_name(shape.type)).c_str())};
    }
    shape.op = ReduceOp::kPremulSum;
    shape.scale_bits = premul->second.bits;
    call.scale = premul->second.scalar;
    return Status::ok();
  }
  if (arguments.op < 0) return bad_argument("op", arguments.op, "it is not a tutti_op_t");
  shape.op = static_cast<ReduceOp>(arguments.op);
  if (!is_defined(shape.op, shape.type)) {
    return {Code::kInvalidArgument,
            format("argument op: %s is not defined on %s", std::string(op_name(shape.op)).c_str(),
                   std::string(type_name(shape.type)).c_str())};
  }
  return Status::ok();
}

/// Whether `blocks` blocks of `count` elements fit the address space.
bool bytes_fit(uint64_t count, uint64_t blocks, DataType type) {
  uint64_t bytes = 0;
  return !__builtin_mul_overflow(count, blocks, &bytes) &&
         !__builtin_mul_overflow(bytes, type_bytes(type), &bytes) && bytes <= (1ull << 62);
}

Status check_count(uint64_t count, uint64_t blocks, DataType type) {
  if (bytes_fit(count, blocks, type)) return Status::ok();
  return {Code::kInvalidArgument,
          format("argument count is %llu: with %llu blocks of %zu-byte elements its bytes overflow",
                 static_cast<unsigned long long>(count), static_cast<unsigned long long>(blocks),
                 type_bytes(type))};
}

bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/// Packs the arguments other than buffers and count into words that compare quickly.
uint64_t pair(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}
uint64_t collective_and_type(const Arguments& a) {
  return pair(static_cast<uint32_t>(a.collective), static_cast<uint32_t>(a.type));
}
uint64_t op_and_root(const Arguments& a) {
  return pair(static_cast<uint32_t>(a.op), static_cast<uint32_t>(a.root));
}

/// Whether this call equals the communicator's last collective, so that its buffers need no further check.
bool repeats(const tutti_comm* handle, const Arguments& a, tutti_stream_t stream) {
  if (!usable(handle)) return false;
  const tutti_comm::Repeat& last = handle->repeat;
  if (!last.valid || stream.kind != 0 || group_depth != 0 || last.count != a.count ||
      last.collective_and_type != collective_and_type(a) || last.op_and_root != op_and_root(a)) {
    return false;
  }
  if (last.in_place) {
    return a.send != nullptr && static_cast<const std::byte*>(a.send) + last.recv_place ==
                                    static_cast<const std::byte*>(a.recv) + last.send_place;
  }
  if ((last.send_bytes > 0 && a.send == nullptr) || (last.recv_bytes > 0 && a.recv == nullptr)) return false;
  return !overlap(a.send, last.send_bytes, a.recv, last.recv_bytes);
}

/// Checks that a buffer of more than 0 bytes exists and that the rank can work on it.
Status check_buffer(const tutti_comm* handle, const char* name, const void* address, uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  return address == nullptr ? null_argument(name) : handle->comm->check_pointer(name, address);
}

Status check_buffers(const tutti_comm* handle, const Call& call, const BufferUse& use, bool& in_place) {
  in_place = false;
  TUTTI_TRY(check_buffer(handle, "send", call.send, use.send_bytes));
  TUTTI_TRY(check_buffer(handle, "recv", call.recv, use.recv_bytes));
  if (use.send_bytes == 0 || use.recv_bytes == 0) return Status::ok();
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  in_place = send + use.recv_place == recv + use.send_place;
  if (!in_place && overlap(send, use.send_bytes, recv, use.recv_bytes)) {
    return {Code::kInvalidArgument,
            format("arguments send (%p, %llu bytes) and recv (%p, %llu bytes) overlap, but not as in place",
                   call.send, static_cast<unsigned long long>(use.send_bytes), call.recv,
                   static_cast<unsigned long long>(use.recv_bytes))};
  }
  return Status::ok();
}

/// Checks and issues a collective with equal blocks.
Status check_and_issue(const Arguments& arguments, tutti_comm* handle, tutti_stream_t stream) {
  TUTTI_TRY(check_ready(handle));
  TUTTI_TRY(check_stream(handle, stream));
  Call call{.shape = {}, .send = arguments.send, .recv = arguments.recv, .blocks = nullptr};
  TUTTI_TRY(make_shape(handle, arguments, call));
  const uint32_t ranks = handle->comm->rank_count();
  TUTTI_TRY(check_count(
      call.shape.count,
      std::max(input_blocks(call.shape.collective, ranks), output_blocks(call.shape.collective, ranks)),
      call.shape.type));
  const BufferUse use = buffer_use(call.shape, handle->comm->rank(), ranks);
  TUTTI_TRY(check_buffers(handle, call, use, call.shape.in_place));
  const bool in_place = call.shape.in_place;
  const bool is_whole = !handle->comm->has_pieces(call.shape);
  TUTTI_TRY(issue(handle, std::move(call), stream));
  const bool ran = !in_group() && stream.kind == 0 && !handle->comm->is_on_device() && is_whole;
  handle->repeat = {ran,
                    in_place,
                    collective_and_type(arguments),
                    op_and_root(arguments),
                    arguments.count,
                    use.send_bytes,
                    use.recv_bytes,
                    use.send_place,
                    use.recv_place};
  return Status::ok();
}

template <class Body>
tutti_result_t guarded_call(tutti_comm* handle, Body&& body) noexcept {
  return guarded([&]() -> Status {
    const CallGuard busy(handle);
    Status status = busy ? contained(body) : no_handle(handle);
    if (!status.is_ok()) [[unlikely]]
      spoil_group(status);
    return status;
  });
}

/// Out of line, to keep the short path small.
[[gnu::noinline]] tutti_result_t collective_checked(const Arguments& arguments, tutti_comm* handle,
                                                    tutti_stream_t stream) noexcept {
  return guarded_call(handle, [&] { return check_and_issue(arguments, handle, stream); });
}

inline tutti_result_t collective(const Arguments& arguments, tutti_comm* handle,
                                 tutti_stream_t stream) noexcept {
  if (CallGuard::begin(handle)) [[likely]] {
    if (repeats(handle, arguments, stream)) [[likely]] {
      if (arguments.collective != Collective::kBarrier) return repeat(handle, arguments.send, arguments.recv);
      return repeat(handle, &handle->barrier_sends, &handle->barrier_receives);
    }
    CallGuard::end(handle);
  }
  return collective_checked(arguments, handle, stream);
}

/// One side of a variable-count call, as the caller passed it.
struct Table {
  const char* counts_name;
  const size_t* counts;
  const char* displacements_name;
  const size_t* displacements;  ///< may be null
};

Status too_large(const std::string& what, uint64_t value, DataType type) {
  return {Code::kInvalidArgument,
          format("argument %s is %llu: the address space does not hold so many %zu-byte elements",
                 what.c_str(), static_cast<unsigned long long>(value), type_bytes(type))};
}

/// The blocks of one side of a variable-count call, in bytes. `total` counts the elements.
Status make_blocks(const Table& table, uint32_t ranks, DataType type, std::vector<Extent>& blocks,
                   uint64_t& total) {
  if (table.counts == nullptr) return null_argument(table.counts_name);
  total = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint64_t count = table.counts[rank];
    if (!bytes_fit(count, 1, type)) return too_large(format("%s[%u]", table.counts_name, rank), count, type);
    const uint64_t start = table.displacements != nullptr ? table.displacements[rank] : total;
    if (!bytes_fit(start, 1, type))
      return too_large(format("%s[%u]", table.displacements_name, rank), start, type);
    total += count;
    if (!bytes_fit(total, 1, type))
      return too_large(format("%s[0] to [%u] together", table.counts_name, rank), total, type);
    blocks.push_back({start * type_bytes(type), count * type_bytes(type)});
  }
  return Status::ok();
}

/// all_gather_v and reduce_scatter_v: one side has one block, the other side has a table of blocks.
Status variable_collective(const Arguments& arguments, const size_t* counts, const size_t* displacements,
                           tutti_comm* handle, tutti_stream_t stream) {
  TUTTI_TRY(check_ready(handle));
  TUTTI_TRY(check_stream(handle, stream));
  Call call{.shape = {}, .send = arguments.send, .recv = arguments.recv, .blocks = nullptr};
  TUTTI_TRY(make_shape(handle, arguments, call));
  const uint32_t ranks = handle->comm->rank_count();
  const uint32_t rank = handle->comm->rank();
  call.shape.variable = true;
  auto blocks = std::make_shared<VariableBlocks>();
  const bool gathers = arguments.collective == Collective::kAllGather;
  std::vector<Extent>& table = gathers ? blocks->output : blocks->input;
  TUTTI_TRY(make_blocks({"counts", counts, "displacements", displacements}, ranks, call.shape.type, table,
                        call.shape.count));
  (gathers ? blocks->input : blocks->output) = {{0, table[rank].bytes}};
  const void* many = gathers ? arguments.recv : arguments.send;
  const void* one = gathers ? arguments.send : arguments.recv;
  TUTTI_TRY(check_buffer(handle, gathers ? "recv" : "send", many, call.shape.count));
  TUTTI_TRY(check_buffer(handle, gathers ? "send" : "recv", one, table[rank].bytes));
  call.shape.in_place = one == static_cast<const std::byte*>(many) + table[rank].offset;
  for (const Extent& block : table) {
    if (!call.shape.in_place &&
        overlap(one, table[rank].bytes, static_cast<const std::byte*>(many) + block.offset, block.bytes)) {
      return {Code::kInvalidArgument, "arguments send and recv overlap, but not as in place"};
    }
  }
  call.blocks = std::move(blocks);
  return issue(handle, std::move(call), stream);
}

Status all_to_all_v(const void* send, const size_t* send_counts, const size_t* send_displacements, void* recv,
                    const size_t* recv_counts, const size_t* recv_displacements, tutti_type_t type,
                    tutti_comm* handle, tutti_stream_t stream) {
  TUTTI_TRY(check_ready(handle));
  TUTTI_TRY(check_stream(handle, stream));
  MessageCall call{.messages = {}, .collective = true, .shape = {}};
  Call whole;
  TUTTI_TRY(make_shape(handle, {.collective = Collective::kAllToAll, .type = type}, whole));
  call.shape = whole.shape;
  call.shape.variable = true;
  const uint32_t ranks = handle->comm->rank_count();
  const uint32_t rank = handle->comm->rank();
  std::vector<Extent> out;
  std::vector<Extent> in;
  uint64_t sent = 0;
  uint64_t received = 0;
  TUTTI_TRY(make_blocks({"send_counts", send_counts, "send_displacements", send_displacements}, ranks,
                        call.shape.type, out, sent));
  TUTTI_TRY(make_blocks({"recv_counts", recv_counts, "recv_displacements", recv_displacements}, ranks,
                        call.shape.type, in, received));
  TUTTI_TRY(check_buffer(handle, "send", send, sent));
  TUTTI_TRY(check_buffer(handle, "recv", recv, received));
  if (out[rank].bytes != in[rank].bytes) {
    return {Code::kInvalidArgument, format("send_counts[%u] and recv_counts[%u] of rank %u differ: a rank "
                                           "receives as much from itself as it sends to itself",
                                           rank, rank, rank)};
  }
  for (const Extent& source : out) {
    for (const Extent& target : in) {
      if (overlap(static_cast<const std::byte*>(send) + source.offset, source.bytes,
                  static_cast<const std::byte*>(recv) + target.offset, target.bytes)) {
        return {Code::kInvalidArgument, "arguments send and recv overlap: all_to_all_v has no in place"};
      }
    }
  }
  // Each rank starts at another peer, so that the ranks do not all send to the same peer at once.
  for (uint32_t i = 0; i < ranks; ++i) {
    const uint32_t to = (rank + i) % ranks;
    const uint32_t from = (rank + ranks - i) % ranks;
    auto* source = const_cast<std::byte*>(static_cast<const std::byte*>(send)) + out[to].offset;
    call.messages.push_back({.buffer = source, .bytes = out[to].bytes, .peer = to, .sending = true});
    auto* target = static_cast<std::byte*>(recv) + in[from].offset;
    call.messages.push_back({.buffer = target, .bytes = in[from].bytes, .peer = from, .sending = false});
  }
  return issue(handle, std::move(call), stream);
}

/// A message, but for its peer.
Result<Message> make_message(void* buffer, size_t count, tutti_type_t type, int tag, bool sending,
                             tutti_comm* handle) {
  if (tutti_type_bytes(type) == 0) return bad_argument("type", type, "it is not a tutti_type_t");
  if (tag < 0 || tag > 65535) return bad_argument("tag", tag, "it must be 0 to 65535");
  const auto data_type = static_cast<DataType>(type);
  TUTTI_TRY(check_count(count, 1, data_type));
  TUTTI_TRY(check_buffer(handle, sending ? "send" : "recv", buffer, count));
  return Message{.buffer = buffer,
                 .bytes = count * type_bytes(data_type),
                 .peer = 0,
                 .sending = sending,
                 .seed = message_seed(data_type, static_cast<uint16_t>(tag), count * type_bytes(data_type)),
                 .shared = false,
                 .type = data_type,
                 .tag = static_cast<uint16_t>(tag)};
}

/// Whether the arguments, but for the buffer, are those of the last message of this direction, and the call
/// blocks.
bool repeats(const tutti_comm* handle, const tutti_comm::LastMessage& last, size_t count, tutti_type_t type,
             int peer, int tag, tutti_stream_t stream) {
  const Message& message = last.message;
  return last.count == count && static_cast<tutti_type_t>(message.type) == type &&
         static_cast<int>(message.peer) == peer && message.tag == tag && stream.kind == 0 && usable(handle);
}

Status point_to_point(void* buffer, size_t count, tutti_type_t type, int peer, int tag, bool sending,
                      tutti_comm* handle, tutti_stream_t stream) {
  tutti_comm::LastMessage& last = sending ? handle->last_send : handle->last_receive;
  if (repeats(handle, last, count, type, peer, tag, stream)) [[likely]] {
    TUTTI_TRY(check_buffer(handle, sending ? "send" : "recv", buffer, count));
    last.message.buffer = buffer;
    return issue(handle, last.message, stream);
  }
  TUTTI_TRY(check_ready(handle));
  TUTTI_TRY(check_stream(handle, stream));
  const auto ranks = static_cast<int>(handle->comm->rank_count());
  if (peer < 0 || peer >= ranks) {
    return {Code::kInvalidArgument, format("argument peer is %d: it must be 0 to %d", peer, ranks - 1)};
  }
  auto message = make_message(buffer, count, type, tag, sending, handle);
  TUTTI_TRY(message.status());
  message->peer = static_cast<uint32_t>(peer);
  TUTTI_TRY(issue(handle, *message, stream));
  last = {*message, count, !in_group() && stream.kind == 0 && !handle->comm->is_on_device()};
  return Status::ok();
}

/// A message, outside a group like the last one of its direction on the short path.
inline tutti_result_t send_or_receive(void* buffer, size_t count, tutti_type_t type, int peer, int tag,
                                      bool sending, tutti_comm* handle, tutti_stream_t stream) noexcept {
  if (CallGuard::begin(handle)) [[likely]] {
    tutti_comm::LastMessage& last = sending ? handle->last_send : handle->last_receive;
    if (last.ran_alone && repeats(handle, last, count, type, peer, tag, stream) && group_depth == 0 &&
        buffer != nullptr) [[likely]] {
      last.message.buffer = buffer;
      return repeat(handle, last.message);
    }
    CallGuard::end(handle);
  }
  return guarded_call(
      handle, [&] { return point_to_point(buffer, count, type, peer, tag, sending, handle, stream); });
}

Status receive_from_any(void* buffer, size_t count, tutti_type_t type, int tag, int* source,
                        tutti_comm* handle) {
  TUTTI_TRY(check_ready(handle));
  if (source == nullptr) return null_argument("source");
  if (in_group()) {
    return {Code::kInvalidUsage,
            "tutti_recv_any cannot be called inside a group, whose messages are known at its start: name the "
            "sender in tutti_recv, or call it outside"};
  }
  if (handle->comm->is_on_device()) {
    return {Code::kUnsupported,
            format("rank %u is on a CUDA device, which must know the sender: call tutti_recv",
                   handle->comm->rank())};
  }
  const auto message = make_message(buffer, count, type, tag, false, handle);
  TUTTI_TRY(message.status());
  if (handle->comm->rank_count() == 1)
    return {Code::kInvalidUsage, "the communicator has one rank: no other rank can send"};
  handle->repeat.valid = false;
  const auto sender = take_turn(handle).run_from_any(*message);
  TUTTI_TRY(sender.status());
  *source = static_cast<int>(*sender);
  return Status::ok();
}

}  // namespace

extern "C" {

TUTTI_API tutti_result_t tutti_all_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_op_t op, tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kAllReduce, send, recv, count, type, op, 0}, comm, stream);
}

TUTTI_API tutti_result_t tutti_reduce(const void* send, void* recv, size_t count, tutti_type_t type,
                                      tutti_op_t op, int root, tutti_comm_t* comm,
                                      tutti_stream_t stream) noexcept {
  return collective({Collective::kReduce, send, recv, count, type, op, root}, comm, stream);
}

TUTTI_API tutti_result_t tutti_broadcast(const void* send, void* recv, size_t count, tutti_type_t type,
                                         int root, tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kBroadcast, send, recv, count, type, TUTTI_SUM, root}, comm, stream);
}

TUTTI_API tutti_result_t tutti_all_gather(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kAllGather, send, recv, count, type, TUTTI_SUM, 0}, comm, stream);
}

TUTTI_API tutti_result_t tutti_reduce_scatter(const void* send, void* recv, size_t count, tutti_type_t type,
                                              tutti_op_t op, tutti_comm_t* comm,
                                              tutti_stream_t stream) noexcept {
  return collective({Collective::kReduceScatter, send, recv, count, type, op, 0}, comm, stream);
}

TUTTI_API tutti_result_t tutti_all_to_all(const void* send, void* recv, size_t count, tutti_type_t type,
                                          tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kAllToAll, send, recv, count, type, TUTTI_SUM, 0}, comm, stream);
}

TUTTI_API tutti_result_t tutti_gather(const void* send, void* recv, size_t count, tutti_type_t type, int root,
                                      tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kGather, send, recv, count, type, TUTTI_SUM, root}, comm, stream);
}

TUTTI_API tutti_result_t tutti_scatter(const void* send, void* recv, size_t count, tutti_type_t type,
                                       int root, tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kScatter, send, recv, count, type, TUTTI_SUM, root}, comm, stream);
}

TUTTI_API tutti_result_t tutti_barrier(tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return collective({Collective::kBarrier, nullptr, nullptr, 0, TUTTI_UINT8, TUTTI_SUM, 0}, comm, stream);
}

TUTTI_API tutti_result_t tutti_all_gather_v(const void* send, void* recv, const size_t* counts,
                                            const size_t* displacements, tutti_type_t type,
                                            tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return guarded_call(comm, [&] {
    return variable_collective({Collective::kAllGather, send, recv, 0, type, TUTTI_SUM, 0}, counts,
                               displacements, comm, stream);
  });
}

TUTTI_API tutti_result_t tutti_reduce_scatter_v(const void* send, void* recv, const size_t* counts,
                                                const size_t* displacements, tutti_type_t type, tutti_op_t op,
                                                tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return guarded_call(comm, [&] {
    return variable_collective({Collective::kReduceScatter, send, recv, 0, type, op, 0}, counts,
                               displacements, comm, stream);
  });
}

TUTTI_API tutti_result_t tutti_all_to_all_v(const void* send, const size_t* send_counts,
                                            const size_t* send_displacements, void* recv,
                                            const size_t* recv_counts, const size_t* recv_displacements,
                                            tutti_type_t type, tutti_comm_t* comm,
                                            tutti_stream_t stream) noexcept {
  return guarded_call(comm, [&] {
    return all_to_all_v(send, send_counts, send_displacements, recv, recv_counts, recv_displacements, type,
                        comm, stream);
  });
}

TUTTI_API tutti_result_t tutti_send(const void* send, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  // Const is cast away because messages of both directions share one type. A send only reads its buffer.
  return send_or_receive(const_cast<void*>(send), count, type, peer, tag, true, comm, stream);
}

TUTTI_API tutti_result_t tutti_recv(void* recv, size_t count, tutti_type_t type, int peer, int tag,
                                    tutti_comm_t* comm, tutti_stream_t stream) noexcept {
  return send_or_receive(recv, count, type, peer, tag, false, comm, stream);
}

TUTTI_API tutti_result_t tutti_recv_any(void* recv, size_t count, tutti_type_t type, int tag, int* source,
                                        tutti_comm_t* comm) noexcept {
  // Not guarded_call: a call that cannot be in a group does not spoil the group.
  return guarded_on(comm, [&] { return receive_from_any(recv, count, type, tag, source, comm); });
}

TUTTI_API tutti_result_t tutti_group_start(void) noexcept {
  group_start();
  return TUTTI_SUCCESS;
}

TUTTI_API tutti_result_t tutti_group_end(void) noexcept {
  return guarded([] { return group_end(); });
}

}  // extern "C"
