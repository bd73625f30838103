// A device that runs nothing: it notes what it is asked, and answers as a test says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device_rank.h"
#include "device/staging_device.h"

namespace tutti::test {

/// What happened on a device. Tests hold it, for the device may be gone before they look.
struct DeviceNotes {
  int bound = 0;
  int bound_short = 0;
  int bound_messages = 0;
  int retired = 0;
  int copied = 0;
  int kept_for_good = 0;
  std::vector<DeviceOperation> launched = {};
  std::atomic<int> relaunched{0};
  std::atomic<int> given_up{0};
  std::atomic<int> aborted{0};
  std::map<uint32_t, const void*> registered = {};  ///< by number
  bool is_destroyed = false;
};

/// Of a rank with work that has not ended.
inline DeviceSnapshot running() {
  DeviceSnapshot snapshot;
  snapshot.is_running = true;
  return snapshot;
}

class FakeRank final : public DeviceRank {
 public:
  explicit FakeRank(DeviceNotes& notes) : notes_(notes) {}
  ~FakeRank() override { notes_.is_destroyed = true; }

  // What a test sets:
  Status outcome;                 ///< of is_done, while not ok
  int polls_until_done = 0;       ///< further calls of is_done that answer no
  bool is_launched = false;       ///< was_launched
  std::atomic<bool> stops{true};  ///< has_stopped
  Status registration;            ///< of offer_registration
  Status mapping;                 ///< of open_registration
  Status ordering;                ///< of order_streams
  void show(DeviceSnapshot snapshot) {
    const std::scoped_lock lock(mutex_);
    snapshot_ = std::move(snapshot);
  }

  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceShape& shape() const override { return shape_; }
  int file() const override { return -1; }
  Status connect(std::span<const DevicePeer> /*ranks*/) override { return Status::ok(); }
  int multicast_file() const override { return -1; }
  Status add_to_multicast(const FileDescriptor* /*file*/) override { return Status::ok(); }
  Status bind_multicast() override { return Status::ok(); }
  void drop_multicast() override {}

  Result<DeviceProgramHold> bind(const Plan& /*plan*/, std::span<const Geometry> stripes,
                                 uint32_t /*channels*/, const BindOptions& /*options*/,
                                 DeviceMark mark) override {
    ++notes_.bound;
    return program(std::move(mark), static_cast<uint32_t>(stripes.size()));
  }
  Result<DeviceProgramHold> bind_short(const Plan& /*plan*/, std::span<const Geometry> stripes,
                                       const BindOptions& /*options*/, DeviceMark mark) override {
    ++notes_.bound_short;
    auto made = program(std::move(mark), static_cast<uint32_t>(stripes.size()));
    made->by_packets = true;
    return made;
  }
  Result<DeviceProgramHold> bind_messages(const BindOptions& /*options*/, DeviceMark mark) override {
    ++notes_.bound_messages;
    return program(std::move(mark), 1);
  }
  void retire(DeviceProgram* program) override {
    ++notes_.retired;
    std::erase_if(programs_, [program](const auto& each) { return each.get() == program; });
  }

  Status copy(void* to, const void* from, uint64_t bytes, DeviceStream /*stream*/) override {
    ++notes_.copied;
    std::memcpy(to, from, bytes);
    return Status::ok();
  }
  Status order_streams(std::span<void* const> /*earlier*/, std::span<void* const> /*later*/) override {
    return ordering;
  }
  Result<bool> is_done() override {
    if (!outcome) return outcome;
    return polls_until_done-- <= 0;
  }
  DeviceBuffers barrier_buffers() const override { return {.input = &scratch_, .output = nullptr}; }
  bool has_peer(const DeviceRank& other) const override { return &other == this; }
  bool was_launched() const override { return is_launched; }
  bool has_begun() const override { return is_launched; }
  Result<std::byte*> shared_scratch(uint64_t bytes) override {
    scratch_.resize(bytes);
    return scratch_.data();
  }
  Status check_pointer(std::string_view /*name*/, const void* /*address*/) const override {
    return Status::ok();
  }

  uint32_t registration_end() const override { return 4; }
  Result<OwnRegistration> offer_registration(const void* address, uint64_t /*bytes*/) const override {
    if (!registration) return registration;
    for (const auto& [number, there] : notes_.registered) {
      if (there == address)
        return Status(Code::kUnsupported, "the memory overlaps memory that is registered");
    }
    OwnRegistration own;
    std::memcpy(own.offer.handle.data(), &address, sizeof(address));
    return own;
  }
  Status open_registration(uint32_t number, std::span<const RegistrationOffer> offers,
                           std::span<const FileDescriptor> /*files*/) override {
    if (!mapping) return mapping;
    std::memcpy(&notes_.registered[number], offers[0].handle.data(), sizeof(void*));
    return Status::ok();
  }
  void close_registration(uint32_t number) override { notes_.registered.erase(number); }

  DeviceSnapshot look() override {
    const std::scoped_lock lock(mutex_);
    return snapshot_;
  }
  Status relaunch() override {
    ++notes_.relaunched;
    return Status::ok();
  }
  void give_up() override { ++notes_.given_up; }
  void abort() override { ++notes_.aborted; }
  bool has_stopped() override { return stops; }

 private:
  DeviceProgramHold program(DeviceMark mark, uint32_t lanes) {
    const auto& made = programs_.emplace_back(std::make_unique<DeviceProgram>());
    made->mark = std::move(mark);
    made->lanes = lanes;
    return {made.get(), DeviceRetire{this}};
  }

