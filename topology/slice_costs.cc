#include "topology/slice_costs.h"

#include <algorithm>

namespace tutti::topology {
namespace {

constexpr std::array<std::string_view, kSliceWorks> kNames = {
    "copy",           "read",          "write",       "reduce",         "send",        "receive",
    "send_own",       "receive_own",   "pass",        "stream",         "copy_memory", "send_memory",
    "receive_memory", "reduce_memory", "socket_send", "socket_receive", "socket_pass", "socket_stream"};

bool have_curves(const std::array<std::vector<SlicePoint>, kSliceWorks>& curves, size_t begin, size_t end) {
  return std::all_of(curves.begin() + begin, curves.begin() + end,
                     [](const auto& curve) { return !curve.empty(); });
}

}  // namespace

std::string_view work_name(SliceWork work) {
  return kNames[static_cast<size_t>(work)];
}

bool SliceCosts::are_known() const {
  return turn_ns.value > 0 && call_ns.value > 0 && have_curves(curves, 0, kMemoryWorks);
}

bool SliceCosts::know_sockets() const {
  return have_curves(curves, kMemoryWorks, kSliceWorks);
}

double SliceCosts::us(SliceWork work, double bytes) const {
  const auto& curve = curves[static_cast<size_t>(work)];
  if (curve.empty()) return 0;
  const auto ns_of = [](const SlicePoint& point) { return static_cast<double>(point.ns.value); };
  auto next = std::ranges::find_if(curve, [&](const SlicePoint& point) { return point.bytes >= bytes; });
  if (next == curve.begin() || curve.size() == 1) return ns_of(curve.front()) / 1000;
  if (next == curve.end()) --next;
  const SlicePoint& before = *std::prev(next);
  const double part = (bytes - before.bytes) / (static_cast<double>(next->bytes) - before.bytes);
  return std::max(0.0, ns_of(before) + part * (ns_of(*next) - ns_of(before))) / 1000;
}

double SliceCosts::beyond_copy_us(SliceWork work, double bytes) const {
  return std::max(0.0, us(work, bytes) - us(SliceWork::kCopy, bytes));
}

double SliceCosts::part_of(SliceWork both, SliceWork one, SliceWork other, double bytes) const {
  const double sum_us = beyond_copy_us(one, bytes) + beyond_copy_us(other, bytes);
  return sum_us > 0 ? std::min(1.0, beyond_copy_us(both, bytes) / sum_us) : 1;
}

double SliceCosts::part_of_reduce(double bytes) const {
  double sum_us = 0;
  for (const SliceWork work : {SliceWork::kReceive, SliceWork::kRead, SliceWork::kReduce, SliceWork::kWrite})
    sum_us += beyond_copy_us(work, bytes);
  return sum_us > 0 ? std::min(1.0, beyond_copy_us(SliceWork::kReduceMemory, bytes) / sum_us) : 1;
}

}  // namespace tutti::topology
