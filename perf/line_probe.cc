#include "perf/line_probe.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "core/file_descriptor.h"
#include "net/process_file.h"

namespace tutti::perf {
namespace {

/// Patience of about a time slice of the system: the other rank's core may be another rank's.
constexpr topology::LineTrips kTrips{.count = 32, .stretch = 8, .patience = std::chrono::milliseconds(4)};

}  // namespace

Result<std::unique_ptr<LineProbe>> LineProbe::make(const Agreement& agreement, int rank) {
  const auto made = rank == 0 ? create_memory("tutti-line", sizeof(topology::LinePair)) : FileDescriptor();
  const ProcessFile own = made ? name_file(made->get()) : ProcessFile();
  // Rank 0's file, and the cores of ranks 0 and 1.
  double facts[6] = {};
  if (rank == 0) {
    const auto pid = static_cast<double>(getpid());
    facts[0] = pid;
    facts[1] = own.fd;
    facts[2] = own.device;
    facts[3] = static_cast<double>(own.inode);
  }
  if (rank <= 1) facts[4 + rank] = 1 + sched_getcpu();
  TUTTI_TRY(agreement.max(facts));
  std::unique_ptr<LineProbe> probe(new LineProbe(agreement, rank));
  if (rank <= 1 && facts[4] != facts[5]) {
    const ProcessFile file{.fd = static_cast<int32_t>(facts[1]),
                           .device = static_cast<uint32_t>(facts[2]),
                           .inode = static_cast<uint64_t>(facts[3])};
    auto page = map_memory(open_file_of(static_cast<int64_t>(facts[0]), file), sizeof(topology::LinePair));
    if (page) probe->page_ = std::move(*page);
  }
  double can_measure = rank > 1 || probe->page_.base() != nullptr ? 1 : 0;
  TUTTI_TRY(agreement.min({&can_measure, 1}));
  if (can_measure == 0) return std::unique_ptr<LineProbe>();
  TUTTI_TRY(probe->measure().status());
  return probe;
}

Result<std::array<uint64_t, 2>> LineProbe::measure() {
  constexpr std::array<uint64_t, 2> kNone = {};
  TUTTI_TRY(agreement_.barrier());
  if (page_.base() == nullptr) return kNone;
  auto& lines = *reinterpret_cast<topology::LinePair*>(page_.base());
  ++number_;
  if (rank_ == 1) {
    (void)topology::answer_line(lines, number_, kTrips);
    return kNone;
  }
  const auto line_ns = static_cast<uint64_t>(std::ceil(topology::send_line(lines, number_, kTrips)));
  return std::array<uint64_t, 2>{std::exchange(line_ns_, line_ns), line_ns};
}

}  // namespace tutti::perf
