// Elastic data parallel: ranks die and join, and training goes on.
//
// A call of a rank whose peer has died returns an error. The others make a smaller communicator
// (tutti_comm_shrink), take the parameters of the rank that is furthest, and repeat the step. A new process
// joins by tutti_comm_grow and gets the same. Every step trains on the whole batch, spread over the ranks
// that live: so the result is still that of one process, up to the order of float sums.
// --kill RANK:N kills this rank every N steps. A supervisor starts a new process for each that was killed,
// and draws the lives of all processes with their pauses.
#include "trainer/modes/elastic.h"

#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "perf/launch.h"
#include "trainer/file.h"
#include "trainer/mode.h"
#include "trainer/nursery.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

/// Whether the ranks that live go on without another one.
bool is_loss(tutti_result_t result) {
  return result == TUTTI_PEER_LOST || result == TUTTI_ABORTED;
}

class Member {
 public:
  /// Joins the other first ranks or, later, ranks that train.
  Member(const Options& options, Board& board, const Sketch& clock, const Place& place)
      : options_(options),
        board_(board),
        clock_(clock),
        row_(static_cast<uint32_t>(place.number)),
        task_(options),
        model_(task_.model, options.seed, SumOverRanks()),
        optimizer_(make_optimizer(options.optimizer, model_.parameters())),
        joined_(is_new() ? board.offers.load() : 0) {
    if (is_new())
      check(tutti_comm_grow(nullptr, place.count, &board.id, place.rank, &comm_, nullptr), "joining");
    else
      check(tutti_comm_create(&comm_, place.count, board.id, place.rank, nullptr),
            "joining the communicator");
    number();
    // After a loss the first step shrinks.
    if (const tutti_result_t result = is_new() ? catch_up() : TUTTI_SUCCESS; !is_loss(result))
      check(result, "sharing the parameters");
    spared_ = step_;
  }
  ~Member() { (void)tutti_comm_destroy(comm_); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void run() {
    while (step_ < options_.steps) {
      begin_ = clock_.now();
      const tutti_result_t result = step();
      if (result == TUTTI_SUCCESS) {
        if (rank_ == 0 && step_ % options_.report_every == 0) std::printf("%8zu %12.6f\n", step_, loss_);
        continue;
      }
      if (is_loss(result)) {
        const std::string reason = tutti_last_error();
        const size_t begun = step_ + 1;
        shrink();
        // A survivor that had made the step passes its result on: then nothing is lost.
        const double ms = pause("loss");
        if (rank_ == 0)
          std::printf("step %zu: %s\n  %d ranks go on after %.1f ms, lost steps %zu\n", begun, reason.c_str(),
                      count_, ms, begun - step_);
        std::fflush(stdout);
        continue;
      }
      check(result, "reducing gradients");
    }
    if (rank_ != 0) return;
    report_end(options_, model_, evaluate(model_, *task_.data.held_out));
  }

 private:
  bool is_new() const { return row_ >= static_cast<uint32_t>(options_.ranks); }

  /// Notes a pause that began at begin_. Returns its milliseconds.
  double pause(const char* label) {
    const Stroke stroke = Stroke::of(row_, Stroke::Kind::kPause, begin_, clock_.now(), label);
    if (const uint32_t at = board_.pause_count++; at < board_.pauses.size()) board_.pauses[at] = stroke;
    return 1e3 * (stroke.end - stroke.begin);
  }

  tutti_result_t step() {
    const ParallelOptions& parallel = options_.parallel;
    // Not again when the step is repeated, and not while a rank is missing.
    const bool dies = rank_ == parallel.kill_rank && count_ == options_.ranks &&
                      step_ % parallel.kill_step == 0 && step_ != spared_;
    spared_ = step_;
    uint32_t offers = board_.offers.load();
    tutti_result_t result =
        tutti_all_reduce(&offers, &offers, 1, TUTTI_UINT32, TUTTI_MIN, comm_, TUTTI_BLOCKING);
    if (result != TUTTI_SUCCESS) return result;
    if (offers > joined_) {
      grow(offers);
      return step();  // the newcomer begins here, too
    }
    // Here all ranks have made the step before, so it is this step that they lose.
    if (dies) std::raise(SIGKILL);
    const std::span<float> gradients = model_.parameters().gradients();
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    Sampler sampler({.sample_count = task_.data.train->sample_count(),
                     .batch_count = options_.batch,
                     .rank = rank_,
                     .rank_count = count_,
                     .uneven = true,
                     .seed = options_.seed});
    const size_t targets = sampler.batch_count(step_) * task_.data.train->targets_per_sample();
    const Loss loss = learn({options_, task_, sketch_, rank_}, model_, sampler.part(step_, 0), targets);
    loss_ = loss.nats();
    result = tutti_all_reduce(gradients.data(), gradients.data(), gradients.size(), TUTTI_FLOAT32, TUTTI_SUM,
                              comm_, TUTTI_BLOCKING);
    if (result != TUTTI_SUCCESS) return result;
    optimizer_->step(step_ + 1, static_cast<float>(learning_rate(options_, step_)));
    ++step_;
    return TUTTI_SUCCESS;
  }

  void shrink() {
    for (bool is_whole = false; !is_whole;) {
      tutti_comm_t* smaller = nullptr;
      check(tutti_comm_shrink(comm_, nullptr, 0, TUTTI_SHRINK_ABORT, &smaller, nullptr),
            "going on without a rank");
      is_whole = replace(smaller);
      if (rank_ == 0) board_.count = count_;
    }
  }

  /// A newcomer that has died costs its offer only: the supervisor makes another one.
  void grow(uint32_t offers) {
    begin_ = clock_.now();
    tutti_comm_t* larger = nullptr;
    const tutti_result_t result = tutti_comm_grow(comm_, count_ + 1, &board_.id, -1, &larger, nullptr);
    const std::string reason = tutti_last_error();
    if (!is_loss(result) && result != TUTTI_TIMEOUT) check(result, "letting a rank in");
    // After a loss the next step shrinks.
    if (larger != nullptr) (void)replace(larger);
    joined_ = offers;
    const double ms = pause("join");
    if (rank_ != 0) return;
    board_.count = count_;
    board_.joins = offers;
    if (larger != nullptr)
      std::printf("step %zu: a rank joined, %d ranks go on after %.1f ms\n", step_ + 1, count_, ms);
    else
      std::printf("step %zu: no rank joined: %s\n", step_ + 1, reason.c_str());
    std::fflush(stdout);
  }

  /// Returns whether all ranks of the new communicator have the same state; else one is lost.
  bool replace(tutti_comm_t* comm) {
    tutti_comm_t* old = std::exchange(comm_, comm);
    number();
    const tutti_result_t result = catch_up();
    if (!is_loss(result)) check(result, "sharing the parameters");
    // Now every rank has the new one: nobody waits for the old one.
    (void)tutti_comm_destroy(old);
    return result == TUTTI_SUCCESS;
  }

  void number() {
    check(tutti_comm_rank(comm_, &rank_), "asking for the rank");
    check(tutti_comm_count(comm_, &count_), "asking for the rank count");
  }

  /// All ranks take the state of the first rank that has made most steps. After an error this rank has its
  /// own state still: half of another's would be no state of any step.
  tutti_result_t catch_up() {
    std::vector<uint64_t> steps(static_cast<size_t>(count_));
    const uint64_t own = step_;
    tutti_result_t result = tutti_all_gather(&own, steps.data(), 1, TUTTI_UINT64, comm_, TUTTI_BLOCKING);
    if (result != TUTTI_SUCCESS) return result;
    const auto furthest = std::max_element(steps.begin(), steps.end());
    const int root = static_cast<int>(furthest - steps.begin());
    std::vector<std::span<float>> lists = {model_.parameters().values()};
    for (std::vector<float>& list : optimizer_->state()) lists.emplace_back(list);
    std::vector<std::vector<float>> shared;
    for (const std::span<float> list : lists) {
      std::vector<float>& one = shared.emplace_back(list.begin(), list.end());
      result =
          tutti_broadcast(one.data(), one.data(), one.size(), TUTTI_FLOAT32, root, comm_, TUTTI_BLOCKING);
      if (result != TUTTI_SUCCESS) return result;
    }
    for (size_t i = 0; i < lists.size(); ++i) std::copy(shared[i].begin(), shared[i].end(), lists[i].begin());
    step_ = *furthest;
    return TUTTI_SUCCESS;
  }

  const Options& options_;
  Board& board_;
  const Sketch& clock_;  ///< of all processes
  uint32_t row_;
  Task task_;
  Sketch sketch_{0};
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  uint32_t joined_;  ///< offers that were taken
  tutti_comm_t* comm_ = nullptr;
  int rank_ = 0;
  int count_ = 0;
  size_t step_ = 0;  ///< steps made
  size_t spared_ = SIZE_MAX;
  double loss_ = 0;
  double begin_ = 0;
};

}  // namespace

