#include "comm/memory_registrations.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/random.h"
#include "net/file_server.h"

namespace tutti {

struct RegistrationAnswer {
  RegistrationOffer offer;
  Process::Token process{};  ///< of the process whose file server has the file
  FileSecret secret{};
  std::array<char, 384> obstacle{};  ///< empty: none

  void refuse(const Status& why) { why.text().copy(obstacle.data(), obstacle.size() - 1); }
};

/// Kept while the others fetch the file.
struct OfferedRegistration {
  OwnRegistration own;
  std::optional<FileOffer> file;
};

/// Returns whether no rank has refused. The lowest rank that has refused logs the reason.
Result<bool> MemoryRegistrations::agree(const RegistrationAnswer& mine,
                                        std::vector<RegistrationAnswer>& all) const {
  Call call;
  call.shape = {.collective = Collective::kAllGather,
                .type = DataType::kUint8,
                .purpose = CallPurpose::kRegister,
                .count = sizeof(mine)};
  call.send = &mine;
  call.recv = all.data();
  TUTTI_TRY(options_.run(call));
  for (uint32_t rank = 0; rank < options_.peers.rank_count(); ++rank) {
    all[rank].obstacle.back() = '\0';
    const std::string why = all[rank].obstacle.data();
    if (why.empty()) continue;
    if (rank == options_.peers.rank())
      log_line(format("rank %u: %s; nothing is registered, and calls go on as before", rank, why.c_str()));
    return false;
  }
  return true;
}

Status MemoryRegistrations::open(uint32_t number, const std::vector<RegistrationAnswer>& answers,
                                 uint64_t timeout_ms) const {
  std::vector<RegistrationOffer> offers;
  std::vector<FileDescriptor> files(options_.peers.rank_count());
  for (uint32_t rank = 0; rank < options_.peers.rank_count(); ++rank) {
    const RegistrationAnswer& theirs = answers[rank];
    offers.push_back(theirs.offer);
    if (rank == options_.peers.rank() || theirs.offer.has_file == 0) continue;
    auto fetched = fetch_files({.name = Process::file_server_name(theirs.process),
                                .secret = theirs.secret,
                                .count = 1,
                                .deadline_ns = deadline_after_ms(timeout_ms),
                                .check = [this] { return options_.peers.error(); }});
    TUTTI_TRY(fetched.status());
    files[rank] = std::move(fetched->front());
  }
  return options_.device.rank().open_registration(number, offers, files);
}

Status MemoryRegistrations::offer(const void* buffer, uint64_t bytes, OfferedRegistration& offered,
                                  RegistrationAnswer& mine) const {
  auto server = options_.process.file_server();
  TUTTI_TRY(server.status());
  FileOffer& file = offered.file.emplace(**server);
  TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(file.secret))));
  auto own = options_.device.rank().offer_registration(buffer, bytes);
  TUTTI_TRY(own.status());
  offered.own = std::move(*own);
  mine.secret = file.secret;
  mine.offer = offered.own.offer;
  const int fd = offered.own.file.get();
  if (fd >= 0) file.open(std::span(&fd, 1));
  return Status::ok();
}

Result<uint32_t> MemoryRegistrations::add(const void* buffer, uint64_t bytes, uint64_t timeout_ms) {
  uint32_t number = 1;
  while (numbers_.contains(number)) ++number;
  if (number >= options_.device.rank().registration_end()) {
    log_line(format("rank %u has %zu registered buffers and can have no more; calls go on as before",
                    options_.peers.rank(), numbers_.size()));
    return 0u;
  }
  std::vector<RegistrationAnswer> answers(options_.peers.rank_count());
  std::set<uint32_t> registered = {number};
  RegistrationAnswer mine{.offer = {}, .process = options_.process.token()};
  OfferedRegistration own;
  const Status offered = contained([&] { return offer(buffer, bytes, own, mine); });
  if (!offered) mine.refuse(offered);
  auto agreed = agree(mine, answers);
  TUTTI_TRY(agreed.status());
  if (!*agreed) return 0u;
  const Status opened = contained([&] { return open(number, answers, timeout_ms); });
  if (!opened) mine.refuse(opened);
  const Status met = contained([&] {
    agreed = agree(mine, answers);
    return agreed.status();
  });
  if (!met || !*agreed) {
    if (opened) options_.device.rank().close_registration(number);
    // The other ranks wait for this rank's answer, or take the memory as registered.
    if (!met) options_.peers.raise(met);
    TUTTI_TRY(met);
    return 0u;
  }
  // Nothing below can fail.
  numbers_.merge(registered);
  forget_bound();
  return number;
}

Status MemoryRegistrations::remove(uint32_t number, bool waits, uint64_t timeout_ms) {
  // A kernel may still use the memory after an error. It is kept until the rank is destroyed, and not
  // counted.
  if (!options_.device.wait_until_idle()) return options_.peers.error();
  options_.device.rank().close_registration(number);
  numbers_.erase(number);
  forget_bound();
  options_.peers.own().status.closed_registrations.fetch_add(1, std::memory_order_release);
  return waits ? wait_until_all_have_closed(timeout_ms) : Status::ok();
}

Status MemoryRegistrations::wait_until_all_have_closed(uint64_t timeout_ms) const {
  const uint32_t closed = options_.peers.own().status.closed_registrations.load(std::memory_order_relaxed);
  const uint64_t deadline_ns = deadline_after_ms(timeout_ms);
  uint32_t peer = 0;
  for (Waiter waiter(WaitMode::kYield); peer < options_.peers.rank_count();) {
    const StatusPage& page = options_.peers.page(peer);
    const uint32_t theirs = page.closed_registrations.load(std::memory_order_acquire);
    const bool has_left = page.presence.load(std::memory_order_acquire) == StatusPage::kLeft;
    const bool has_closed = static_cast<int32_t>(theirs - closed) >= 0;
    if (!has_closed && options_.peers.has_error()) return options_.peers.error();
    if (has_closed || has_left) {
      ++peer;
      continue;
    }
    if (now_ns() > deadline_ns) {
      const Status late(Code::kTimeout,
                        format("rank %u has not called tutti_memory_deregister, which rank %u "
                               "waits for: all ranks call it, in the same order",
                               peer, options_.peers.rank()));
      return options_.peers.fail(late);
    }
    waiter.pause();
  }
  return Status::ok();
}

void MemoryRegistrations::forget_bound() {
  options_.device.set_registered_count(numbers_.size());
  options_.device.forget_messages();
  options_.forget_bound();
}

}  // namespace tutti
