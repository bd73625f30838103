// See rank.h.
#include "perf/rank.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

namespace tutti::perf {
namespace {

constexpr size_t kPatternBytes = 1u << 20;
constexpr double kMemoryShare = 0.8;  // of what is available may become buffers

struct AbortComm {
  void operator()(tutti_comm_t* comm) const { (void)tutti_comm_abort(comm); }
};
/// A communicator that is aborted unless it is released to be destroyed.
using OwnedComm = std::unique_ptr<tutti_comm_t, AbortComm>;

struct DestroyStream {
  void operator()(tutti_host_stream_t* stream) const { (void)tutti_host_stream_destroy(stream); }
};
using OwnedStream = std::unique_ptr<tutti_host_stream_t, DestroyStream>;

/// A registered buffer, or nothing.
class Registration {
 public:
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    if (comm_ != nullptr) (void)tutti_comm_deregister(comm_, handle_);
  }
  Status add(tutti_comm_t* comm, const Arena& arena) {
    TUTTI_TRY(
        check(tutti_comm_register(comm, arena.data(), arena.bytes(), &handle_), "registering a buffer"));
    comm_ = comm;
    return Status::ok();
  }

 private:
  tutti_comm_t* comm_ = nullptr;
  void* handle_ = nullptr;
};

Result<OwnedComm> join(const RankTask& task) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.reproducible = task.options.reproducible ? 1 : 0;
  config.timeout_ms = static_cast<uint64_t>(task.options.timeout_s) * 1000;
  tutti_comm_t* comm = nullptr;
  TUTTI_TRY(check(tutti_comm_create(&comm, task.rank_count, task.id, task.rank, &config),
                  "joining the communicator"));
  return OwnedComm(comm);
}

/// An operator of the C API for one subject; a pre-multiplied sum lives as long as this.
class Operator {
 public:
  Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator() {
    if (comm_ != nullptr) (void)tutti_op_destroy(op_, comm_);
  }
  Status create(const Subject& subject, int rank, tutti_comm_t* comm) {
    op_ = tutti_op(subject.op);
    if (subject.op != TestOp::kMulSum) return Status::ok();
    char scalar[8];
    premul_scalar(subject.type, rank, scalar);
    TUTTI_TRY(
        check(tutti_op_create_premul_sum(&op_, scalar, subject.type, comm), "making a pre-multiplied sum"));
    comm_ = comm;
    return Status::ok();
  }
  tutti_op_t value() const { return op_; }

 private:
  tutti_op_t op_ = TUTTI_SUM;
  tutti_comm_t* comm_ = nullptr;
};

class RankRun {
 public:
  RankRun(const RankTask& task, tutti_comm_t* comm)
      : task_(task), comm_(comm), agreement_(comm, task.rank_count), sizes_(message_sizes(task.options)) {}

  Result<Summary> run(MemoryReport memory);

 private:
  Status open_stream();
  Status limit_sizes();
  Status make_buffers();
  Status run_subject(const Subject& subject);
  Status run_row(const RankContext& context, const Subject& subject, tutti_op_t op, uint64_t bytes);
  void fill_arenas(const Subject& subject);
  size_t arena_bytes(uint64_t message_bytes) const;
  Case make_case(const Subject& subject, uint64_t bytes) const;
  Status grow(double* gained, double* level);
  std::string row_name(const Subject& subject, uint64_t bytes) const;

  const RankTask& task_;
  tutti_comm_t* comm_;
  Agreement agreement_;
  std::vector<uint64_t> sizes_;
  std::vector<Subject> subjects_ = list_subjects(task_.options, task_.test, task_.rank_count);
  size_t footprint_bytes_ = ring_footprint(task_.options, last_level_cache_bytes(), task_.rank_count);
  Arena send_;
  Arena recv_;
  Registration send_registration_;
  Registration recv_registration_;
  OwnedStream stream_;
  uint64_t row_number_ = 0;
  double bandwidth_sum_ = 0;
  int measurement_count_ = 0;
  Summary summary_;
};

