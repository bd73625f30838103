// See measure.h.
#include "perf/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

// A row of short operations runs about this long, so that one wake-up of another process (a few hundred
// microseconds) stays below a few percent of it.
constexpr double kRowMicroseconds = 10'000;
constexpr double kCalibrationMicroseconds = 1'500;
constexpr int kCalibrationGrowth = 4;
constexpr int kMostIterations = 100'000;
constexpr int kMostSamples = 2'000;  // with -I, whose samples all go to the JSON file
constexpr size_t kCheckBlockBytes = 16 * 1024;
// Unlike any data that an operation leaves behind by mistake more than once in 256 bytes.
constexpr int kStaleByte = 0x5a;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double thread_cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

}  // namespace

RingLayout case_layout(const Options& options, const Case& test_case, size_t footprint_bytes) {
  const size_t elements = std::max(test_case.shape.send_count, test_case.shape.recv_count);
  return ring_layout(elements * test_case.type_bytes(), options.misalign_elements * test_case.type_bytes(),
                     footprint_bytes, static_cast<size_t>(options.aggregate));
}

std::string algorithm_name(const std::string& explanation) {
  constexpr std::string_view kKey = ": algorithm ";
  const size_t key = explanation.find(kKey);
  if (key == std::string::npos) return "";
  const size_t begin = key + kKey.size();
  const size_t end = explanation.find_first_of(" ,;\n", begin);
  return explanation.substr(begin, end == std::string::npos ? end : end - begin);
}

Measure::Measure(const RankContext& context, const Case& test_case, tutti_op_t op, bool in_place)
    : context_(context),
      case_(test_case),
      op_(op),
      in_place_(in_place),
      layout_(case_layout(context.options, test_case, context.footprint_bytes)),
      shift_bytes_(context.options.misalign_elements * test_case.type_bytes()),
      rings_(fresh_rings()) {}

Rings Measure::fresh_rings() const {
  return Rings(context_.send_arena, context_.recv_arena, layout_, shift_bytes_);
}

Call Measure::call_of(const Rings& rings) const {
  const size_t element = case_.type_bytes();
  char* recv = rings.recv();
  const tutti_stream_t stream =
      context_.stream != nullptr ? tutti_stream_host(context_.stream) : TUTTI_BLOCKING;
  if (!in_place_)
    return {.send = rings.send(), .recv = recv, .op = op_, .comm = context_.comm, .stream = stream};
  return {.send = recv + case_.shape.send_offset_in_place * element,
          .recv = recv + case_.shape.recv_offset_in_place * element,
          .op = op_,
          .comm = context_.comm,
          .stream = stream};
}

Status Measure::iterate() {
  const int operations = context_.options.aggregate;
  if (operations > 1) TUTTI_TRY(check(tutti_group_start(), "starting a group"));
  for (int i = 0; i < operations; ++i) {
    const tutti_result_t result = context_.test.run(case_, call_of(rings_));
    if (result != TUTTI_SUCCESS) [[unlikely]]
      return check(result, context_.test.name);
    rings_.advance();
  }
  if (operations > 1) TUTTI_TRY(check(tutti_group_end(), "ending a group"));
  return Status::ok();
}

Status Measure::wait() {
  if (context_.stream == nullptr) return Status::ok();
  return check(tutti_host_stream_synchronize(context_.stream), "waiting for the stream");
}

Status Measure::prepare(std::string* algorithm) {
  TUTTI_TRY(iterate());
  TUTTI_TRY(wait());
  if (algorithm != nullptr) {
    char text[512] = "";
    TUTTI_TRY(check(tutti_comm_explain(context_.comm, text, sizeof(text)), "asking which algorithm ran"));
    *algorithm = algorithm_name(text);
  }
  for (int i = 0; i < context_.options.warmups; ++i) TUTTI_TRY(iterate());
  return wait();
}

Result<double> Measure::time_batch(int iterations) {
  TUTTI_TRY(context_.agreement.barrier());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate());
  TUTTI_TRY(wait());
  double one_us = microseconds(Clock::now() - start) / iterations;
  TUTTI_TRY(context_.agreement.max({&one_us, 1}));
  return one_us;
}

Result<int> Measure::choose_iterations() {
  if (context_.options.iterations) return *context_.options.iterations;
  const int most = context_.options.per_iteration ? kMostSamples : kMostIterations;
  // Until a batch lasts long enough that neither the first, slow operations nor one lost time slice decide.
  int iterations = kDefaultIterations;
  for (;;) {
    const Result<double> one_us = time_batch(iterations);
    if (!one_us) return one_us.status();
    if (*one_us * iterations >= kCalibrationMicroseconds || iterations >= most)
      return iteration_count(*one_us, kRowMicroseconds, kDefaultIterations, most);
    iterations = std::min(iterations * kCalibrationGrowth, most);
  }
}

