#include "topology/slice_text.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kSliceBytesMax = 1u << 24;
constexpr size_t kSlicePointsMax = 64;

Status expected(std::string_view what, const Scanner& scanner) {
  return {Code::kInvalidArgument, "expected " + std::string(what) + ", found " + scanner.quote()};
}

Status take_point(Scanner& scanner, SliceCosts& slices) {
  for (size_t i = 0; i < kSliceWorks; ++i) {
    if (!scanner.take(work_name(static_cast<SliceWork>(i)))) continue;
    auto& curve = slices.curves[i];
    const auto bytes = scanner.number(curve.empty() ? 1 : curve.back().bytes + 1, kSliceBytesMax);
    if (!bytes || curve.size() == kSlicePointsMax) return expected("a larger number of bytes", scanner);
    const auto ns = take_measured(scanner, true);
    TUTTI_TRY(ns.status());
    curve.push_back({.bytes = static_cast<uint32_t>(*bytes), .ns = *ns});
    return {};
  }
  return expected("copy, read, send or another work on slices", scanner);
}

}  // namespace

std::string print_spread(const Fact& fact) {
  return fact.spread_percent > 0 ? " spread " + std::to_string(fact.spread_percent) : "";
}

Result<Fact> take_measured(Scanner& scanner, bool is_time) {
  const auto value = is_time ? scanner.time() : scanner.speed();
  if (!value || *value == 0)
    return expected(is_time ? "a time, as '57 ns'" : "a speed, as '21 GB/s'", scanner);
  Fact fact{*value, Origin::kMeasured};
  if (!scanner.take("spread")) return fact;
  const auto spread = scanner.number(1, kSpreadMax);
  if (!spread) return expected("a percentage from 1 to 10000", scanner);
  fact.spread_percent = static_cast<uint32_t>(*spread);
  return fact;
}

std::string print_slices(const SliceCosts& slices) {
  std::string out;
  for (const auto& [name, field] : kSliceFacts) {
    const Fact& fact = slices.*field;
    if (fact.value > 0) out += std::string(name) + " " + print_time(fact.value) + print_spread(fact) + "\n";
  }
  for (size_t i = 0; i < kSliceWorks; ++i) {
    for (const SlicePoint& point : slices.curves[i]) {
      out += "slice " + std::string(work_name(static_cast<SliceWork>(i))) + " " +
             std::to_string(point.bytes) + " " + print_time(point.ns.value) + print_spread(point.ns) + "\n";
    }
  }
  return out;
}

Result<bool> take_slice_line(Scanner& scanner, SliceCosts& slices) {
  for (const auto& [name, field] : kSliceFacts) {
    if (!scanner.take(name)) continue;
    const auto fact = take_measured(scanner, true);
    TUTTI_TRY(fact.status());
    slices.*field = *fact;
    return true;
  }
  if (!scanner.take("slice")) return false;
  TUTTI_TRY(take_point(scanner, slices));
  return true;
}

}  // namespace tutti::topology
