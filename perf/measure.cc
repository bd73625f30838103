#include "perf/measure.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

// A row of short operations runs about this long, so that one wake-up of another process (a few hundred
// microseconds) stays below a few percent of the row.
constexpr double kRowMicroseconds = 10'000;
constexpr double kCalibrationShare = 0.15;  // of a row
constexpr int kCalibrationGrowth = 4;
constexpr int kLeastIterations = 8;  // with --row-time
// A link has up to 128 slots of 16 KiB, and calls try how to write their results until call 136
// (engine/result_trials.h). Longer calls: from 8 MiB on a row begins behind the first trial of pulling and
// its repetition (transports/carriage_trials.h). There is no time to settle them further.
constexpr size_t kSettlingBytes = 8u << 20;
constexpr size_t kLeastSettling = 68;
constexpr size_t kLongCall = 1u << 20;
constexpr size_t kLongSettling = 24;
constexpr size_t kMostSettling = 136;
constexpr int kMostIterations = 100'000;
constexpr int kMostSamples = 2'000;  // with -I, which writes all samples to the JSON file
constexpr size_t kCheckBlockBytes = 16 * 1024;
constexpr size_t kStagingBytes = 4u << 20;  // for results that the host cannot read in place
// A value that no operation leaves behind by mistake more than once in 256 bytes.
constexpr unsigned char kStaleByte = 0x5a;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double microseconds_since(Clock::time_point start) {
  return microseconds(Clock::now() - start);
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

Measure::Measure(const ThreadContext& context, std::span<const SeatCase> cases, bool in_place)
    : context_(context),
      in_place_(in_place),
      shift_bytes_(context.options.misalign_elements * cases.front().test_case.type_bytes()),
      grouped_(cases.size() > 1) {
  for (size_t i = 0; i < cases.size(); ++i) {
    const Seat& seat = context.seats[i];
    const RingLayout layout = case_layout(context.options, cases[i].test_case, context.footprint_bytes);
    parts_.push_back({.test_case = cases[i].test_case,
                      .op = cases[i].op,
                      .seat = seat,
                      .stream = seat.site.stream(),
                      .layout = layout,
                      .rings = fresh_rings(seat, layout)});
  }
}

Rings Measure::fresh_rings(const Seat& seat, const RingLayout& layout) const {
  return Rings(seat.send_arena, seat.recv_arena, layout, shift_bytes_, seat.place);
}

Status Measure::settle() {
  const Case& first = parts_.front().test_case;
  const size_t bytes = std::max(first.shape.send_count, first.shape.recv_count) * first.type_bytes();
  const size_t wanted = kSettlingBytes / std::max<size_t>(1, bytes);
  const size_t calls = bytes > kLongCall ? kLongSettling : std::clamp(wanted, kLeastSettling, kMostSettling);
  for (size_t i = 0; i < calls; ++i) TUTTI_TRY(iterate());
  keep_places();
  return wait();
}

void Measure::keep_places() const {
  for (const Part& part : parts_) part.seat.place = part.rings.place();
}

Call Measure::call_of(const Part& part, int phase) const {
  char* recv = part.rings.recv();
  Call call{.send = part.rings.send(),
            .recv = recv,
            .op = part.op,
            .comm = part.seat.comm,
            .stream = part.stream,
            .phase = phase};
  if (in_place_) {
    const size_t element = part.test_case.type_bytes();
    call.send = recv + part.test_case.shape.send_offset_in_place * element;
    call.recv = recv + part.test_case.shape.recv_offset_in_place * element;
  }
  return call;
}

Status Measure::issue() {
  const int phases = context_.test.phases(parts_.front().test_case.rank_count);
  for (int phase = 0; phase < phases; ++phase)
    TUTTI_TRY(together(grouped_, context_.test.name, [&]() -> Status {
      for (const Part& part : parts_) {
        const tutti_result_t result = context_.test.run(part.test_case, call_of(part, phase));
        if (result != TUTTI_SUCCESS) [[unlikely]]
          return check(result, context_.test.name);
      }
      return Status::ok();
    }));
  return Status::ok();
}

Status Measure::iterate() {
  const int operations = context_.options.aggregate;
  return together(operations > 1, context_.test.name, [&]() -> Status {
    for (int i = 0; i < operations; ++i) {
      TUTTI_TRY(issue());
      for (Part& part : parts_) part.rings.advance();
    }
    return Status::ok();
  });
}

Status Measure::wait() {
  for (const Part& part : parts_) {
    TUTTI_TRY(part.seat.site.wait());
    if (part.seat.site.queue() == nullptr) continue;
    // A failed operation on a device releases its stream. The communicator then has the error.
    tutti_result_t error = TUTTI_SUCCESS;
    TUTTI_TRY(check(tutti_comm_async_error(part.seat.comm, &error), "asking for errors"));
    TUTTI_TRY(check(error, context_.test.name));
  }
  return Status::ok();
}

Result<std::string> Measure::find_algorithm() {
  TUTTI_TRY(iterate());
  TUTTI_TRY(wait());
  if (context_.test.messages) return std::string("messages");
  char text[512] = "";
  TUTTI_TRY(
      check(tutti_comm_explain(parts_.front().seat.comm, text, sizeof(text)), "asking which algorithm ran"));
  const std::string name = algorithm_name(text);
  // An all_to_all_v without one: every block is a message.
  return name.empty() ? std::string("messages") : name;
}

Status Measure::prepare(std::string* algorithm) {
  if (algorithm != nullptr) {
    auto found = find_algorithm();
    if (!found) return found.status();
    *algorithm = std::move(*found);
  } else {
    TUTTI_TRY(iterate());
    TUTTI_TRY(wait());
  }
  for (int i = 0; i < context_.options.warmups; ++i) TUTTI_TRY(iterate());
  return wait();
}

Result<double> Measure::time_batch(int iterations) {
  TUTTI_TRY(context_.agreement.barrier());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate());
  TUTTI_TRY(wait());
  double one_us = microseconds_since(start) / iterations;
  TUTTI_TRY(context_.agreement.max({&one_us, 1}));
  return one_us;
}

