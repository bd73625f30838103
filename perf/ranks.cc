#include "perf/ranks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "api/forced_algorithm.h"
#include "core/random.h"

namespace tutti::perf {
namespace {

constexpr size_t kPatternBytes = 1u << 20;
constexpr std::string_view kLibrarysChoice = "default";
constexpr double kMemoryShare = 0.8;  // share of the available memory that may become buffers

struct AbortComm {
  void operator()(tutti_comm_t* comm) const { (void)tutti_comm_abort(comm); }
};
/// Aborts its communicator, unless the communicator is released first.
using OwnedComm = std::unique_ptr<tutti_comm_t, AbortComm>;

struct LocalRank {
  std::unique_ptr<Site> site;
  std::unique_ptr<SiteMemory> exchange;  ///< for the Agreement
  std::unique_ptr<SiteMemory> send;
  std::unique_ptr<SiteMemory> recv;
  size_t place = 0;  ///< as Seat::place
  OwnedComm comm;
  /// Null if nothing could be registered.
  tutti_registered_memory_t* registered_send = nullptr;
  tutti_registered_memory_t* registered_recv = nullptr;

  int device() const { return site->facts().device; }
};

Status register_buffers(LocalRank& rank) {
  const auto add = [&](const SiteMemory& memory, tutti_registered_memory_t** registered) {
    return check(tutti_memory_register(rank.comm.get(), memory.data(), memory.bytes(), registered),
                 "registering a buffer");
  };
  TUTTI_TRY(add(*rank.send, &rank.registered_send));
  return add(*rank.recv, &rank.registered_recv);
}

/// Afterwards nothing is registered, even after an error.
Status deregister_buffers(LocalRank& rank) {
  const auto drop = [&](tutti_registered_memory_t*& registered) {
    return check(tutti_memory_deregister(rank.comm.get(), std::exchange(registered, nullptr)),
                 "deregistering a buffer");
  };
  const Status send = drop(rank.registered_send);
  const Status recv = drop(rank.registered_recv);
  return send ? recv : send;
}

/// The thread's ranks. Communicators always go before memory. To free a device's memory waits for operations
/// on it, and in a failed run the abort ends those operations.
class LocalRanks {
 public:
  explicit LocalRanks(size_t count) {
    for (size_t i = 0; i < count; ++i) ranks_.push_back(std::make_unique<LocalRank>());
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;
  ~LocalRanks() {
    for (const auto& rank : ranks_) rank->comm.reset();
  }
  LocalRank& operator[](size_t index) const { return *ranks_[index]; }
  size_t size() const { return ranks_.size(); }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }

  /// Runs `act` on every rank, each in its own thread: for calls in which a rank waits for all other ranks.
  Status at_once(const std::function<Status(size_t index, LocalRank& rank)>& act) const {
    std::vector<Status> results(ranks_.size());
    const auto run = [&](size_t index) { results[index] = act(index, *ranks_[index]); };
    std::vector<std::thread> threads;
    for (size_t index = 1; index < ranks_.size(); ++index) threads.emplace_back(run, index);
    run(0);
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) TUTTI_TRY(result);
    return Status::ok();
  }

  Status leave() {
    Status first = at_once([](size_t, LocalRank& rank) { return deregister_buffers(rank); });
    for (const auto& rank : ranks_) {
      const Status left = check(tutti_comm_destroy(rank->comm.release()), "leaving the communicator");
      if (first) first = left;
    }
    return first;
  }

 private:
  std::vector<std::unique_ptr<LocalRank>> ranks_;
};

tutti_config_t config_of(const ThreadTask& task, const LocalRank& local) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  if (local.device() >= 0) config.device = TUTTI_CUDA_DEVICE(local.device());
  config.reproducible = task.options.reproducible ? 1 : 0;
  config.timeout_ms = static_cast<uint64_t>(task.options.timeout_s) * 1000;
  return config;
}

Status join(const ThreadTask& task, int rank, LocalRank& local) {
  const tutti_config_t config = config_of(task, local);
  tutti_comm_t* comm = nullptr;
  TUTTI_TRY(
      check(tutti_comm_create(&comm, task.rank_count, task.id, rank, &config), "joining the communicator"));
  local.comm.reset(comm);
  // A name that is wrong must show before anything is measured.
  for (const std::string& name : task.options.algorithms) {
    if (name != kLibrarysChoice) TUTTI_TRY(force_algorithm(comm, name.c_str()));
  }
  return force_algorithm(comm, nullptr);
}

