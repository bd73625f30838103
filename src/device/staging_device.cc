// A rank's staging on a CUDA device, over the driver's interface (cuda/driver.h).
//
// The call puts the whole operation into the user's stream: copies to the host, a host function that reports
// them, a wait for the word `released_`, copies to the device. As no stream gets more work later, a waiting
// stream cannot block what it waits for, however streams share queues (docs/decisions/0011-staging.md).
#include "device/staging_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "cuda/memory.h"
#include "device/card_export.h"
#include "device/device_arguments.h"
#include "engine/wait.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::CurrentContext;

constexpr uint32_t kCapturedWords = 1024;
// A copy that takes longer stands behind a stream that waits for it.
constexpr uint64_t kCopyPatienceMs = 10'000;
constexpr size_t kBounceBytes = 1 << 16;

/// Whether the counter has reached `number`; both may have wrapped around.
bool has_come_to(uint32_t counter, uint32_t number) {
  return static_cast<int32_t>(counter - number) >= 0;
}

class CudaStagingDevice final : public StagingDevice {
 public:
  CudaStagingDevice(const cuda::Context& context, uint32_t rank) : context_(context), rank_(rank) {}

  ~CudaStagingDevice() override {
    for (cuda::LentMemory& memory : lent_) context_.spare_memory().give_back(std::move(memory));
  }
  Status open();
  Status lend(StagingMemory memory) override;
  StagingMemory find_lent(uint64_t bytes) override;
  Result<bool> is_captured(DeviceStream stream) const override;
  Status check_pointer(std::string_view name, const void* address) const override {
    return check_device_pointer(context_, rank_, name, address);
  }
  Result<uint32_t> queue(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                         DeviceStream stream, bool goes_on) override;
  Status capture(std::span<const StagingCopy> in, std::span<const StagingCopy> out, DeviceStream stream,
                 bool goes_on, std::function<void(void*)> replay) override;
  Status synchronize() override {
    const BesideCaptures beside(driver());
    return stream_.synchronize();
  }
  Status copy(std::span<const StagingCopy> copies) override;
  Status open_card_access() override;
  Status export_to_cards(const void* address,
                         const std::function<Status(const DeviceSpan&)>& use) const override {
    const auto made = tutti::export_to_cards(context_, address);
    TUTTI_TRY(made.status());
    return use(made->span);
  }
  Status export_sample(const std::function<Status(const DeviceSpan&)>& use) const override {
    constexpr size_t kSampleBytes = size_t{2} << 20;
    const BesideCaptures beside(driver());
    const auto sample = cuda::DeviceMemory::allocate(context_, kSampleBytes);
    TUTTI_TRY(sample.status());
    return export_to_cards(sample->as<void>(), use);
  }
  uint64_t allocation_number(const void* address) const override {
    return tutti::allocation_number(context_, address);
  }
  Status show_card_writes() const override { return tutti::show_card_writes(context_); }
  Status copy_beside(const StagingCopy& copy, const std::function<bool()>& is_in_vain) override;
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later) override {
    const BesideCaptures beside(driver());
    return tutti::order_streams(context_, rank_, streams_event_, earlier, later);
  }
  bool wait_until_reached(uint32_t number, uint64_t patience_ms) override;
  void release(uint32_t number) override;
  void release_captured(void* captured) override { store_word(static_cast<Captured*>(captured)->word, 1); }
  Result<bool> is_done() const override;

 private:
  /// The end of an operation: the wait for its release, then the copies to the device.
  struct End {
    uint32_t* word = nullptr;
    uint32_t value = 0;
    std::vector<StagingCopy> out;
  };
  /// The part between the copies to the host and the end.
  struct HostFunction {
    CUhostFn function = nullptr;
    void* argument = nullptr;
  };
  struct Captured {
    uint32_t* word = nullptr;  ///< 1: the graph may go on
    std::function<void(void*)> replay;
  };

  static void CUDA_CB note_reached(void* self);
  static void CUDA_CB begin_replay(void* captured);
  static void store_word(uint32_t* word, uint32_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  Result<Captured*> add_captured(std::function<void(void*)> replay);
  Status wait_for_queued(CUstream stream) const;
  Status queue_parts(std::span<const StagingCopy> in, HostFunction function, End end, CUstream stream,
                     bool goes_on);
  Status queue_end(const End& end, CUstream stream) const;
  Status queue_copies(std::span<const StagingCopy> copies, CUstream stream) const;
  Status copy_once(const StagingCopy& copy, const std::function<bool()>& is_in_vain) const;
  const cuda::Driver& driver() const { return context_.driver(); }

  const cuda::Context& context_;
  const uint32_t rank_;
  cuda::Stream stream_;         ///< for calls without a stream
  cuda::Stream beside_stream_;  ///< for copies during an operation
  cuda::PinnedMemory bounce_;   ///< of these copies: from and to other host memory they would be synchronous
  cuda::PinnedMemory words_;
  uint32_t* released_ = nullptr;  ///< the last operation that streams may pass
  std::vector<cuda::LentMemory> lent_;
  uint32_t queued_ = 0;
  std::optional<End> held_;    ///< of the last piece, until the next one's input is queued
  cuda::Event queued_event_;   ///< behind the last operation
  cuda::Event streams_event_;  ///< orders the user's streams
  std::atomic<bool> has_queued_{false};
  std::vector<cuda::PinnedMemory> captured_words_;  ///< kCapturedWords each
  std::deque<Captured> captured_;                   ///< graphs hold pointers into it
  cuda::Event captured_event_;                      ///< behind the last operation of the last capture
  std::optional<uint64_t> last_capture_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t reached_ = 0;  ///< operations whose notice has come; guarded by mutex_
};