Result<int> Measure::choose_iterations() {
  if (context_.options.iterations) return *context_.options.iterations;
  // The number of operations in a graph; -G is the number of its launches.
  if (context_.options.graph_launches > 0) return kDefaultIterations;
  const int most = context_.options.per_iteration ? kMostSamples : kMostIterations;
  // Grows until a batch lasts so long that neither the slow first operations nor one lost time slice decide.
  const double row_us = context_.options.row_ms ? *context_.options.row_ms * 1000 : kRowMicroseconds;
  const int least = context_.options.row_ms ? kLeastIterations : kDefaultIterations;
  int iterations = least;
  for (;;) {
    const Result<double> one_us = time_batch(iterations);
    if (!one_us) return one_us.status();
    if (*one_us * iterations >= kCalibrationShare * row_us || iterations >= most)
      return iteration_count(*one_us, row_us, least, most);
    iterations = std::min(iterations * kCalibrationGrowth, most);
  }
}

Status Measure::time_plain(int iterations, Times* times) {
  const int blocking = context_.options.blocking;
  const bool blocking_calls = parts_.front().stream.kind == TUTTI_BLOCKING.kind;
  const Clock::time_point start = Clock::now();
  if (blocking == 0 || (blocking == 2 && blocking_calls)) {
    for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate());
  } else {
    for (int i = 0; i < iterations; ++i) {
      TUTTI_TRY(iterate());
      TUTTI_TRY(wait());
      if (blocking == 1) TUTTI_TRY(context_.agreement.barrier());
    }
  }
  times->issue_us = microseconds_since(start);
  TUTTI_TRY(wait());
  times->elapsed_us = microseconds_since(start);
  return Status::ok();
}