/// *gained = what resident memory grew by since *level, the largest of all processes.
Status RankRun::grow(double* gained, double* level) {
  const double now = static_cast<double>(resident_bytes());
  *gained = std::max(0.0, now - *level);
  *level = now;
  return agreement_.max({gained, 1});
}

Case RankRun::make_case(const Subject& subject, uint64_t bytes) const {
  Case made{.type = subject.type,
            .op = subject.op,
            .root = subject.root,
            .rank = task_.rank,
            .rank_count = task_.rank_count,
            .seed = row_number_,
            .spread = task_.options.alltoallv_spread};
  made.shape = task_.test.shape(made, bytes / made.type_bytes());
  return made;
}

size_t RankRun::arena_bytes(uint64_t message_bytes) const {
  size_t bytes = 0;
  for (const Subject& subject : subjects_)
    bytes = std::max(bytes,
                     case_layout(task_.options, make_case(subject, message_bytes), footprint_bytes_).bytes());
  return bytes;
}

/// Drops sizes whose buffers would not fit in this host's memory; decided by rank 0 for all.
Status RankRun::limit_sizes() {
  double count = static_cast<double>(sizes_.size());
  const double available = kMemoryShare * static_cast<double>(available_memory_bytes());
  if (available > 0)
    while (count > 0 &&
           2.0 * task_.rank_count * static_cast<double>(arena_bytes(sizes_[static_cast<size_t>(count) - 1])) >
               available)
      --count;
  TUTTI_TRY(agreement_.average(&count, 0));
  if (count < 1)
    return Status(Code::kOutOfMemory,
                  "the buffers for the smallest size do not fit in this machine's memory; use "
                  "--hot, a smaller -b or fewer ranks");
  if (static_cast<size_t>(count) == sizes_.size()) return Status::ok();
  sizes_.resize(static_cast<size_t>(count));
  if (task_.reporter != nullptr)
    task_.reporter->comment(format("Reducing maxBytes to %llu due to memory limitation",
                                   static_cast<unsigned long long>(sizes_.back())));
  return Status::ok();
}

Status RankRun::make_buffers() {
  size_t bytes = 0;
  for (const uint64_t size : sizes_) bytes = std::max(bytes, arena_bytes(size));
  const bool symmetric = task_.options.registration == 2;
  for (Arena* arena : {&send_, &recv_}) {
    Result<Arena> made = Arena::create(std::max<size_t>(bytes, 4096), symmetric);
    if (!made) return made.status();
    *arena = std::move(*made);
  }
  if (task_.options.registration == 0) return Status::ok();
  TUTTI_TRY(send_registration_.add(comm_, send_));
  return recv_registration_.add(comm_, recv_);
}

/// Gives every page of both arenas plausible operands: untouched pages and stray NaNs have times of their
/// own.
void RankRun::fill_arenas(const Subject& subject) {
  const size_t element = test_type_bytes(subject.type);
  const size_t pattern = std::min(kPatternBytes, send_.bytes());
  fill_operand({.type = subject.type, .op = subject.op, .rank_count = task_.rank_count, .seed = 1},
               task_.rank, 0, pattern / element, send_.data());
  for (const Arena* arena : {&send_, &recv_})
    for (size_t offset = arena == &send_ ? pattern : 0; offset < arena->bytes(); offset += pattern)
      std::memcpy(arena->data() + offset, send_.data(), std::min(pattern, arena->bytes() - offset));
}

Status RankRun::open_stream() {
  if (!task_.options.stream) return Status::ok();
  tutti_host_stream_t* stream = nullptr;
  TUTTI_TRY(check(tutti_host_stream_create(&stream), "creating a host stream"));
  stream_.reset(stream);
  return Status::ok();
}

std::string RankRun::row_name(const Subject& subject, uint64_t bytes) const {
  return format("%s %llu B %s %s", task_.test.name, static_cast<unsigned long long>(bytes),
                std::string(test_type_name(subject.type)).c_str(),
                std::string(test_op_name(subject.op)).c_str());
}

