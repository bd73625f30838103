// Times and checks one case on one rank.
//
// Method: one operation (sets up links, names the algorithm), warm-up, barrier, then n iterations back to
// back, elapsed time over n, combined over ranks (-a). The result is checked afterwards on fresh data, so
// that checking costs no time and old results cannot pass for new ones.
#pragma once

#include <string>

#include "core/result.h"
#include "perf/agree.h"
#include "perf/buffers.h"
#include "perf/collective.h"
#include "perf/options.h"
#include "perf/report.h"

namespace tutti::perf {

/// What a rank owns while it runs. The communicator, the stream and the arenas outlive it.
struct RankContext {
  const Options& options;
  const CollectiveTest& test;
  tutti_comm_t* comm;
  tutti_host_stream_t* stream;  ///< NULL: blocking calls
  Agreement agreement;
  char* send_arena;
  char* recv_arena;
  size_t footprint_bytes;
};

/// One case in one of its two forms. Collective: every rank calls the same functions in the same order.
class Measure {
 public:
  /// `op` is the operator of the C API for this case.
  Measure(const RankContext& context, const Case& test_case, tutti_op_t op, bool in_place);

  /// Runs everything; `*algorithm`, unless NULL, gets what the library says ran (asking costs it some time).
  Result<Measurement> run(std::string* algorithm);

 private:
  Status iterate();
  Status wait();
  Status prepare(std::string* algorithm);
  Result<int> choose_iterations();
  Result<double> time_batch(int iterations);
  Status time_plain(int iterations, double* elapsed_us);
  Status time_each(int iterations, double* elapsed_us, std::vector<double>* samples);
  Result<double> count_wrong_elements(int check_number);
  Call call_of(const Rings& rings) const;
  Rings fresh_rings() const;

  const RankContext& context_;
  const Case& case_;
  const tutti_op_t op_;
  const bool in_place_;
  RingLayout layout_;
  size_t shift_bytes_;
  Rings rings_;
};

/// The ring of a case.
RingLayout case_layout(const Options& options, const Case& test_case, size_t footprint_bytes);

/// The algorithm's name in a text of tutti_comm_explain ("all_reduce ...: algorithm ring, by ..."); "" when
/// there is none.
std::string algorithm_name(const std::string& explanation);

}  // namespace tutti::perf