Status Measure::mark(size_t index) {
  for (const Part& part : parts_)
    if (DeviceQueue* queue = part.seat.site.queue()) TUTTI_TRY(queue->mark(index));
  return Status::ok();
}

/// For each iteration, the largest time of the thread's ranks.
Status Measure::read_marks(std::vector<double>* samples) {
  for (size_t i = 0; i < samples->size(); ++i) {
    (*samples)[i] = 0;
    for (const Part& part : parts_) {
      const Result<double> time_us = part.seat.site.queue()->between_us(2 * i, 2 * i + 1);
      if (!time_us) return time_us.status();
      (*samples)[i] = std::max((*samples)[i], *time_us);
    }
  }
  return Status::ok();
}

/// With -I, the streams of devices time each iteration. In host memory the host waits after each iteration.
Status Measure::time_each(int iterations, Times* times) {
  const int blocking = context_.options.blocking;
  const bool marks = on_devices() && context_.options.per_iteration;
  times->samples.assign(static_cast<size_t>(iterations), 0.0);
  for (size_t i = 0; i < times->samples.size(); ++i) {
    const Clock::time_point start = Clock::now();
    if (marks) TUTTI_TRY(mark(2 * i));
    TUTTI_TRY(iterate());
    if (marks) TUTTI_TRY(mark(2 * i + 1));
    if (!marks || blocking != 0) TUTTI_TRY(wait());
    if (blocking == 1) TUTTI_TRY(context_.agreement.barrier());
    times->samples[i] = microseconds_since(start);
    times->elapsed_us += times->samples[i];
    if (blocking == 3) TUTTI_TRY(context_.agreement.barrier());
  }
  times->issue_us = times->elapsed_us;
  const Clock::time_point issued = Clock::now();
  TUTTI_TRY(wait());
  times->elapsed_us += microseconds_since(issued);
  return marks ? read_marks(&times->samples) : Status::ok();
}

/// The queue of the thread's first rank on the same device.
DeviceQueue& Measure::first_queue(const Part& part) const {
  const int device = part.seat.site.facts().device;
  const auto first = std::find_if(parts_.begin(), parts_.end(), [device](const Part& one) {
    return one.seat.site.facts().device == device;
  });
  return *first->seat.site.queue();
}

/// Captures the operations that `work` issues: one graph for each device. In a graph, the streams of the
/// device's ranks branch off the first rank's stream and join it again.
template <class Work>
Result<Measure::Graphs> Measure::capture(Work&& work) {
  for (const Part& part : parts_) {
    DeviceQueue& queue = *part.seat.site.queue();
    DeviceQueue& first = first_queue(part);
    TUTTI_TRY(&first == &queue ? queue.begin_capture() : first.go_before(queue));
  }
  TUTTI_TRY(work());
  for (const Part& part : parts_) {
    DeviceQueue& queue = *part.seat.site.queue();
    DeviceQueue& first = first_queue(part);
    if (&first != &queue) TUTTI_TRY(queue.go_before(first));
  }
  Graphs graphs;
  for (const Part& part : parts_) {
    DeviceQueue& queue = *part.seat.site.queue();
    if (&first_queue(part) != &queue) continue;
    auto graph = queue.end_capture();
    if (!graph) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  return graphs;
}

Status Measure::launch(const Graphs& graphs) {
  for (const auto& graph : graphs) TUTTI_TRY(graph->launch());
  return Status::ok();
}

Status Measure::time_graph(int iterations, Times* times) {
  const Result<Graphs> graphs = capture([&]() -> Status {
    for (int i = 0; i < iterations; ++i) TUTTI_TRY(iterate());
    return Status::ok();
  });
  if (!graphs) return graphs.status();
  TUTTI_TRY(context_.agreement.barrier());
  const int launches = context_.options.graph_launches;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < launches; ++i) TUTTI_TRY(launch(*graphs));
  times->issue_us = microseconds_since(start) / launches;
  TUTTI_TRY(wait());
  times->elapsed_us = microseconds_since(start) / launches;
  return Status::ok();
}

