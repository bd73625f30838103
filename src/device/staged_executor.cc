#include "device/staged_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "engine/wait.h"

namespace tutti {
namespace {

// How often an operation waiting for its stream checks for errors.
constexpr uint64_t kLookMs = 20;
// How long streams may take to pass their operations when a failed communicator is closed.
constexpr uint64_t kPassingPatienceMs = 10'000;

bool is_last_piece(const Call& call) {
  return call.shape.piece == 0 || call.is_last_piece();
}
bool is_last_piece(const MessageCall& /*call*/) {
  return true;
}

}  // namespace

Call with_scale(Call call) {
  if (call.scale == nullptr) return call;
  std::memcpy(&call.shape.scale_bits, call.scale, type_bytes(call.shape.type));
  call.scale = nullptr;
  return call;
}

Result<Call> StagedExecutor::take_in(Call call) {
  if (call.shape.purpose != CallPurpose::kUsers) return call;
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  if (const Status copied = staging_->copy_in(); !copied) {
    peers_.raise(copied);
    return copied;
  }
  return with_scale(std::move(*here));
}

Status StagedExecutor::begin(BoundCall& bound, const Call& call) {
  TUTTI_TRY(host_->begin(bound, call));
  copies_out_ = call.shape.purpose == CallPurpose::kUsers;
  return Status::ok();
}

Status StagedExecutor::begin(const MessageCall& call) {
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  if (const Status copied = staging_->copy_in(); !copied) {
    peers_.raise(copied);
    return copied;
  }
  messages_ = std::move(*here);
  TUTTI_TRY(host_->begin(messages_));
  copies_out_ = true;
  return Status::ok();
}

Status StagedExecutor::finish(Progress progress) {
  TUTTI_TRY(host_->finish(progress));
  if (!std::exchange(copies_out_, false)) return Status::ok();
  TUTTI_TRY(show_card_writes(std::exchange(messages_, {})));
  const Status copied = staging_->copy_out();
  if (!copied) peers_.raise(copied);
  return copied;
}

Status StagedExecutor::run(BoundCall& bound, const Call& call) {
  TUTTI_TRY(begin(bound, call));
  return drive(*this);
}

Status StagedExecutor::run(const MessageCall& call) {
  TUTTI_TRY(begin(call));
  return drive(*this);
}

std::string StagedExecutor::explain(const BoundCall& bound) const {
  const std::string no_cards = why_no_cards_.empty() ? "" : ", no GPUDirect (" + why_no_cards_ + ")";
  return ", through host memory (" + staging_->why() + ")" + no_cards + host_->explain(bound);
}

std::string StagedExecutor::explain_messages() const {
  const std::string& refusal = staging_->card_buffers()->refusal();
  return "messages between GPUs and network cards" +
         (refusal.empty() ? "" : "; a buffer passes through host memory (" + refusal + ")");
}

Status StagedExecutor::try_cards(CardBuffers::Network network) {
  TUTTI_TRY(device().open_card_access());
  auto buffers = std::make_unique<CardBuffers>(device(), std::move(network), peers_.rank());
  TUTTI_TRY(buffers->probe());
  tried_cards_ = std::move(buffers);
  return Status::ok();
}

void StagedExecutor::use_cards(SliceLimits slices, std::function<bool(uint32_t peer)> is_remote) {
  staging_->use_cards(std::move(tried_cards_),
                      {.copier = this, .slices = slices, .is_remote = std::move(is_remote)});
}

void StagedExecutor::refuse_cards(std::string why) {
  tried_cards_.reset();
  why_no_cards_ = std::move(why);
}

Status StagedExecutor::show_card_writes(const MessageCall& call) {
  const bool has_writes = std::ranges::any_of(
      call.messages, [](const Message& one) { return one.device != nullptr && !one.sending; });
  if (!has_writes) return Status::ok();
  const Status shown = device().show_card_writes();
  if (!shown) peers_.raise(shown);
  return shown;
}

bool StagedExecutor::copy(void* to, const void* from, uint64_t bytes) {
  const auto is_in_vain = [this] { return peers_.has_error(); };
  const Status copied = device().copy_beside({.to = to, .from = from, .bytes = bytes}, is_in_vain);
  if (!copied && !is_in_vain()) peers_.raise(copied);
  return copied.is_ok();
}

template <class Anything>
Result<StagedCall<Anything>> StagedExecutor::queue(const Anything& call, DeviceStream stream) {
  if (peers_.has_error()) return peers_.error();
  if (!stream.internal) TUTTI_TRY(staging_->check_stream(stream));
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  const auto number = staging_->queue(stream, !is_last_piece(call));
  if (!number) {
    peers_.raise(number.status());
    return number.status();
  }
  return StagedCall<Anything>{std::move(*here), *number};
}

template <class Anything>
Status StagedExecutor::record(const Anything& call, DeviceStream stream,
                              std::function<void(const StagedCall<Anything>&)> replay) {
  if (peers_.has_error()) return peers_.error();
  TUTTI_TRY(staging_->check_stream(stream));
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  const auto replay_here = [staged = std::move(*here), run = std::move(replay)](void* name) {
    run({.call = staged, .captured = name});
  };
  return staging_->capture(stream, !is_last_piece(call), replay_here);
}

Status StagedExecutor::capture(const Call& call, DeviceStream stream,
                               std::function<void(const StagedCall<Call>&)> replay) {
  return record(call, stream, std::move(replay));
}

Status StagedExecutor::capture(const MessageCall& call, DeviceStream stream,
                               std::function<void(const StagedCall<MessageCall>&)> replay) {
  return record(call, stream, std::move(replay));
}

template <class Anything>
Result<std::vector<StagedCall<Anything>>> StagedExecutor::stage(std::span<const Anything> calls,
                                                                DeviceStream stream) {
  std::vector<StagedCall<Anything>> staged;
  const Status status = contained([&]() -> Status {
    staged.reserve(calls.size());
    for (const Anything& call : calls) {
      auto queued = queue(call, stream);
      TUTTI_TRY(queued.status());
      staged.push_back(std::move(*queued));
    }
    return Status::ok();
  });
  if (status) return staged;
  if (!staged.empty()) {
    peers_.raise(status);
    release(staged.back());
  }
  return status;
}

template Result<std::vector<StagedCall<Call>>> StagedExecutor::stage(std::span<const Call>, DeviceStream);
template Result<std::vector<StagedCall<MessageCall>>> StagedExecutor::stage(std::span<const MessageCall>,
                                                                            DeviceStream);

Status StagedExecutor::wait_for_stream(uint32_t number) {
  while (!staging_->device().wait_until_reached(number, kLookMs)) {
    if (peers_.has_error()) return peers_.error();
    // A failed device runs no more host functions.
    const Status device = staging_->device().is_done().status();
    if (device.is_ok()) continue;
    peers_.raise(device);
    return device;
  }
  return Status::ok();
}

Status StagedExecutor::order_streams(std::span<void* const> earlier, std::span<void* const> later) {
  for (const std::span<void* const> streams : {earlier, later}) {
    for (void* const stream : streams)
      TUTTI_TRY(staging_->check_stream({.internal = false, .handle = stream}));
  }
  const Status ordered = staging_->device().order_streams(earlier, later);
  // Else the other ranks' calls would wait for this rank's.
  if (ordered.code() == Code::kSystemError) peers_.raise(ordered);
  return ordered;
}

/// Keeps the staging memory for ever if a stream, busy with the user's work, has not passed its operations.
void StagedExecutor::close() {
  host_->close();
  const uint64_t deadline_ns = deadline_after_ms(kPassingPatienceMs);
  for (Waiter waiter(WaitMode::kYield); now_ns() < deadline_ns; waiter.pause()) {
    const auto done = staging_->device().is_done();
    if (!done || *done) return;
  }
  static_cast<void>(staging_.release());
}

}  // namespace tutti