Status join_all(const ThreadTask& task, const LocalRanks& ranks) {
  return ranks.at_once([&](size_t index, LocalRank& local) {
    return join(task, task.first_rank + static_cast<int>(index), local);
  });
}

/// An operator of the C API for one subject. A pre-multiplied sum lives as long as this object.
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

/// What a team has learned of calls of one size.
struct Known {
  bool is_served = true;                  ///< such calls run by the algorithm that is wanted
  std::optional<int> iterations[2] = {};  ///< of a row: out of place, in place
};

/// What the ranks measure with: one of --algorithms, or what the library chooses.
struct Team {
  std::string wanted;  ///< "": no algorithm was named
  std::vector<Operator> ops;
  std::vector<Seat> seats = {};
  std::map<uint64_t, Known> known = {};  ///< by bytes
};

class ThreadRun {
 public:
  ThreadRun(const ThreadTask& task, LocalRanks& ranks)
      : task_(task), ranks_(ranks), agreement_(task.rank_count), sizes_(message_sizes(task.options)) {}

  Result<Summary> run(MemoryReport memory);

 private:
  Status begin();
  Status find_cores();
  Status limit_sizes();
  Status make_buffers();
  Result<size_t> draw(size_t count) const;
  Status run_subject(const Subject& subject);
  Result<Team> make_team(const Subject& subject, size_t number) const;
  Status run_row(Team& team, const Subject& subject, uint64_t bytes, bool counts);
  Status choose_algorithm(const Team& team) const;
  Status settle(Team& team, uint64_t bytes, Measure measure);
  void report_traffic(const Case& test, const Row& row);
  Status fill_arenas(const Subject& subject);
  size_t arena_bytes(uint64_t message_bytes) const;
  Case make_case(const Subject& subject, uint64_t bytes, size_t index) const;
  Status grow(double* gained, double* level);
  std::string row_name(const Subject& subject, uint64_t bytes) const;
  const Site& first_site() const { return *ranks_[0].site; }

  const ThreadTask& task_;
  LocalRanks& ranks_;
  Agreement agreement_;
  std::unique_ptr<LineProbe> line_ = {};  ///< null: the cores of the ranks are not known
  std::vector<uint64_t> sizes_;
  std::vector<Subject> subjects_ = list_subjects(task_.options, task_.test, task_.rank_count);
  int sharing_ = 1;  ///< most_sharing_memory of this thread's ranks
  size_t footprint_bytes_ = 0;
  uint64_t row_number_ = 0;
  double bandwidth_sum_ = 0;
  int measurement_count_ = 0;
  Summary summary_;
};

/// *gained = growth of the memory in use since *level, the largest of all threads.
Status ThreadRun::grow(double* gained, double* level) {
  const double now = static_cast<double>(first_site().used_bytes());
  *gained = std::max(0.0, now - *level);
  *level = now;
  return agreement_.max({gained, 1});
}

Case ThreadRun::make_case(const Subject& subject, uint64_t bytes, size_t index) const {
  Case made{.type = subject.type,
            .op = subject.op,
            .root = subject.root,
            .rank = task_.first_rank + static_cast<int>(index),
            .rank_count = task_.rank_count,
            .seed = row_number_,
            .spread = task_.options.alltoallv_spread,
            .traffic = task_.traffic};
  made.shape = task_.test.shape(made, bytes / made.type_bytes());
  return made;
}

size_t ThreadRun::arena_bytes(uint64_t message_bytes) const {
  size_t bytes = 0;
  for (const Subject& subject : subjects_)
    for (size_t index = 0; index < ranks_.size(); ++index)
      bytes = std::max(
          bytes,
          case_layout(task_.options, make_case(subject, message_bytes, index), footprint_bytes_).bytes());
  return bytes;
}

/// Exchanges the ranks' identities, and counts the ranks that share this thread's device or host. Rank 0
/// reports.
Status ThreadRun::begin() {
  for (const auto& rank : ranks_) agreement_.add(*rank->site, rank->comm.get(), rank->exchange->data());
  const Result<std::vector<RankInfo>> infos = agreement_.rank_infos();
  if (!infos) return infos.status();
  summary_.on_devices = first_site().facts().on_device();
  sharing_ = most_sharing_memory(*infos, static_cast<size_t>(task_.first_rank), ranks_.size());
  footprint_bytes_ = ring_footprint(task_.options, first_site().facts().cache_bytes, sharing_);
  TUTTI_TRY(find_cores());
  std::optional<Floors> floors;
  if (task_.options.floors) {
    // Nothing else uses the device meanwhile.
    TUTTI_TRY(agreement_.barrier());
    if (task_.first_rank == 0) {
      const Result<Floors> measured = measure_floors(*ranks_[0].site);
      if (!measured) return measured.status();
      floors = *measured;
    }
    TUTTI_TRY(agreement_.barrier());
  }
  if (task_.reporter == nullptr) return Status::ok();
  const size_t rows = subjects_.size() * sizes_.size() * static_cast<size_t>(task_.options.cycles) *
                      std::max<size_t>(1, task_.options.algorithms.size());
  return task_.reporter->begin(*infos, rows, floors);
}