/// Starts after a barrier. Times all iterations together.
Status Measure::time(int iterations, Times* times) {
  const Options& options = context_.options;
  if (options.per_iteration && on_devices())
    for (const Part& part : parts_)
      TUTTI_TRY(part.seat.site.queue()->reserve_marks(2 * static_cast<size_t>(iterations)));
  TUTTI_TRY(context_.agreement.barrier());
  const double cpu_start_us = thread_cpu_us();
  if (options.graph_launches > 0)
    TUTTI_TRY(time_graph(iterations, times));
  else if (options.per_iteration || options.blocking == 3)
    TUTTI_TRY(time_each(iterations, times));
  else
    TUTTI_TRY(time_plain(iterations, times));
  times->cpu_us = thread_cpu_us() - cpu_start_us;
  return Status::ok();
}

/// Fills in what -I asks for, from the samples of all threads.
Status Measure::share_samples(const std::vector<double>& samples, Measurement* measurement) {
  const Options& options = context_.options;
  const Case& first = parts_.front().test_case;
  const auto per_process = static_cast<size_t>(options.ranks_per_process());
  const size_t process = static_cast<size_t>(first.rank) / per_process;
  const size_t process_count = static_cast<size_t>(first.rank_count) / per_process;
  // A row for each process. Times are positive, so the maximum fills in the rows of other processes.
  const size_t count = samples.size();
  std::vector<double> rows(process_count * count);
  std::copy(samples.begin(), samples.end(), rows.begin() + static_cast<ptrdiff_t>(process * count));
  TUTTI_TRY(context_.agreement.max(rows));
  measurement->iteration_us.assign(count, 0.0);
  for (size_t row = 0; row < process_count; ++row) {
    const auto own = std::span(rows).subspan(row * count, count);
    for (size_t i = 0; i < count; ++i)
      measurement->iteration_us[i] = std::max(measurement->iteration_us[i], own[i]);
    if (process_count > 1) measurement->process_iteration_us.emplace_back(own.begin(), own.end());
  }
  measurement->skipped_iterations = static_cast<int>(std::min<size_t>(options.skip_samples, count));
  measurement->statistics = iteration_statistics(
      std::span(measurement->iteration_us).subspan(static_cast<size_t>(measurement->skipped_iterations)));
  return Status::ok();
}

Result<Measurement> Measure::run(std::string* algorithm, std::optional<int>& iterations) {
  const Options& options = context_.options;
  TUTTI_TRY(prepare(algorithm));
  if (!iterations) {
    const Result<int> chosen = choose_iterations();
    if (!chosen) return chosen.status();
    iterations = *chosen;
  }
  Measurement measurement;
  measurement.iterations = *iterations;
  Times times;
  if (*iterations > 0) TUTTI_TRY(time(*iterations, &times));
  if (context_.line != nullptr) {
    const auto lines = context_.line->measure();
    TUTTI_TRY(lines.status());
    measurement.line_ns = *lines;
  }
  keep_places();

  const double operations = std::max(1.0, static_cast<double>(*iterations) * options.aggregate);
  double operation_us = times.elapsed_us / operations;
  double operation_cpu_us = (on_devices() ? times.issue_us : times.cpu_us) / operations;
  TUTTI_TRY(context_.agreement.average(&operation_us, options.average));
  TUTTI_TRY(context_.agreement.average(&operation_cpu_us, options.average));
  if (options.per_iteration) {
    TUTTI_TRY(share_samples(times.samples, &measurement));
  }
  const Case& first = parts_.front().test_case;
  const BandwidthFactors factors = context_.test.factors(first.rank_count);
  const double bytes =
      static_cast<double>(std::max(first.shape.send_count, first.shape.recv_count) * first.type_bytes());
  measurement.time_us = options.cpu_time ? operation_cpu_us : operation_us;
  measurement.algorithm_gbs = gigabytes_per_s(bytes * factors.algorithm, operation_us);
  measurement.bus_gbs = measurement.algorithm_gbs * factors.bus;
  for (int number = 0; number < options.checks && measurement.wrong_ranks == 0; ++number)
    TUTTI_TRY(check_results(number, &measurement));
  return measurement;
}