Status CudaStagingDevice::open() {
  const BesideCaptures beside(driver());
  auto stream = cuda::Stream::create(context_);
  TUTTI_TRY(stream.status());
  stream_ = std::move(*stream);
  auto event = cuda::Event::create(context_);
  TUTTI_TRY(event.status());
  queued_event_ = std::move(*event);
  auto between = cuda::Event::create(context_);
  TUTTI_TRY(between.status());
  streams_event_ = std::move(*between);
  auto captured = cuda::Event::create(context_);
  TUTTI_TRY(captured.status());
  captured_event_ = std::move(*captured);
  auto words = cuda::PinnedMemory::allocate(context_, sizeof(uint32_t));
  TUTTI_TRY(words.status());
  words_ = std::move(*words);
  released_ = words_.as<uint32_t>();
  return Status::ok();
}

Status CudaStagingDevice::lend(StagingMemory memory) {
  const BesideCaptures beside(driver());
  lent_.reserve(lent_.size() + 1);
  const cuda::LentMemory lent{
      .address = memory.base, .bytes = memory.bytes, .owner = std::move(memory.owner)};
  TUTTI_TRY(context_.spare_memory().lend(lent));
  lent_.push_back(lent);
  return Status::ok();
}

StagingMemory CudaStagingDevice::find_lent(uint64_t bytes) {
  lent_.reserve(lent_.size() + 1);
  const auto found = context_.spare_memory().find_lent(bytes);
  if (!found) return {};
  lent_.push_back(*found);
  return {.base = found->address, .bytes = found->bytes, .owner = found->owner};
}

Result<bool> CudaStagingDevice::is_captured(DeviceStream stream) const {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  auto handle = check_stream(context_, rank_, stream.handle);
  TUTTI_TRY(handle.status());
  const auto capture = find_capture(driver(), *handle);
  TUTTI_TRY(capture.status());
  return capture->has_value();
}

Status CudaStagingDevice::wait_for_queued(CUstream stream) const {
  return has_queued_.load(std::memory_order_relaxed) ? queued_event_.make_wait(stream) : Status::ok();
}

Status CudaStagingDevice::queue_copies(std::span<const StagingCopy> copies, CUstream stream) const {
  for (const StagingCopy& copy : copies) {
    TUTTI_TRY(
        driver().check(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(copy.to),
                                             reinterpret_cast<CUdeviceptr>(copy.from), copy.bytes, stream),
                       format("cuMemcpyAsync(%llu bytes between device %d and the host)",
                              static_cast<unsigned long long>(copy.bytes), context_.device())));
  }
  return Status::ok();
}