Status ThreadRun::find_cores() {
  const Options& options = task_.options;
  if (!options.bind || options.processes < 2 || options.ranks_per_process() > 1 || summary_.on_devices)
    return Status::ok();
  auto line = LineProbe::make(agreement_, task_.first_rank);
  TUTTI_TRY(line.status());
  line_ = std::move(*line);
  return Status::ok();
}

/// Drops sizes whose buffers do not fit in the memory of every host or device.
Status ThreadRun::limit_sizes() {
  double count = static_cast<double>(sizes_.size());
  for (const auto& rank : ranks_) {
    const double available = kMemoryShare * static_cast<double>(rank->site->available_bytes());
    if (available > 0)
      while (count > 0 &&
             2.0 * sharing_ * static_cast<double>(arena_bytes(sizes_[static_cast<size_t>(count) - 1])) >
                 available)
        --count;
  }
  TUTTI_TRY(agreement_.min({&count, 1}));
  if (count < 1)
    return Status(Code::kOutOfMemory,
                  format("the buffers for the smallest size do not fit in this %s's memory; use "
                         "--hot, a smaller -b or fewer ranks",
                         summary_.on_devices ? "device" : "machine"));
  if (static_cast<size_t>(count) == sizes_.size()) return Status::ok();
  sizes_.resize(static_cast<size_t>(count));
  if (task_.reporter != nullptr)
    task_.reporter->comment(format("Reducing maxBytes to %llu due to memory limitation",
                                   static_cast<unsigned long long>(sizes_.back())));
  return Status::ok();
}

Status ThreadRun::make_buffers() {
  size_t bytes = 4096;
  for (const uint64_t size : sizes_) bytes = std::max(bytes, arena_bytes(size));
  for (const auto& rank : ranks_) {
    for (std::unique_ptr<SiteMemory>* arena : {&rank->send, &rank->recv}) {
      auto made = rank->site->allocate(bytes, task_.options.registration == 2);
      if (!made) return made.status();
      *arena = std::move(*made);
    }
  }
  if (task_.options.registration != 1) return Status::ok();
  return ranks_.at_once([](size_t, LocalRank& rank) { return register_buffers(rank); });
}

/// Writes plausible operands to every page of all arenas, because untouched pages and stray NaNs change the
/// times.
Status ThreadRun::fill_arenas(const Subject& subject) {
  const size_t element = test_type_bytes(subject.type);
  for (size_t index = 0; index < ranks_.size(); ++index) {
    const LocalRank& rank = ranks_[index];
    std::vector<char> pattern(std::min(kPatternBytes, rank.send->bytes()));
    fill_operand({.type = subject.type, .op = subject.op, .rank_count = task_.rank_count, .seed = 1},
                 task_.first_rank + static_cast<int>(index), 0, pattern.size() / element, pattern.data());
    for (const SiteMemory* arena : {rank.send.get(), rank.recv.get()})
      for (size_t offset = 0; offset < arena->bytes(); offset += pattern.size())
        TUTTI_TRY(rank.site->copy(arena->data() + offset, pattern.data(),
                                  std::min(pattern.size(), arena->bytes() - offset)));
  }
  return Status::ok();
}

std::string ThreadRun::row_name(const Subject& subject, uint64_t bytes) const {
  return format("%s %llu B %s %s", task_.test.name, static_cast<unsigned long long>(bytes),
                std::string(test_type_name(subject.type)).c_str(),
                std::string(test_op_name(subject.op)).c_str());
}

/// All of --algorithms use the same links, so that each finds them as the calls of a job do.
Status ThreadRun::choose_algorithm(const Team& team) const {
  if (team.wanted.empty()) return Status::ok();
  for (const Seat& seat : team.seats)
    TUTTI_TRY(force_algorithm(seat.comm, team.wanted == kLibrarysChoice ? nullptr : team.wanted.c_str()));
  return Status::ok();
}