/// Writes stale results everywhere, and the input of `fresh`.
Status Measure::give_fresh_input(const Part& part, const Case& fresh) {
  Site& site = part.seat.site;
  void* const send = const_cast<void*>(call_of(part, 0).send);
  TUTTI_TRY(site.fill(part.rings.recv(), kStaleByte, fresh.shape.recv_count * fresh.type_bytes()));
  if (site.queue() == nullptr) {
    context_.test.fill(fresh, send);
    return Status::ok();
  }
  std::vector<char> input(fresh.shape.send_count * fresh.type_bytes());
  context_.test.fill(fresh, input.data());
  return input.empty() ? Status::ok() : site.copy(send, input.data(), input.size());
}

Result<size_t> Measure::count_wrong_elements(const Part& part, const Case& fresh) const {
  Site& site = part.seat.site;
  const bool direct = site.queue() == nullptr;
  const char* const results = static_cast<const char*>(call_of(part, 0).recv);
  const size_t element = fresh.type_bytes();
  const size_t total = context_.test.result_count(fresh);
  const size_t block = kCheckBlockBytes / element;
  const size_t piece = direct ? std::max<size_t>(total, 1) : kStagingBytes / element;
  const int tolerance = context_.test.reduces ? tolerance_ulp(fresh.reduction()) : 0;
  std::vector<char> expected(kCheckBlockBytes);
  std::vector<char> staging(direct ? 0 : std::min(piece, total) * element);
  size_t wrong = 0;
  for (size_t begin = 0; begin < total; begin += piece) {
    const size_t end = std::min(total, begin + piece);
    const char* got = results + begin * element;
    if (!direct) {
      TUTTI_TRY(site.copy(staging.data(), got, (end - begin) * element));
      got = staging.data();
    }
    for (size_t first = begin; first < end; first += block) {
      const size_t count = std::min(block, end - first);
      context_.test.expect(fresh, first, count, expected.data());
      wrong += count_wrong(fresh.type, tolerance, got + (first - begin) * element, expected.data(), count);
    }
  }
  return wrong;
}

/// Runs one operation, from a graph if the timed operations came from graphs.
Status Measure::run_once() {
  if (context_.options.graph_launches == 0) {
    TUTTI_TRY(issue());
    return wait();
  }
  const Result<Graphs> graphs = capture([this] { return issue(); });
  if (!graphs) return graphs.status();
  TUTTI_TRY(launch(*graphs));
  return wait();
}

Status Measure::check_results(int check_number, Measurement* measurement) {
  std::vector<Case> fresh;
  for (Part& part : parts_) {
    part.rings = fresh_rings(part.seat, part.layout);
    fresh.push_back(part.test_case);
    fresh.back().seed =
        part.test_case.seed * 64 + static_cast<uint64_t>(check_number) * 2 + (in_place_ ? 1 : 0);
    TUTTI_TRY(give_fresh_input(part, fresh.back()));
  }
  TUTTI_TRY(run_once());
  double totals[2] = {0, 0};
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Result<size_t> wrong = count_wrong_elements(parts_[i], fresh[i]);
    if (!wrong) return wrong.status();
    totals[0] += static_cast<double>(*wrong);
    totals[1] += *wrong > 0 ? 1.0 : 0.0;
  }
  TUTTI_TRY(context_.agreement.sum(totals));
  measurement->wrong = totals[0];
  measurement->wrong_ranks = static_cast<int>(totals[1]);
  return Status::ok();
}

}  // namespace tutti::perf
