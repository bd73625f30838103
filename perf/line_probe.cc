#include "perf/line_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "core/file_descriptor.h"

namespace tutti::perf {
namespace {

/// Patience of about a time slice of the system: the other rank's core may be another rank's.
constexpr topology::LineTrips kTrips{.count = 32, .stretch = 8, .patience = std::chrono::milliseconds(4)};

}  // namespace

Result<std::unique_ptr<LineProbe>> LineProbe::make(const Agreement& agreement, int rank) {
  const FileDescriptor own(rank == 0 ? memfd_create("tutti-line", MFD_CLOEXEC) : -1);
  const bool is_made = own.get() >= 0 && ftruncate(own.get(), sizeof(topology::LinePair)) == 0;
  // Rank 0's file, as other processes of this machine name it.
  double name[2] = {is_made ? static_cast<double>(getpid()) : 0, static_cast<double>(own.get())};
  TUTTI_TRY(agreement.max(name));
  const std::string path = format("/proc/%.0f/fd/%.0f", name[0], name[1]);
  const FileDescriptor file(name[0] > 0 && rank <= 1 ? open(path.c_str(), O_RDWR | O_CLOEXEC) : -1);
  std::unique_ptr<LineProbe> probe(new LineProbe(rank));
  if (file.is_open()) {
    void* const page =
        mmap(nullptr, sizeof(topology::LinePair), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (page != MAP_FAILED) probe->lines_ = static_cast<topology::LinePair*>(page);
  }
  double can_measure = rank > 1 || probe->lines_ != nullptr ? 1 : 0;
  TUTTI_TRY(agreement.min({&can_measure, 1}));
  if (can_measure == 0) return std::unique_ptr<LineProbe>();
  (void)probe->measure();
  return probe;
}

LineProbe::~LineProbe() {
  if (lines_ != nullptr) munmap(lines_, sizeof(topology::LinePair));
}

std::array<uint64_t, 2> LineProbe::measure() {
  if (lines_ == nullptr) return {};
  ++number_;
  if (rank_ == 1) {
    (void)topology::answer_line(*lines_, number_, kTrips);
    return {};
  }
  const auto line_ns = static_cast<uint64_t>(std::ceil(topology::send_line(*lines_, number_, kTrips)));
  return {std::exchange(line_ns_, line_ns), line_ns};
}

}  // namespace tutti::perf
