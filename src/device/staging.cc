#include "device/staging.h"

#include <algorithm>
#include <utility>

#include "engine/byte_moves.h"

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

Status Staging::check_stream(DeviceStream stream) const {
  TUTTI_TRY(device_->is_captured(stream).status());
  if (can_queue()) return Status::ok();
  return {
      Code::kUnsupported,
      format("argument stream: calls of this communicator pass through host memory (%s). The device has one "
             "queue (CUDA_DEVICE_MAX_CONNECTIONS is 1) for the %u ranks of this process there, so one rank's "
             "wait would block another rank's copies: set the variable to 8 or more, run "
             "one process per rank, or make the calls with TUTTI_BLOCKING",
             options_.why.c_str(), options_.sharers)};
}

/// From the heap or, if that has no room, from the system.
Result<StagingMemory> Staging::allocate(uint64_t bytes) {
  StagingMemory memory{.base = nullptr, .bytes = bytes};
  if (auto in_heap = heap_.allocate(bytes); in_heap) {
    memory.base = static_cast<std::byte*>(*in_heap);
    memory.owner = {*in_heap, [heap = &heap_](void* address) { static_cast<void>(heap->free(address)); }};
    return memory;
  }
  auto plain = map_plain(bytes);
  TUTTI_TRY(plain.status());
  const auto mapping = std::make_shared<Mapping>(std::move(*plain));
  memory.base = mapping->base();
  memory.owner = mapping;
  return memory;
}

Result<std::byte*> Staging::reserve(uint64_t bytes) {
  if (memory_.bytes >= bytes) return memory_.base;
  const uint64_t whole = (bytes + kLeastPiece - 1) / kLeastPiece * kLeastPiece;
  const uint64_t wanted = std::max(whole, 2 * memory_.bytes);
  const Status lent = contained([&]() -> Status {
    StagingMemory memory = device_->find_lent(wanted);
    if (memory.base == nullptr) {
      auto fresh = allocate(wanted);
      TUTTI_TRY(fresh.status());
      memory = std::move(*fresh);
      TUTTI_TRY(device_->lend(memory));
    }
    memory_ = std::move(memory);
    return Status::ok();
  });
  if (lent) return memory_.base;
  return Status(
      lent.code(),
      format("rank %u needs %llu bytes of pinned host memory, through which this call passes (%s): %s",
             options_.rank, static_cast<unsigned long long>(wanted), options_.why.c_str(),
             std::string(lent.text()).c_str()));
}

Result<Call> Staging::stage(const Call& call) {
  // Pieces of a call have places in memory for the whole call.
  CallShape whole = call.shape;
  whole.piece = 0;
  const BufferUse use = call.blocks == nullptr ? buffer_use(whole, options_.rank, options_.rank_count)
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
    // Once for all pieces: the host may read the scalar while the next piece is copied.
    if (call.first_element == 0) add(in_, next, call.scale, type_bytes(call.shape.type));
    here.scale = next;
    next += kAlign;
  }
  if (call.blocks != nullptr) {
    stage_variable_blocks(here, next);
  } else {
    stage_equal_blocks(here, use.send_bytes, next);
  }
  return here;
}

void Staging::stage_equal_blocks(Call& call, uint64_t whole_send_bytes, std::byte* base) {
  const BufferUse use = buffer_use(call.shape, options_.rank, options_.rank_count);
  const auto* const send = static_cast<const std::byte*>(call.send);
  auto* const recv = static_cast<std::byte*>(call.recv);
  base += call.first_element * type_bytes(call.shape.type);
  std::byte* here_send = base;
  std::byte* here_recv = base + aligned(whole_send_bytes);
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
  MessageCall here = call;
  in_.clear();
  out_.clear();
  if (card_buffers_ != nullptr) {
    queue_self_copies(here);
    give_to_cards(here);
  }
  const auto staged_bytes = [this](const Message& message) {
    return message.device != nullptr ? tail_bytes(message.bytes, card_way_.slices) : message.bytes;
  };
  uint64_t bytes = 0;
  for (const Message& message : here.messages) bytes += aligned(staged_bytes(message));
  auto base = reserve(bytes);
  TUTTI_TRY(base.status());
  std::byte* next = *base;
  for (Message& message : here.messages) {
    const uint64_t staged = staged_bytes(message);
    std::byte* const place = static_cast<std::byte*>(message.buffer) + (message.bytes - staged);
    if (message.sending) {
      add(in_, next, place, staged);
    } else {
      add(out_, place, next, staged);
    }
    if (message.device == nullptr) {
      message.buffer = next;
    } else if (staged > 0) {
      message.tail = next;
    }
    next += aligned(staged);
  }
  return here;
}

/// The device copies the rank's messages to itself.
void Staging::queue_self_copies(MessageCall& call) {
  for (const SelfCopy& copy : take_self_copies(call.messages, options_.rank)) {
    if (copy.to != copy.from) add(in_, copy.to, copy.from, copy.bytes);
  }
}

/// Whether a message goes this way is each rank's own affair.
void Staging::give_to_cards(MessageCall& call) {
  // Received bytes would overwrite what is still to be sent.
  const bool copies_input =
      call.collective && call.shape.in_place && call.shape.collective == Collective::kAllToAll;
  for (Message& message : call.messages) {
    if (copies_input && message.sending) continue;
    if (message.bytes < kLeastDirectBytes || !card_way_.is_remote(message.peer) ||
        slice_bytes_for(message.bytes, card_way_.slices) <= kMostPackedBytes)
      continue;
    CardBuffers::Hold hold = card_buffers_->find(message.buffer);
    if (hold == nullptr) continue;
    call.held.push_back(std::move(hold));
    message.device = card_way_.copier;
  }
}

}  // namespace tutti