Status RankRun::run_row(const RankContext& context, const Subject& subject, tutti_op_t op, uint64_t bytes) {
  ++row_number_;
  const Case row_case = make_case(subject, bytes);
  const std::string name = row_name(subject, bytes);
  if (task_.watchdog != nullptr) task_.watchdog->begin(name);
  if (task_.reporter != nullptr) task_.reporter->running(name);
  Row row{.bytes = std::max(row_case.shape.send_count, row_case.shape.recv_count) * row_case.type_bytes(),
          .count = row_case.shape.count,
          .type = subject.type,
          .op = subject.op,
          .root = subject.root};
  for (const bool in_place : {false, true}) {
    if (in_place && !task_.test.in_place) continue;
    std::string* algorithm = task_.reporter != nullptr && !in_place ? &row.algorithm : nullptr;
    Result<Measurement> measured = Measure(context, row_case, op, in_place).run(algorithm);
    if (!measured) return measured.status();
    bandwidth_sum_ += measured->bus_gbs;
    ++measurement_count_;
    summary_.out_of_bounds += measured->wrong_ranks;
    if (in_place)
      row.in_place = std::move(*measured);
    else
      row.out_of_place = std::move(*measured);
  }
  if (task_.watchdog != nullptr) task_.watchdog->end();
  if (task_.options.timestamps) row.timestamp = time_text();
  return task_.reporter != nullptr ? task_.reporter->row(row) : Status::ok();
}

Status RankRun::run_subject(const Subject& subject) {
  Operator op;
  TUTTI_TRY(op.create(subject, task_.rank, comm_));
  fill_arenas(subject);
  const RankContext context{.options = task_.options,
                            .test = task_.test,
                            .comm = comm_,
                            .stream = stream_.get(),
                            .agreement = agreement_,
                            .send_arena = send_.data(),
                            .recv_arena = recv_.data(),
                            .footprint_bytes = footprint_bytes_};
  for (int cycle = 0; task_.options.cycles == 0 || cycle < task_.options.cycles; ++cycle)
    for (const uint64_t bytes : sizes_) TUTTI_TRY(run_row(context, subject, op.value(), bytes));
  return Status::ok();
}

Result<Summary> RankRun::run(MemoryReport memory) {
  double level = static_cast<double>(resident_bytes());
  const Result<std::vector<RankInfo>> ranks = agreement_.rank_infos();
  if (!ranks) return ranks.status();
  if (task_.reporter != nullptr) {
    const size_t rows = subjects_.size() * sizes_.size() * static_cast<size_t>(task_.options.cycles);
    TUTTI_TRY(task_.reporter->begin(*ranks, rows));
  }
  TUTTI_TRY(limit_sizes());
  TUTTI_TRY(open_stream());
  TUTTI_TRY(make_buffers());
  if (!subjects_.empty()) fill_arenas(subjects_.front());
  TUTTI_TRY(grow(&memory.buffers, &level));
  for (const Subject& subject : subjects_) TUTTI_TRY(run_subject(subject));
  TUTTI_TRY(grow(&memory.running, &level));
  TUTTI_TRY(agreement_.max({&memory.start, 1}));
  TUTTI_TRY(agreement_.max({&memory.communicator, 1}));
  if (measurement_count_ > 0) summary_.mean_bus_gbs = bandwidth_sum_ / measurement_count_;
  summary_.min_bus_gbs = task_.options.min_bus_bandwidth;
  if (task_.options.memory_report) summary_.memory = memory;
  if (task_.reporter != nullptr) TUTTI_TRY(task_.reporter->finish(summary_));
  TUTTI_TRY(agreement_.barrier());
  return summary_;
}

}  // namespace

Result<Summary> run_rank(const RankTask& task) {
  MemoryReport memory{.start = static_cast<double>(resident_bytes())};
  Result<OwnedComm> comm = join(task);
  if (!comm) return comm.status();
  if (task.joined != nullptr) forget_id(*task.joined);
  memory.communicator = std::max(0.0, static_cast<double>(resident_bytes()) - memory.start);
  // The run's buffers, registrations and stream go before the communicator does.
  auto run = std::make_unique<RankRun>(task, comm->get());
  Result<Summary> summary = run->run(memory);
  run.reset();
  if (!summary) return summary;
  TUTTI_TRY(check(tutti_comm_destroy(comm->release()), "leaving the communicator"));
  return summary;
}

}  // namespace tutti::perf