Status CudaStagingDevice::queue_end(const End& end, CUstream stream) const {
  const auto word = reinterpret_cast<CUdeviceptr>(end.word);
  TUTTI_TRY(driver().check(driver().stream_wait_value32(stream, word, end.value, CU_STREAM_WAIT_VALUE_GEQ),
                           "cuStreamWaitValue32"));
  return queue_copies(end.out, stream);
}

/// The input of a piece comes before the wait for the piece before it: so copies overlap with operations on
/// one stream, and what a stream waits for never stands behind the wait.
Status CudaStagingDevice::queue_parts(std::span<const StagingCopy> in, HostFunction function, End end,
                                      CUstream stream, bool goes_on) {
  TUTTI_TRY(queue_copies(in, stream));
  TUTTI_TRY(driver().check(driver().launch_host_func(stream, function.function, function.argument),
                           "cuLaunchHostFunc"));
  if (const auto before = std::exchange(held_, std::nullopt)) TUTTI_TRY(queue_end(*before, stream));
  if (!goes_on) return queue_end(end, stream);
  held_ = std::move(end);
  return Status::ok();
}

Result<uint32_t> CudaStagingDevice::queue(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                                          DeviceStream stream, bool goes_on) {
  const BesideCaptures beside(driver());
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const auto handle = stream.internal ? stream_.handle() : static_cast<CUstream>(stream.handle);
  const uint32_t number = ++queued_;
  const Status queued = contained([&] {
    if (!held_) TUTTI_TRY(wait_for_queued(handle));
    return queue_parts(in, {&note_reached, this},
                       {.word = released_, .value = number, .out = {out.begin(), out.end()}}, handle,
                       goes_on);
  });
  // Also after a partial failure, for `is_done`.
  const Status marked = contained([&] { return queued_event_.record(handle); });
  has_queued_.store(true, std::memory_order_release);
  if (queued && marked) return queued_;
  release(queued_);
  return queued ? marked : queued;
}

Result<CudaStagingDevice::Captured*> CudaStagingDevice::add_captured(std::function<void(void*)> replay) {
  const size_t number = captured_.size();
  if (number % kCapturedWords == 0) {
    auto words = cuda::PinnedMemory::allocate(context_, kCapturedWords * sizeof(uint32_t));
    TUTTI_TRY(words.status());
    captured_words_.push_back(std::move(*words));
  }
  captured_.push_back(
      {.word = captured_words_.back().as<uint32_t>() + number % kCapturedWords, .replay = std::move(replay)});
  return &captured_.back();
}

Status CudaStagingDevice::capture(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                                  DeviceStream stream, bool goes_on, std::function<void(void*)> replay) {
  const BesideCaptures beside(driver());
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const auto handle = static_cast<CUstream>(stream.handle);
  const Status recorded = contained([&]() -> Status {
    const auto id = find_capture(driver(), handle);
    TUTTI_TRY(id.status());
    const auto captured = add_captured(std::move(replay));
    TUTTI_TRY(captured.status());
    if (last_capture_ == *id) TUTTI_TRY(captured_event_.make_wait(handle));
    TUTTI_TRY(queue_parts(in, {&begin_replay, *captured},
                          {.word = (*captured)->word, .value = 1, .out = {out.begin(), out.end()}}, handle,
                          goes_on));
    TUTTI_TRY(captured_event_.record(handle));
    last_capture_ = *id;
    return Status::ok();
  });
  if (!recorded) held_.reset();
  return recorded;
}

/// As note_reached. What waits for the word comes later in the graph.
void CUDA_CB CudaStagingDevice::begin_replay(void* captured) {
  const auto* const begun = static_cast<const Captured*>(captured);
  store_word(begun->word, 0);
  begun->replay(captured);
}

/// Never lowers the word: a failed operation may be released after later ones.
void CudaStagingDevice::release(uint32_t number) {
  const std::atomic_ref released(*released_);
  uint32_t now = released.load(std::memory_order_relaxed);
  while (!has_come_to(now, number) &&
         !released.compare_exchange_weak(now, number, std::memory_order_release)) {
  }
}

