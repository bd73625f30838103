#include "api/issue.h"

#include <utility>
#include <variant>

#include "api/group.h"
#include "api/work.h"
#include "engine/byte_moves.h"
#include "engine/pieces.h"

namespace tutti {
namespace {

Work make_work(tutti_comm* handle, tutti_stream_t stream, std::variant<Call, MessageCall> what) {
  return {.handle = handle, .stream = stream, .what = std::move(what), .timeout_ms = timeout_of(handle)};
}

/// The error of a send to the own rank, or a receive from the own rank, outside a group.
Status alone_with_itself(const Message& message) {
  return {Code::kInvalidUsage,
          format("rank %u %s itself outside a group, where no call can match: call tutti_send and "
                 "tutti_recv, of the same count, type and tag, between tutti_group_start and tutti_group_end",
                 message.peer, message.sending ? "sends to" : "receives from")};
}

template <class Anything>
Status issue_any(tutti_comm* handle, Anything call, tutti_stream_t stream) {
  handle->repeat.valid = false;
  if (group_depth > 0) [[unlikely]] {
    add_to_group(make_work(handle, stream, std::move(call)));
    return Status::ok();
  }
  if (stream.kind == kCudaStream) return queue_on_device(make_work(handle, stream, std::move(call)));
  if (stream.kind != 0) [[unlikely]]
    return enqueue(make_work(handle, stream, std::move(call)));
  return take_turn(handle).run(call);
}

/// Issues a call in pieces. Once the first piece is issued, other ranks wait for the rest.
Status issue_pieces(tutti_comm* handle, const Call& call, tutti_stream_t stream) {
  const std::vector<Call> pieces = cut_into_pieces(call);
  handle->repeat.valid = false;
  if (group_depth == 0 && stream.kind == 0) return take_turn(handle).run(pieces);
  if (group_depth == 0 && stream.kind == kCudaStream) return queue_pieces(handle, pieces, stream);
  for (const Call& piece : pieces) {
    const Status issued = contained([&] { return issue_any(handle, piece, stream); });
    if (issued) continue;
    if (group_depth == 0 && piece.first_element != 0) handle->comm->fail_all(issued);
    return issued;
  }
  return Status::ok();
}

}  // namespace

tutti_result_t repeat(tutti_comm* handle, const void* send, void* recv) noexcept {
  return guarded([&] {
    const CallGuard busy(handle, std::adopt_lock);
    return handle->comm->run_again(send, recv);
  });
}

tutti_result_t repeat(tutti_comm* handle, const Message& message) noexcept {
  return guarded([&] {
    const CallGuard busy(handle, std::adopt_lock);
    handle->repeat.valid = false;
    return take_turn(handle).run(message);
  });
}

Status check_host_stream(tutti_stream_t stream) {
  const auto* host = static_cast<const tutti_host_stream*>(stream.handle);
  if (host == nullptr) return null_argument("stream");
  return host->magic.load() == tutti_host_stream::kLive ? Status::ok() : no_host_stream();
}

Status no_host_stream() {
  return {Code::kInvalidUsage, "argument stream is not a live host stream: it was destroyed"};
}

Status check_stream(const tutti_comm* handle, tutti_stream_t stream) {
  if (stream.kind == 0) [[likely]]
    return Status::ok();
  if (stream.kind == kHostStream) return check_host_stream(stream);
  if (stream.kind == kCudaStream) {
    if (handle->comm->is_on_device()) return Status::ok();
    return {
        Code::kUnsupported,
        format("argument stream is a CUDA stream, but rank %u is in host memory: make its communicator with "
               "config.device TUTTI_CUDA_DEVICE(n), or pass a host stream",
               handle->comm->rank())};
  }
  return {Code::kInvalidArgument,
          format("argument stream has the unknown kind %u: make it with TUTTI_BLOCKING, "
                 "tutti_stream_host or tutti_stream_cuda",
                 stream.kind)};
}

Status issue(tutti_comm* handle, Call call, tutti_stream_t stream) {
  if (handle->comm->goes_as_messages(call.shape)) {
    const uint32_t ranks = handle->comm->rank_count();
    return issue_any(handle, as_messages(call, handle->comm->rank(), ranks), stream);
  }
  if (handle->comm->has_pieces(call.shape)) return issue_pieces(handle, call, stream);
  return issue_any(handle, std::move(call), stream);
}

Status issue(tutti_comm* handle, MessageCall call, tutti_stream_t stream) {
  return issue_any(handle, std::move(call), stream);
}

Status issue(tutti_comm* handle, const Message& message, tutti_stream_t stream) {
  handle->repeat.valid = false;
  if (group_depth == 0) {
    if (stream.kind == 0 && message.peer != handle->comm->rank()) [[likely]]
      return take_turn(handle).run(message);
    if (message.peer == handle->comm->rank()) return alone_with_itself(message);
    return issue_any(handle, MessageCall{.messages = {message}, .collective = false, .shape = {}}, stream);
  }
  add_to_group(handle, message, stream, timeout_of(handle));
  return Status::ok();
}

}  // namespace tutti
