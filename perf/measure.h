// Times and checks one case on the ranks of one thread.
//
// Method: one operation (sets up links, names the algorithm), warm-up, barrier, then n iterations back to
// back. The result is the elapsed time over n, combined over ranks (-a). On devices, iterations go to the
// ranks' streams, several ranks' in one group, until all streams are done. -G captures them in a graph and
// launches it. Checks follow on fresh data, so that they cost no time and old results cannot pass.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "perf/agree.h"
#include "perf/buffers.h"
#include "perf/collective.h"
#include "perf/line_probe.h"
#include "perf/options.h"
#include "perf/report.h"
#include "perf/site.h"

namespace tutti::perf {

/// The parts that one of the thread's ranks runs with. All outlive the measurement.
struct Seat {
  Site& site;
  tutti_comm_t* comm;
  char* send_arena;
  char* recv_arena;
  size_t& place;  ///< in the arenas, where the last measurement ended: the next one begins with colder memory
};

struct ThreadContext {
  const Options& options;
  const CollectiveTest& test;
  const Agreement& agreement;
  std::span<const Seat> seats;
  size_t footprint_bytes;
  LineProbe* line;  ///< null: none
};

/// A case for one rank, and its operator in the C API.
struct SeatCase {
  Case test_case;
  tutti_op_t op;
};

/// One case, in place or out of place. Collective: every thread calls the same functions in the same order.
class Measure {
 public:
  /// `cases`: one for each seat.
  Measure(const ThreadContext& context, std::span<const SeatCase> cases, bool in_place);

  /// Runs everything. *algorithm, unless NULL, gets the name of the algorithm that ran (the question costs
  /// time). `iterations`: how many to time; if empty, they are chosen and set, for the case's next run.
  Result<Measurement> run(std::string* algorithm, std::optional<int>& iterations);
  /// Untimed calls, so many that each slot of a link has its pages and the library's own trials have ended.
  Status settle();
  /// Runs one operation, and says which algorithm it was.
  Result<std::string> find_algorithm();

 private:
  struct Part {
    const Case& test_case;
    tutti_op_t op;
    const Seat& seat;
    tutti_stream_t stream;
    RingLayout layout;
    Rings rings;
  };
  struct Times {
    double elapsed_us = 0;
    double issue_us = 0;  ///< on devices: time until all was issued
    double cpu_us = 0;    ///< of the calling thread
    std::vector<double> samples = {};
  };
  using Graphs = std::vector<std::unique_ptr<Graph>>;

  void keep_places() const;
  Status issue();
  Status iterate();
  DeviceQueue& first_queue(const Part& part) const;
  Status wait();
  Status prepare(std::string* algorithm);
  Result<int> choose_iterations();
  Result<double> time_batch(int iterations);
  Status time_plain(int iterations, Times* times);
  Status time_each(int iterations, Times* times);
  Status time_graph(int iterations, Times* times);
  Status time(int iterations, Times* times);
  Status share_samples(const std::vector<double>& samples, Measurement* measurement);
  Status mark(size_t index);
  Status read_marks(std::vector<double>* samples);
  template <class Work>
  Result<Graphs> capture(Work&& work);
  Status launch(const Graphs& graphs);
  Status run_once();
  Status give_fresh_input(const Part& part, const Case& fresh);
  Result<size_t> count_wrong_elements(const Part& part, const Case& fresh) const;
  Status check_results(int check_number, Measurement* measurement);
  Call call_of(const Part& part, int phase) const;
  Rings fresh_rings(const Seat& seat, const RingLayout& layout) const;
  bool on_devices() const { return context_.seats.front().site.queue() != nullptr; }

  const ThreadContext& context_;
  const bool in_place_;
  const size_t shift_bytes_;
  const bool grouped_;  ///< several ranks in one thread: without a group each would wait for the next
  std::vector<Part> parts_;
};

RingLayout case_layout(const Options& options, const Case& test_case, size_t footprint_bytes);

/// The algorithm's name in a text of tutti_comm_explain ("all_reduce ...: algorithm ring, by ..."); "" if
/// there is none.
std::string algorithm_name(const std::string& explanation);

}  // namespace tutti::perf