/// Once for each size of a team of --algorithms: finds out whether its algorithm serves the call, and settles
/// its calls. All ranks come to the same answer.
Status ThreadRun::settle(Team& team, uint64_t bytes, Measure measure) {
  const auto [at, is_new] = team.known.try_emplace(bytes);
  if (!is_new || team.wanted.empty()) return Status::ok();
  const auto ran = measure.find_algorithm();
  TUTTI_TRY(ran.status());
  at->second.is_served = team.wanted == kLibrarysChoice || *ran == team.wanted;
  if (at->second.is_served) return measure.settle();
  if (task_.reporter != nullptr)
    task_.reporter->comment(format("%s does not serve %llu bytes: no row", team.wanted.c_str(),
                                   static_cast<unsigned long long>(bytes)));
  return Status::ok();
}

/// `counts`: the row is one of the results.
Status ThreadRun::run_row(Team& team, const Subject& subject, uint64_t bytes, bool counts) {
  const ThreadContext context{.options = task_.options,
                              .test = task_.test,
                              .agreement = agreement_,
                              .seats = team.seats,
                              .footprint_bytes = footprint_bytes_,
                              .line = line_.get()};
  ++row_number_;
  std::vector<SeatCase> cases;
  for (size_t index = 0; index < ranks_.size(); ++index)
    cases.push_back({.test_case = make_case(subject, bytes, index), .op = team.ops[index].value()});
  const Case& first = cases.front().test_case;
  const std::string name = row_name(subject, bytes);
  if (task_.watchdog != nullptr) task_.watchdog->begin(name);
  if (task_.reporter != nullptr) task_.reporter->running(name);
  TUTTI_TRY(choose_algorithm(team));
  TUTTI_TRY(settle(team, bytes, Measure(context, cases, false)));
  Known& known = team.known.at(bytes);
  if (!known.is_served) {
    if (task_.watchdog != nullptr) task_.watchdog->end();
    return Status::ok();
  }
  Row row{.bytes = std::max(first.shape.send_count, first.shape.recv_count) * first.type_bytes(),
          .count = first.shape.count,
          .type = subject.type,
          .op = subject.op,
          .root = subject.root,
          .wanted = team.wanted};
  for (const bool in_place : {false, true}) {
    if (in_place && (!task_.test.in_place || task_.options.out_of_place_only || !counts)) continue;
    std::string* algorithm = task_.reporter != nullptr && !in_place ? &row.algorithm : nullptr;
    Result<Measurement> measured =
        Measure(context, cases, in_place).run(algorithm, known.iterations[in_place]);
    if (!measured) return measured.status();
    summary_.out_of_bounds += measured->wrong_ranks;
    if (!counts) continue;
    bandwidth_sum_ += measured->bus_gbs;
    ++measurement_count_;
    if (in_place)
      row.in_place = std::move(*measured);
    else
      row.out_of_place = std::move(*measured);
  }
  if (task_.watchdog != nullptr) task_.watchdog->end();
  if (!counts) return Status::ok();
  if (task_.options.timestamps) row.timestamp = time_text();
  if (task_.reporter == nullptr) return Status::ok();
  if (task_.options.traffic_summary && task_.test.uneven_traffic) report_traffic(first, row);
  return task_.reporter->row(row);
}

/// nccl-tests' lines for NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY.
void ThreadRun::report_traffic(const Case& test, const Row& row) {
  const double time_us = row.out_of_place.time_us;
  const TrafficMatrix* const traffic = test.traffic;
  const std::string mode =
      traffic != nullptr ? format("mode=matrix nranks=%d matrix_dim=%d scale=%.3f", test.rank_count,
                                  traffic->dimension(), task_.options.traffic_scale)
                         : format("mode=generated nranks=%d total_bytes=%zu spread=%.3f", test.rank_count,
                                  test.shape.send_count * test.type_bytes(), test.spread);
  task_.reporter->comment(
      format("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: %s time_usec=%.2f", mode.c_str(), time_us));
  for (int rank = 0; rank < test.rank_count; ++rank) {
    const size_t whole = test.shape.send_count * test.type_bytes();
    const size_t sent = traffic != nullptr ? traffic->sent(rank, test.rank_count) : whole;
    const size_t received = traffic != nullptr ? traffic->received(rank, test.rank_count) : whole;
    const double algorithm = gigabytes_per_s(static_cast<double>(std::max(sent, received)), time_us);
    task_.reporter->comment(format("  rank=%d send_bytes=%zu recv_bytes=%zu alg_bw=%.2f bus_bw=%.2f", rank,
                                   sent, received, algorithm,
                                   algorithm * task_.test.factors(test.rank_count).bus));
  }
}

