#include "transports/shm/segment.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tutti {

void StatusPage::show_call(uint64_t number, uint64_t call, uint64_t count, uint64_t counts) {
  const uint32_t made = run_count.load(std::memory_order_relaxed);
  if (made > 0) {
    const CallRun& last = runs[(made - 1) % kCallRuns];
    if (last.call.load(std::memory_order_relaxed) == call &&
        last.count.load(std::memory_order_relaxed) == count &&
        last.counts.load(std::memory_order_relaxed) == counts)
      return;
  }
  runs[made % kCallRuns].store(number, call, count, counts);
  run_count.store(made + 1, std::memory_order_release);
}

void StatusPage::show_only_call(uint64_t number, uint64_t call, uint64_t count, uint64_t counts) {
  runs[0].store(number, call, count, counts);
  run_count.store(1, std::memory_order_release);
}

void raise_alert(Alert& alert, Code code, uint32_t from, std::string_view text) {
  uint32_t quiet = Alert::kQuiet;
  uint32_t claim = Alert::claimed_by(from);
  if (!alert.state.compare_exchange_strong(quiet, claim)) return;
  alert.code.store(static_cast<int32_t>(code), std::memory_order_relaxed);
  alert.from.store(from, std::memory_order_relaxed);
  const size_t length = std::min(text.size(), sizeof(alert.text) - 1);
  std::memcpy(alert.text, text.data(), length);
  alert.text[length] = '\0';
  // Fails if this writer was stopped for so long that the rank has withdrawn the claim.
  alert.state.compare_exchange_strong(claim, Alert::kRaised);
}

void withdraw_claim(Alert& alert, uint32_t claim) {
  if (claim != Alert::kRaised) alert.state.compare_exchange_strong(claim, Alert::kQuiet);
}

Status alert_status(const Alert& alert) {
  if (alert.state.load(std::memory_order_acquire) != Alert::kRaised) return Status::ok();
  const size_t length = strnlen(alert.text, sizeof(alert.text));
  return {static_cast<Code>(alert.code.load(std::memory_order_relaxed)), std::string(alert.text, length)};
}

}  // namespace tutti
