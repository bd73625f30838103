// Regions: device memory that all ranks register together, so that each loads from and stores to the others'
// where it lies.
//
// To register is two exchanges: what each rank needs to reach the others, then whether it does. A region is
// one on all ranks or on none, so which plans suit is known to all. To deregister, each rank ends its own
// use and then waits on the host until the others have ended theirs: closing a mapping may wait for the
// device, on which no other rank of the process may be waiting for this one by then.
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/crypto.h"
#include "bootstrap/file_server.h"
#include "comm/communicator.h"
#include "core/clock.h"
#include "core/log.h"

namespace tutti {

/// What a rank says in each exchange.
struct RegistrationAnswer {
  RegistrationOffer offer;
  Process::Token process{};  ///< where the offer's file is fetched
  FileSecret secret{};
  std::array<char, 384> obstacle{};  ///< empty: all is well

  void refuse(const Status& why) { why.text().copy(obstacle.data(), obstacle.size() - 1); }
};

/// What a rank offers, while the others fetch its file.
struct OfferedRegistration {
  OwnRegistration own;
  std::optional<FileOffer> file;
};

/// One exchange. Whether no rank has refused; the lowest of those that have tells people why.
Result<bool> Communicator::agree_on_registration(const RegistrationAnswer& mine,
                                                 std::vector<RegistrationAnswer>& all) {
  Call call;
  call.shape = {.collective = Collective::kAllGather,
                .type = DataType::kUint8,
                .purpose = CallPurpose::kRegister,
                .count = sizeof(mine)};
  call.send = &mine;
  call.recv = all.data();
  TUTTI_TRY(run(call));
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    all[rank].obstacle.back() = '\0';
    const std::string why = all[rank].obstacle.data();
    if (why.empty()) continue;
    if (rank == rank_)
      log_line(format("rank %u: %s; nothing is registered, and calls go on as before", rank, why.c_str()));
    return false;
  }
  return true;
}

/// Reaches what the others offer; while it does they keep their files at hand.
Status Communicator::open_registration(uint32_t number, const std::vector<RegistrationAnswer>& answers) {
  std::vector<RegistrationOffer> offers;
  std::vector<FileDescriptor> files(rank_count_);
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    const RegistrationAnswer& theirs = answers[rank];
    offers.push_back(theirs.offer);
    if (rank == rank_ || theirs.offer.has_file == 0) continue;
    auto fetched = fetch_files({.name = Process::file_server_name(theirs.process),
                                .secret = theirs.secret,
                                .count = 1,
                                .deadline_ns = deadline_after_ms(timeout_ms_),
                                .check = [this] { return error(); }});
    TUTTI_TRY(fetched.status());
    files[rank] = std::move(fetched->front());
  }
  return device_->open_registration(number, offers, files);
}

/// Finds out, and tells, what the others need to reach the memory.
Status Communicator::offer_registration(const void* buffer, uint64_t bytes, OfferedRegistration& offered,
                                        RegistrationAnswer& mine) {
  auto server = process_.file_server();
  TUTTI_TRY(server.status());
  FileOffer& file = offered.file.emplace(**server);
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(file.secret))));
  auto own = device_->offer_registration(buffer, bytes);
  TUTTI_TRY(own.status());
  offered.own = std::move(*own);
  mine.secret = file.secret;
  mine.offer = offered.own.offer;
  const int fd = offered.own.file.get();
  if (fd >= 0) file.open(std::span(&fd, 1));
  return Status::ok();
}

Result<uint32_t> Communicator::register_memory(const void* buffer, uint64_t bytes) {
  if (device_ == nullptr) return 0u;
  uint32_t number = 1;
  while (registrations_.contains(number)) ++number;
  if (number >= device_->registration_end()) {
    log_line(format("rank %u has %zu regions, more there cannot be; calls go on as before", rank_,
                    registrations_.size()));
    return 0u;
  }
  std::vector<RegistrationAnswer> answers(rank_count_);
  std::set<uint32_t> registered = {number};
  RegistrationAnswer mine{.offer = {}, .process = process_.token()};
  OfferedRegistration own;
  const Status offered = contained([&] { return offer_registration(buffer, bytes, own, mine); });
  if (!offered) mine.refuse(offered);
  auto agreed = agree_on_registration(mine, answers);
  TUTTI_TRY(agreed.status());
  if (!*agreed) return 0u;
  const Status opened = contained([&] { return open_registration(number, answers); });
  if (!opened) mine.refuse(opened);
  const Status met = contained([&] {
    agreed = agree_on_registration(mine, answers);
    return agreed.status();
  });
  if (!met || !*agreed) {
    if (opened) device_->close_registration(number);
    // The others wait for this rank's answer, or take the memory for a region.
    if (!met) raise(met);
    TUTTI_TRY(met);
    return 0u;
  }
  // Nothing below can fail.
  registrations_.merge(registered);
  forget_programs();
  return number;
}

Status Communicator::deregister_memory(uint32_t number, bool waits) {
  wait_until_device_is_idle();
  // What goes on after a failure may use it: then it is kept until the rank is destroyed, and not counted.
  if (device_->look().is_running) return error();
  device_->close_registration(number);
  registrations_.erase(number);
  forget_programs();
  header_->status.closed_registrations.fetch_add(1, std::memory_order_release);
  return waits ? wait_for_closed_registrations() : Status::ok();
}

/// Until the peers have closed as many regions as this rank.
Status Communicator::wait_for_closed_registrations() {
  const uint32_t closed = header_->status.closed_registrations.load(std::memory_order_relaxed);
  const uint64_t deadline_ns = deadline_after_ms(timeout_ms_);
  uint32_t peer = 0;
  for (Waiter waiter(WaitMode::kYield); peer < rank_count_;) {
    const StatusPage& page = status_of(peer);
    const uint32_t theirs = page.closed_registrations.load(std::memory_order_acquire);
    const bool has_left = page.has_left.load(std::memory_order_acquire) == StatusPage::kLeft;
    const bool has_closed = static_cast<int32_t>(theirs - closed) >= 0;
    if (!has_closed && has_error()) return error();
    if (has_closed || has_left) {
      ++peer;
      continue;
    }
    if (now_ns() > deadline_ns) {
      raise({Code::kTimeout, format("rank %u has not called tutti_memory_deregister, which rank %u waits "
                                    "for: all ranks call it, in the same order",
                                    peer, rank_)});
      return error();
    }
    waiter.pause();
  }
  return Status::ok();
}

Result<void*> Communicator::allocate(uint64_t bytes) {
  if (is_on_device()) return process_.devices_in_use()->allocate(options_.device, bytes);
  return process_.heap().allocate(bytes);
}

/// What is bound from now on finds the regions as they are now.
void Communicator::forget_programs() {
  last_ = nullptr;
  bound_.clear();
  variable_.reset();
  message_programs_.clear();
}

}  // namespace tutti