  DeviceNotes& notes_;
  std::vector<std::unique_ptr<DeviceProgram>> programs_;  ///< also those that a bound call keeps for good
  DeviceIdentity identity_;
  DeviceShape shape_;
  std::vector<std::byte> scratch_;
  std::mutex mutex_;
  DeviceSnapshot snapshot_;  ///< guarded by mutex_
};

class FakeDevices final : public Devices {
 public:
  explicit FakeDevices(DeviceNotes& notes) : notes_(notes) {}

  Status launching;  ///< of launch

  Result<std::unique_ptr<DeviceRank>> open_rank(int /*device*/, uint32_t /*rank*/,
                                                uint32_t /*rank_count*/) override {
    return Status(Code::kUnsupported, "a test makes its ranks");
  }
  Result<std::unique_ptr<StagingDevice>> open_staging(int /*device*/, uint32_t /*rank*/) override {
    return Status(Code::kUnsupported, "a test makes its ranks");
  }
  Status launch(std::span<const DeviceOperation> operations) override {
    TUTTI_TRY(launching);
    notes_.launched.insert(notes_.launched.end(), operations.begin(), operations.end());
    return Status::ok();
  }
  Result<void*> allocate(int /*device*/, uint64_t /*bytes*/) override {
    return Status(Code::kOutOfMemory, "there is none");
  }
  bool free(void* /*memory*/) override { return false; }
  Status check_host_pointer(std::string_view /*name*/, const void* /*address*/) const override {
    return Status::ok();
  }
  void keep_for_good(std::unique_ptr<DeviceRank> rank) override {
    ++notes_.kept_for_good;
    kept_.push_back(std::move(rank));
  }
  bool is_device_memory(const void* /*address*/) const override { return false; }

 private:
  DeviceNotes& notes_;
  std::vector<std::unique_ptr<DeviceRank>> kept_;
};

/// Its device memory is memory of the host, and its streams come to everything at once.
class FakeStagingDevice final : public StagingDevice {
 public:
  struct Notes {
    int copies = 0;
    int lent = 0;
    std::vector<bool> queued = {};  ///< for each operation: whether another piece of the call follows
    std::vector<uint32_t> released = {};
    int released_captured = 0;
    bool is_destroyed = false;
  };
  explicit FakeStagingDevice(Notes& notes) : notes_(notes) {}
  ~FakeStagingDevice() override { notes_.is_destroyed = true; }

  // What a test sets:
  int copies_until_failure = INT32_MAX;
  int queued_until_failure = INT32_MAX;
  StagingMemory spare;  ///< of find_lent, once
  Status queueing;
  Status ordering;
  Status health;                                        ///< of is_done
  std::function<bool()> reaches = [] { return true; };  ///< asked by wait_until_reached

  /// As a launch of a graph of all captured operations.
  void launch() {
    for (std::function<void(void*)>& replay : replays_) replay(&replay);
  }

  Status lend(StagingMemory memory) override {
    ++notes_.lent;
    lent_.push_back(std::move(memory));
    return Status::ok();
  }
  StagingMemory find_lent(uint64_t bytes) override {
    return bytes <= spare.bytes ? std::exchange(spare, {}) : StagingMemory{};
  }
  Result<bool> is_captured(DeviceStream /*stream*/) const override { return false; }
  Status check_pointer(std::string_view /*name*/, const void* /*address*/) const override {
    return Status::ok();
  }
  Result<uint32_t> queue(std::span<const StagingCopy> /*in*/, std::span<const StagingCopy> /*out*/,
                         DeviceStream /*stream*/, bool goes_on) override {
    if (!queueing) return queueing;
    if (queued_until_failure-- <= 0) return Status(Code::kSystemError, "the device has failed");
    notes_.queued.push_back(goes_on);
    return ++queued_;
  }
  Status capture(std::span<const StagingCopy> /*in*/, std::span<const StagingCopy> /*out*/,
                 DeviceStream /*stream*/, bool /*goes_on*/, std::function<void(void*)> replay) override {
    replays_.push_back(std::move(replay));
    return Status::ok();
  }
  Status synchronize() override { return Status::ok(); }
  Status copy(std::span<const StagingCopy> copies) override {
    if (copies_until_failure-- <= 0) return {Code::kSystemError, "the device has failed"};
    ++notes_.copies;
    for (const StagingCopy& one : copies) std::memcpy(one.to, one.from, one.bytes);
    return Status::ok();
  }
  Status open_card_access() override { return {Code::kUnsupported, "it is memory of the host"}; }
  Status export_to_cards(const void* /*address*/,
                         const std::function<Status(const DeviceSpan&)>& use) const override {
    return export_sample(use);
  }
  Status export_sample(const std::function<Status(const DeviceSpan&)>& /*use*/) const override {
    return {Code::kUnsupported, "it is memory of the host"};
  }
  uint64_t allocation_number(const void* /*address*/) const override { return 0; }
  Status show_card_writes() const override { return Status::ok(); }
  Status copy_beside(const StagingCopy& one, const std::function<bool()>& /*is_in_vain*/) override {
    return copy(std::span(&one, 1));
  }
  Status order_streams(std::span<void* const> /*earlier*/, std::span<void* const> /*later*/) override {
    return ordering;
  }
  bool wait_until_reached(uint32_t /*number*/, uint64_t /*patience_ms*/) override { return reaches(); }
  void release(uint32_t number) override { notes_.released.push_back(number); }
  void release_captured(void* /*name*/) override { ++notes_.released_captured; }
  Result<bool> is_done() const override { return health ? Result<bool>(true) : Result<bool>(health); }

 private:
  Notes& notes_;
  std::vector<StagingMemory> lent_;
  std::vector<std::function<void(void*)>> replays_;
  uint32_t queued_ = 0;
};

}  // namespace tutti::test