Status Measure::time_plain(int iterations, double* elapsed_us) {
  const int blocking = context_.options.blocking;
  const Clock::time_point start = Clock::now();
  if (blocking == 0 || (blocking == 2 && context_.stream == nullptr)) {
    for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate());
  } else {
    for (int i = 0; i < iterations; ++i) {
      TUTTI_TRY(iterate());
      TUTTI_TRY(wait());
      if (blocking == 1) TUTTI_TRY(context_.agreement.barrier());
    }
  }
  TUTTI_TRY(wait());
  *elapsed_us = microseconds(Clock::now() - start);
  return Status::ok();
}

Status Measure::time_each(int iterations, double* elapsed_us, std::vector<double>* samples) {
  samples->assign(static_cast<size_t>(iterations), 0.0);
  *elapsed_us = 0;
  for (double& sample : *samples) {
    const Clock::time_point start = Clock::now();
    TUTTI_TRY(iterate());
    TUTTI_TRY(wait());
    if (context_.options.blocking == 1) TUTTI_TRY(context_.agreement.barrier());
    sample = microseconds(Clock::now() - start);
    *elapsed_us += sample;
    if (context_.options.blocking == 3) TUTTI_TRY(context_.agreement.barrier());
  }
  return Status::ok();
}

Result<Measurement> Measure::run(std::string* algorithm) {
  const Options& options = context_.options;
  TUTTI_TRY(prepare(algorithm));
  const Result<int> iterations = choose_iterations();
  if (!iterations) return iterations.status();
  Measurement measurement;
  measurement.iterations = *iterations;

  TUTTI_TRY(context_.agreement.barrier());
  double elapsed_us = 0;
  const double cpu_start_us = thread_cpu_us();
  if (options.per_iteration || options.blocking == 3)
    TUTTI_TRY(time_each(*iterations, &elapsed_us, &measurement.iteration_us));
  else
    TUTTI_TRY(time_plain(*iterations, &elapsed_us));
  const double cpu_us = thread_cpu_us() - cpu_start_us;

  const double operations = static_cast<double>(*iterations) * options.aggregate;
  double operation_us = elapsed_us / operations;
  double operation_cpu_us = cpu_us / operations;
  TUTTI_TRY(context_.agreement.average(&operation_us, options.average));
  TUTTI_TRY(context_.agreement.average(&operation_cpu_us, options.average));
  if (options.per_iteration) {
    TUTTI_TRY(context_.agreement.max(measurement.iteration_us));
    const size_t skipped =
        std::min(static_cast<size_t>(options.skip_samples), measurement.iteration_us.size());
    measurement.statistics = iteration_statistics(std::span(measurement.iteration_us).subspan(skipped));
  }
  const BandwidthFactors factors = context_.test.factors(case_.rank_count);
  const double bytes =
      static_cast<double>(std::max(case_.shape.send_count, case_.shape.recv_count) * case_.type_bytes());
  measurement.time_us = options.cpu_time ? operation_cpu_us : operation_us;
  measurement.algorithm_gbs = gigabytes_per_s(bytes * factors.algorithm, operation_us);
  measurement.bus_gbs = measurement.algorithm_gbs * factors.bus;

  for (int number = 0; number < options.checks; ++number) {
    const Result<double> wrong = count_wrong_elements(number);
    if (!wrong) return wrong.status();
    double totals[2] = {*wrong, *wrong > 0 ? 1.0 : 0.0};
    TUTTI_TRY(context_.agreement.sum(totals));
    measurement.wrong = totals[0];
    measurement.wrong_ranks = static_cast<int>(totals[1]);
    if (measurement.wrong_ranks > 0) break;
  }
  return measurement;
}

Result<double> Measure::count_wrong_elements(int check_number) {
  Case fresh = case_;
  fresh.seed = case_.seed * 64 + static_cast<uint64_t>(check_number) * 2 + (in_place_ ? 1 : 0);
  const Call call = call_of(fresh_rings());
  const size_t element = case_.type_bytes();
  char* region = fresh_rings().recv();
  std::memset(region, kStaleByte, case_.shape.recv_count * element);
  context_.test.fill(fresh, const_cast<void*>(call.send));
  TUTTI_TRY(check(context_.test.run(fresh, call), context_.test.name));
  TUTTI_TRY(wait());

  const size_t total = context_.test.result_count(fresh);
  const size_t block = kCheckBlockBytes / element;
  const int tolerance = context_.test.reduces ? tolerance_ulp(fresh.reduction()) : 0;
  std::vector<char> expected(kCheckBlockBytes);
  size_t wrong = 0;
  for (size_t first = 0; first < total; first += block) {
    const size_t count = std::min(block, total - first);
    context_.test.expect(fresh, first, count, expected.data());
    wrong += count_wrong(case_.type, tolerance, static_cast<const char*>(call.recv) + first * element,
                         expected.data(), count);
  }
  return static_cast<double>(wrong);
}

}  // namespace tutti::perf