Status CudaStagingDevice::copy(std::span<const StagingCopy> copies) {
  if (copies.empty()) return Status::ok();
  const BesideCaptures beside(driver());
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  TUTTI_TRY(wait_for_queued(stream_.handle()));
  TUTTI_TRY(queue_copies(copies, stream_.handle()));
  return stream_.synchronize();
}

Status CudaStagingDevice::open_card_access() {
  TUTTI_TRY(check_card_access(context_));
  const BesideCaptures beside(driver());
  auto stream = cuda::Stream::create(context_);
  TUTTI_TRY(stream.status());
  beside_stream_ = std::move(*stream);
  auto bounce = cuda::PinnedMemory::allocate(context_, kBounceBytes);
  TUTTI_TRY(bounce.status());
  bounce_ = std::move(*bounce);
  return Status::ok();
}

Status CudaStagingDevice::copy_beside(const StagingCopy& copy, const std::function<bool()>& is_in_vain) {
  const BesideCaptures beside(driver());
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const bool to_host = tutti::allocation_number(context_, copy.from) != 0;
  auto* const bounce = bounce_.as<std::byte>();
  for (uint64_t done = 0; done < copy.bytes; done += kBounceBytes) {
    const uint64_t bytes = std::min<uint64_t>(copy.bytes - done, kBounceBytes);
    auto* const to = static_cast<std::byte*>(copy.to) + done;
    const auto* const from = static_cast<const std::byte*>(copy.from) + done;
    if (!to_host) std::memcpy(bounce, from, bytes);
    const StagingCopy part = to_host ? StagingCopy{bounce, from, bytes} : StagingCopy{to, bounce, bytes};
    TUTTI_TRY(copy_once(part, is_in_vain));
    if (to_host) std::memcpy(to, bounce, bytes);
  }
  return Status::ok();
}

/// The user's stream waits for the operation that needs this copy. Where both streams share a queue of the
/// device, the copy stands behind that wait: then the operation fails, and the stream goes on.
Status CudaStagingDevice::copy_once(const StagingCopy& copy, const std::function<bool()>& is_in_vain) const {
  const CUstream stream = beside_stream_.handle();
  TUTTI_TRY(queue_copies(std::span(&copy, 1), stream));
  const uint64_t deadline_ns = deadline_after_ms(kCopyPatienceMs);
  CUresult state = driver().stream_query(stream);
  for (Waiter waiter(WaitMode::kYield); state == CUDA_ERROR_NOT_READY; waiter.pause()) {
    state = driver().stream_query(stream);
    if (state != CUDA_ERROR_NOT_READY) break;
    if (is_in_vain()) return {Code::kAborted, "the communicator is in error"};
    if (now_ns() < deadline_ns) continue;
    return {
        Code::kTimeout,
        format(
            "rank %u: a copy of %llu bytes between device %d and the host, in place of a network card, has "
            "not begun for %llu s: the device has fewer queues than streams. Set "
            "CUDA_DEVICE_MAX_CONNECTIONS=32, or TUTTI_GPU_DIRECT=0",
            rank_, static_cast<unsigned long long>(copy.bytes), context_.device(),
            static_cast<unsigned long long>(kCopyPatienceMs / 1000))};
  }
  return driver().check(state, "cuStreamQuery");
}

/// Runs on a thread of the driver, which may neither call the driver nor wait.
void CUDA_CB CudaStagingDevice::note_reached(void* self) {
  auto* const device = static_cast<CudaStagingDevice*>(self);
  const std::scoped_lock lock(device->mutex_);
  ++device->reached_;
  device->changed_.notify_all();
}

bool CudaStagingDevice::wait_until_reached(uint32_t number, uint64_t patience_ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(patience_ms),
                           [&] { return has_come_to(reached_, number); });
}

Result<bool> CudaStagingDevice::is_done() const {
  if (!has_queued_.load(std::memory_order_acquire)) return true;
  const BesideCaptures beside(driver());
  return queued_event_.is_done();
}

}  // namespace

Result<std::unique_ptr<StagingDevice>> open_staging_device(const cuda::Context& context, uint32_t rank) {
  auto made = std::make_unique<CudaStagingDevice>(context, rank);
  TUTTI_TRY(made->open());
  return std::unique_ptr<StagingDevice>(std::move(made));
}

}  // namespace tutti