Result<Team> ThreadRun::make_team(const Subject& subject, size_t number) const {
  const auto& names = task_.options.algorithms;
  Team team{.wanted = names.empty() ? "" : names[number], .ops = std::vector<Operator>(ranks_.size())};
  for (size_t index = 0; index < ranks_.size(); ++index) {
    LocalRank& rank = ranks_[index];
    tutti_comm_t* const comm = rank.comm.get();
    TUTTI_TRY(team.ops[index].create(subject, task_.first_rank + static_cast<int>(index), comm));
    team.seats.push_back({.site = *rank.site,
                          .comm = comm,
                          .send_arena = rank.send->data(),
                          .recv_arena = rank.recv->data(),
                          .place = rank.place});
  }
  return team;
}

/// A number below `count` that rank 0 draws for all ranks.
Result<size_t> ThreadRun::draw(size_t count) const {
  uint32_t bits = 0;
  if (task_.first_rank == 0) TUTTI_TRY(fill_random(std::as_writable_bytes(std::span(&bits, 1))));
  auto drawn = static_cast<double>(bits % count);
  TUTTI_TRY(agreement_.max({&drawn, 1}));
  return static_cast<size_t>(drawn);
}

Status ThreadRun::run_subject(const Subject& subject) {
  std::vector<Team> teams;
  for (size_t number = 0; number < std::max<size_t>(1, task_.options.algorithms.size()); ++number) {
    auto team = make_team(subject, number);
    TUTTI_TRY(team.status());
    teams.push_back(std::move(*team));
  }
  if (&subject != subjects_.data()) TUTTI_TRY(fill_arenas(subject));
  // Another one each time, and in each start: a row depends on what the one before it has left in the caches.
  size_t first = 0;
  if (teams.size() > 1) {
    const auto drawn = draw(teams.size());
    TUTTI_TRY(drawn.status());
    first = *drawn;
  }
  for (int cycle = 0; task_.options.cycles == 0 || cycle < task_.options.cycles; ++cycle) {
    const bool backwards = cycle % 2 != 0;
    // The first row behind those of another size takes up to 1.3 times as long. In the first turn untimed
    // calls precede each row.
    const bool warms = cycle > 0 && teams.size() > 1 && sizes_.size() > 1;
    for (const uint64_t bytes : sizes_) {
      std::vector<Team*> order;
      for (size_t i = 0; i < teams.size(); ++i)
        order.push_back(&teams[(first + (backwards ? teams.size() - 1 - i : i)) % teams.size()]);
      const auto serves = [&](const Team* team) { return team->known.at(bytes).is_served; };
      if (warms) {
        const auto last = std::find_if(order.rbegin(), order.rend(), serves);
        if (last != order.rend()) TUTTI_TRY(run_row(**last, subject, bytes, false));
      }
      for (Team* const team : order) TUTTI_TRY(run_row(*team, subject, bytes, true));
      ++first;
    }
  }
  return Status::ok();
}

Result<Summary> ThreadRun::run(MemoryReport memory) {
  double level = static_cast<double>(first_site().used_bytes());
  TUTTI_TRY(begin());
  TUTTI_TRY(limit_sizes());
  TUTTI_TRY(make_buffers());
  if (!subjects_.empty()) TUTTI_TRY(fill_arenas(subjects_.front()));  // run_subject fills for the others
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

Result<Summary> run_ranks(const ThreadTask& task) {
  LocalRanks ranks(static_cast<size_t>(task.options.ranks_per_thread()));
  for (size_t index = 0; index < ranks.size(); ++index) {
    auto site = task.seating.open(task.options, task.thread, static_cast<int>(index));
    if (!site) return site.status();
    ranks[index].site = std::move(*site);
    auto exchange = ranks[index].site->allocate_shared(Agreement::memory_bytes(task.rank_count));
    if (!exchange) return exchange.status();
    ranks[index].exchange = std::move(*exchange);
  }
  const Site& first = *ranks[0].site;
  MemoryReport memory{.start = static_cast<double>(first.used_bytes())};
  const Status joined = join_all(task, ranks);
  // The id file of a failed set-up must go too, so that the next run does not find it.
  if (task.joined != nullptr) forget_id(*task.joined);
  TUTTI_TRY(joined);
  memory.communicator = std::max(0.0, static_cast<double>(first.used_bytes()) - memory.start);
  Result<Summary> summary = ThreadRun(task, ranks).run(memory);
  if (!summary) return summary;
  TUTTI_TRY(ranks.leave());
  return summary;
}

}  // namespace tutti::perf
