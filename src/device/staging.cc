#include "device/staging.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr uint64_t kLeastPiece = 1u << 16;
// A call's buffers begin at cache lines.
constexpr uint64_t kAlign = 64;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

uint64_t total_bytes(const std::vector<Extent>& blocks) {
  uint64_t total = 0;
  for (const Extent& block : blocks) total += block.bytes;
  return total;
}

/// Adds a copy to the list, or extends the last one if both sides are adjacent.
void add(std::vector<StagingCopy>& copies, void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  if (!copies.empty()) {
    StagingCopy& last = copies.back();
    if (static_cast<std::byte*>(last.to) + last.bytes == to &&
        static_cast<const std::byte*>(last.from) + last.bytes == from) {
      last.bytes += bytes;
      return;
    }
  }
  copies.push_back({to, from, bytes});
}

}  // namespace

Staging::~Staging() {
  // First returns all lent memory to the host.
  device_.reset();
  for (const Piece& piece : pieces_) {
    if (piece.plain.base() == nullptr) static_cast<void>(heap_.free(piece.base));
  }
}

Status Staging::check_stream(DeviceStream stream) const {
  const auto captured = device_->is_captured(stream);
  TUTTI_TRY(captured.status());
  if (options_.sharers > 1 && options_.queues == 1) {
    return {
        Code::kUnsupported,
        format(
            "argument stream: calls of this communicator pass through host memory (%s). The device has one "
            "queue (CUDA_DEVICE_MAX_CONNECTIONS is 1) for the %u ranks of this process there, so one rank's "
            "wait would block another rank's copies: set the variable to 8 or more, run "
            "one process per rank, or make the calls with TUTTI_BLOCKING",
            options_.why.c_str(), options_.sharers)};
  }
  if (!*captured) return Status::ok();
  return {
      Code::kUnsupported,
      format(
          "argument stream is being captured, but calls of this communicator pass through host memory (%s), "
          "and a replayed graph makes no calls: make the calls outside the capture, or in a "
          "communicator whose ranks all use devices of one host that reach each other",
          options_.why.c_str())};
}

Result<std::byte*> Staging::reserve(uint64_t bytes) {
  if (!pieces_.empty() && pieces_.back().bytes >= bytes) return pieces_.back().base;
  Piece fresh;
  fresh.bytes = (bytes + kLeastPiece - 1) / kLeastPiece * kLeastPiece;
  if (!pieces_.empty()) fresh.bytes = std::max(fresh.bytes, 2 * pieces_.back().bytes);
  if (auto memory = heap_.allocate(fresh.bytes); memory) {
    fresh.base = static_cast<std::byte*>(*memory);
  } else {
    auto plain = map_plain(fresh.bytes);
    TUTTI_TRY(plain.status());
    fresh.plain = std::move(*plain);
    fresh.base = fresh.plain.base();
  }
  const Status lent = contained([&] {
    pieces_.reserve(pieces_.size() + 1);
    return device_->lend(fresh.base, fresh.bytes);
  });
  if (!lent) {
    if (fresh.plain.base() == nullptr) static_cast<void>(heap_.free(fresh.base));
    return Status(
        lent.code(),
        format("rank %u needs %llu bytes of pinned host memory, through which this call passes (%s): %s",
               options_.rank, static_cast<unsigned long long>(fresh.bytes), options_.why.c_str(),
               std::string(lent.text()).c_str()));
  }
  pieces_.push_back(std::move(fresh));
  return pieces_.back().base;
}

Result<Call> Staging::stage(const Call& call) {
  const BufferUse use = call.blocks == nullptr ? buffer_use(call.shape, options_.rank, options_.rank_count)
                                               : BufferUse{total_bytes(call.blocks->input),
                                                           total_bytes(call.blocks->output), 0, 0};
  const uint64_t buffers = call.shape.in_place ? std::max(use.send_bytes, use.recv_bytes)
                                               : aligned(use.send_bytes) + aligned(use.recv_bytes);
  auto base = reserve(kAlign + buffers);
  TUTTI_TRY(base.status());
  Call here = call;
  in_.clear();
  out_.clear();
  std::byte* next = *base;
  if (call.scale != nullptr) {
    add(in_, next, call.scale, type_bytes(call.shape.type));
    here.scale = next;
    next += kAlign;
  }
  if (call.blocks != nullptr) {
    stage_variable_blocks(here, next);
  } else {
    stage_equal_blocks(use, here, next);
  }
  return here;
}

void Staging::stage_equal_blocks(const BufferUse& use, Call& call, std::byte* base) {
  const auto* const send = static_cast<const std::byte*>(call.send);
  auto* const recv = static_cast<std::byte*>(call.recv);
  std::byte* here_send = base;
  std::byte* here_recv = base + aligned(use.send_bytes);
  if (call.shape.in_place) {
    here_send = base + use.send_place;
    here_recv = base + use.recv_place;
  }
  add(in_, here_send, send, use.send_bytes);
  add(out_, recv, here_recv, use.recv_bytes);
  call.send = here_send;
  call.recv = here_recv;
}

/// The staged blocks of the table lie without gaps.
void Staging::stage_variable_blocks(Call& call, std::byte* base) {
  const bool gathers = call.shape.collective == Collective::kAllGather;
  const auto* const send = static_cast<const std::byte*>(call.send);
  auto* const recv = static_cast<std::byte*>(call.recv);
  auto blocks = std::make_shared<VariableBlocks>(*call.blocks);
  std::vector<Extent>& table = gathers ? blocks->output : blocks->input;
  uint64_t offset = 0;
  for (Extent& block : table) {
    if (gathers) {
      add(out_, recv + block.offset, base + offset, block.bytes);
    } else {
      add(in_, base + offset, send + block.offset, block.bytes);
    }
    block.offset = offset;
    offset += block.bytes;
  }
  const Extent& own = table[options_.rank];
  std::byte* const one = base + (call.shape.in_place ? own.offset : aligned(offset));
  if (gathers) {
    add(in_, one, send, own.bytes);
  } else {
    add(out_, recv, one, own.bytes);
  }
  call.send = gathers ? one : base;
  call.recv = gathers ? base : one;
  call.blocks = std::move(blocks);
}

Result<MessageCall> Staging::stage(const MessageCall& call) {
  uint64_t bytes = 0;
  for (const Message& message : call.messages) bytes += aligned(message.bytes);
  auto base = reserve(bytes);
  TUTTI_TRY(base.status());
  MessageCall here = call;
  in_.clear();
  out_.clear();
  std::byte* next = *base;
  for (Message& message : here.messages) {
    if (message.sending) {
      add(in_, next, message.buffer, message.bytes);
    } else {
      add(out_, message.buffer, next, message.bytes);
    }
    message.buffer = next;
    next += aligned(message.bytes);
  }
  return here;
}

}  // namespace tutti
