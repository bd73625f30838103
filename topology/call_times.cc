#include "topology/call_times.h"

#include "topology/slice_text.h"

namespace tutti::topology {
namespace {

constexpr size_t kCallsMax = 4096;  // kinds of calls in a file
constexpr size_t kSizesMax = 64;    // of each

Status expected(std::string_view what, const Scanner& scanner) {
  return {Code::kInvalidArgument, "expected " + std::string(what) + ", found " + scanner.quote()};
}

}  // namespace

std::string print_calls(const CallTimes& calls) {
  std::string out;
  for (const auto& [call, times] : calls) {
    for (const auto& [bytes, time] : times) {
      out += format("trial %s %u %u %s %llu ", std::string(collective_name(call.collective)).c_str(),
                    call.ranks, call.hosts, call.algorithm.c_str(), static_cast<unsigned long long>(bytes)) +
             print_time(time.ns.value) + print_spread(time.ns) +
             (time.starts > 1 ? format(" starts %u", time.starts) : "") + "\n";
    }
  }
  return out;
}

Result<bool> take_call_line(Scanner& scanner, CallTimes& calls) {
  if (!scanner.take("trial")) return false;
  Scanner start = scanner;
  const auto collective = collective_from_name(scanner.word());
  if (!collective) return expected("a collective, as 'all_reduce'", start);
  const auto ranks = scanner.number(2, kTriedRanksMax);
  const auto hosts = ranks ? scanner.number(1, *ranks) : std::nullopt;
  if (!hosts) return expected("a number of ranks, then one of hosts", scanner);
  TriedCall call{.collective = *collective,
                 .ranks = static_cast<uint32_t>(*ranks),
                 .hosts = static_cast<uint32_t>(*hosts),
                 .algorithm = std::string(scanner.word())};
  if (call.algorithm.empty()) return expected("an algorithm", scanner);
  const auto bytes = scanner.number(1, kTriedBytesMax);
  if (!bytes) return expected("a number of bytes", scanner);
  const auto ns = take_measured(scanner, true);
  TUTTI_TRY(ns.status());
  CallTime time{.ns = *ns};
  if (scanner.take("starts")) {
    const auto starts = scanner.number(1, kStartsMost);
    if (!starts) return expected("1 to 5 starts", scanner);
    time.starts = static_cast<uint32_t>(*starts);
  }
  auto& times = calls[std::move(call)];
  if (calls.size() > kCallsMax || times.size() == kSizesMax || !times.emplace(*bytes, time).second)
    return expected("another call or size, and not too many", scanner);
  return true;
}

}  // namespace tutti::topology
