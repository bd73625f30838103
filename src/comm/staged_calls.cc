// Calls of a rank on a device in a communicator whose ranks do not all reach each other's device memory: run
// on the host's engine like everybody's, on memory that they are copied to and from (staging.h).
#include <cstring>
#include <utility>

#include "comm/communicator.h"
#include "core/clock.h"

namespace tutti {
namespace {

// How often an operation that waits for its stream looks whether it is still wanted.
constexpr uint64_t kLookMs = 20;
// How long streams may take, when a communicator in error is closed, to pass the operations that they hold.
constexpr uint64_t kPassingPatienceMs = 10'000;

/// With the scalar of a pre-multiplied sum, now that it has come from the device.
Call with_scale(Call call) {
  if (call.scale == nullptr) return call;
  std::memcpy(&call.shape.scale_bits, call.scale, type_bytes(call.shape.type));
  call.scale = nullptr;
  return call;
}
MessageCall with_scale(MessageCall call) {
  return call;
}

}  // namespace

/// In place of the DeviceRank. `why`: all ranks know it; `sharers`: ranks of this process on the device.
Status Communicator::open_staging(const std::string& why, uint32_t sharers) {
  if (device_ == nullptr) return Status::ok();
  // Before the set-up ends: to give memory back waits for the device, on which an operation of another rank
  // of this process, which waits for this one, may be under way from then on.
  device_.reset();
  auto devices = process_.devices();
  TUTTI_TRY(devices.status());
  auto device = (*devices)->open_staging(options_.device, rank_);
  TUTTI_TRY(device.status());
  staging_ = std::make_unique<Staging>(std::move(*device), process_.heap(),
                                       Staging::Options{.rank = rank_,
                                                        .rank_count = rank_count_,
                                                        .why = why,
                                                        .sharers = sharers,
                                                        .queues = process_.config().device_queues});
  return Status::ok();
}

template <class Anything>
Status Communicator::begin_staged(const Anything& call) {
  if (has_error()) return error();
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  if (const Status copied = staging_->copy_in(); !copied) {
    raise(copied);
    return copied;
  }
  TUTTI_TRY(begin_on_host(with_scale(std::move(*here))));
  copies_out_ = true;
  return Status::ok();
}
template Status Communicator::begin_staged(const Call& call);
template Status Communicator::begin_staged(const MessageCall& call);

Status Communicator::finish_staged() {
  copies_out_ = false;
  const Status copied = staging_->copy_out();
  if (!copied) raise(copied);
  return copied;
}

template <class Anything>
Result<StagedCall<Anything>> Communicator::queue_staged(const Anything& call, DeviceStream stream) {
  if (has_error()) return error();
  TUTTI_TRY(staging_->check_stream(stream));
  auto here = staging_->stage(call);
  TUTTI_TRY(here.status());
  const auto number = staging_->queue(stream);
  if (!number) {
    raise(number.status());
    return number.status();
  }
  return StagedCall<Anything>{std::move(*here), *number};
}

Result<StagedCall<Call>> Communicator::stage(const Call& call, DeviceStream stream) {
  return queue_staged(call, stream);
}

Result<StagedCall<MessageCall>> Communicator::stage(const MessageCall& call, DeviceStream stream) {
  return queue_staged(call, stream);
}

/// Until the stream has come to the operation of that number.
Status Communicator::wait_for_stream(uint32_t number) {
  while (!staging_->device().wait_until_reached(number, kLookMs)) {
    if (has_error()) return error();
    // A device that has failed runs no host functions any more.
    const Status device = staging_->device().is_done().status();
    if (device.is_ok()) continue;
    raise(device);
    return device;
  }
  return Status::ok();
}

template <class Anything>
Status Communicator::run_staged(const StagedCall<Anything>& staged) {
  const Status status = run_whole([&]() -> Status {
    TUTTI_TRY(wait_for_stream(staged.number));
    TUTTI_TRY(begin_on_host(with_scale(staged.call)));
    return drive();
  });
  // The stream goes on, whatever has become of the operation.
  staging_->device().release(staged.number);
  return status;
}

Status Communicator::run(const StagedCall<Call>& staged) {
  return run_staged(staged);
}

Status Communicator::run(const StagedCall<MessageCall>& staged) {
  return run_staged(staged);
}

/// Streams that have not passed an operation, because they are busy with something of the user's, still need
/// what it works on: then that is never freed.
void Communicator::close_staging() {
  if (staging_ == nullptr) return;
  const uint64_t deadline_ns = deadline_after_ms(kPassingPatienceMs);
  for (Waiter waiter(WaitMode::kYield); now_ns() < deadline_ns; waiter.pause()) {
    const auto done = staging_->device().is_done();
    if (!done || *done) return;
  }
  static_cast<void>(staging_.release());
}

}  // namespace tutti