int run_elastic(const Options& options) try {
  for (const auto& path : {options.parallel.drawing, options.parallel.parameters})
    if (!path.empty()) try_to_write(path);
  if (options.parallel.hosts > 0) perf::emulate_host(options.parallel.hosts, 0, 1);
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || tutti_get_unique_id(&static_cast<Board*>(memory)->id) != TUTTI_SUCCESS) {
    std::fprintf(stderr, "trainer: cannot start ranks: %s\n", tutti_last_error());
    return 1;
  }
  auto& board = *static_cast<Board*>(memory);  // zeroed, as it should begin
  Sketch clock(0);
  clock.begin();
  std::vector<Stroke> strokes;
  const int status = supervise(options, board, clock, strokes,
                               [&](const Place& place) { Member(options, board, clock, place).run(); });
  if (options.parallel.drawing.empty()) return status;
  const size_t rows = strokes.size();
  strokes.insert(strokes.end(), board.pauses.begin(),
                 board.pauses.begin() + std::min<size_t>(board.pause_count, board.pauses.size()));
  const std::string svg = draw(strokes, rows, "elastic, measured: lives of processes, and pauses", "process");
  write_file(options.parallel.drawing, std::as_bytes(std::span(svg)));
  return status;
} catch (const std::exception& error) {
  std::fprintf(stderr, "trainer: %s\n", text_of(error).c_str());
  return 1;
}

}  // namespace tutti::trainer
