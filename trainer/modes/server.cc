// Parameter server (Downpour SGD): the first ranks hold the parameters, a slice each, and the others work.
//
// A worker sends its gradient to every server and gets new parameters back: S bytes up and S bytes down. A
// server has a thread and a communicator for each worker, so it takes gradients from any worker as they come.
// --staleness 0, synchronous: an update waits for all workers' gradients, and the result is that of one
// process up to the order of sums. -1, asynchronous: every gradient is an update, and nobody waits. s: the
// same, but a worker that is s steps ahead of the slowest waits (bounded staleness). The run ends after
// --steps gradients for each worker on average: fast workers may compute more of them. Sources: Dean et al.,
// "Large scale distributed deep networks", 2012; Ho et al., "More effective distributed ML via a stale
// synchronous parallel parameter server", 2013.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

using Link = std::unique_ptr<Axis>;  ///< a server, which has rank 0 there, and a worker

/// One server's slice of the parameters.
class Slice {
 public:
  Slice(const Options& options, Parameters& drawn, size_t begin, size_t end, std::vector<Link>& links)
      : options_(options),
        links_(links),
        begin_(begin),
        values_(drawn.values().begin() + static_cast<ptrdiff_t>(begin),
                drawn.values().begin() + static_cast<ptrdiff_t>(end)),
        gradient_(values_.size()),
        wanted_(options.steps * links.size() - links.size()),
        received_(links.size(), std::vector<float>(values_.size())),
        clocks_(links.size()) {
    std::vector<Parameter*> parameters;
    for (Parameter& parameter : drawn.list()) parameters.push_back(&parameter);
    optimizer_ = make_optimizer(options.optimizer,
                                pieces_between(parameters, begin, end, values_.data(), gradient_.data()),
                                values_.size());
    for (size_t worker = 0; worker < links.size(); ++worker)
      threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~Slice() { join(); }

  /// Waits until all workers have made all steps. Throws the first error of a worker's thread.
  void finish() {
    join();
    if (failure_) std::rethrow_exception(failure_);
  }
  void copy_to(std::span<float> whole) const {
    std::copy(values_.begin(), values_.end(), whole.begin() + static_cast<ptrdiff_t>(begin_));
  }
  /// Most steps that a worker was ahead of the slowest when it got parameters.
  size_t ahead_max() const { return ahead_max_; }

 private:
  void join() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  void serve(size_t worker) {
    std::vector<float> reply(values_.size());
    try {
      while (true) {
        float comes = 0;
        links_[worker]->recv({&comes, 1}, 1);
        if (comes == 0) break;
        links_[worker]->recv(received_[worker], 1);
        const float goes_on = take(worker, reply) ? 1 : 0;
        links_[worker]->send(reply, 1);
        links_[worker]->send({&goes_on, 1}, 1);
      }
      const std::lock_guard lock(mutex_);
      clocks_[worker] = kEnded;
      changed_.notify_all();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /// A worker's gradient has come. Fills `reply` with the parameters for its next one. Returns whether there
  /// is to be one; the first server's answer counts.
  bool take(size_t worker, std::vector<float>& reply) {
    std::unique_lock lock(mutex_);
    const int bound = options_.parallel.staleness;
    const size_t clock = ++clocks_[worker];
    if (bound != 0)
      update({&received_[worker], 1});
    else if (slowest() == clock)
      update(received_);
    changed_.notify_all();
    // A worker goes on while it is at most `bound` steps ahead of the slowest.
    changed_.wait(lock,
                  [&] { return bound < 0 || failure_ || clock <= slowest() + static_cast<size_t>(bound); });
    if (failure_) throw Error("another worker has failed");
    ahead_max_ = std::max(ahead_max_, clock - std::min(clock, slowest()));
    reply = values_;
    if (wanted_ == 0) return false;
    --wanted_;
    return true;
  }

  size_t slowest() const { return *std::min_element(clocks_.begin(), clocks_.end()); }

  void update(std::span<const std::vector<float>> gradients) {
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    for (const std::vector<float>& gradient : gradients)
      for (size_t i = 0; i < gradient_.size(); ++i) gradient_[i] += gradient[i];
    const size_t updates_a_step = options_.parallel.staleness == 0 ? 1 : clocks_.size();
    optimizer_->step(updates_ + 1, static_cast<float>(learning_rate(options_, updates_ / updates_a_step)));
    ++updates_;
  }

  static constexpr size_t kEnded = SIZE_MAX / 2;

  const Options& options_;
  std::vector<Link>& links_;
  size_t begin_;
  std::vector<float> values_;
  std::vector<float> gradient_;
  size_t wanted_;                             ///< gradients that no worker has begun
  std::vector<std::vector<float>> received_;  ///< by worker
  std::unique_ptr<Optimizer> optimizer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> clocks_;  ///< by worker: gradients that have come; kEnded
  size_t updates_ = 0;
  size_t ahead_max_ = 0;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

class ServerMode : public Mode {
 public:
  explicit ServerMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        rank_(context.team.rank()),
        servers_(options_.parallel.servers),
        workers_(context.team.count() - servers_),
        model_(context.task.model, options_.seed, SumOverRanks()) {
    if (workers_ < 1)
      throw Error("--servers " + std::to_string(servers_) + " leaves no worker of " +
                  std::to_string(context.team.count()) + " ranks");
    goes_on_ = !is_server();
    if (goes_on_) sampler_.emplace(sampler_of(context, rank_ - servers_, workers_));
    for (int server = 0; server < servers_; ++server)
      for (int worker = servers_; worker < servers_ + workers_; ++worker) {
        const bool mine = rank_ == server || rank_ == worker;
        auto link = std::make_unique<Axis>(context, mine ? 0 : TUTTI_NO_COLOR, "server's link");
        if (mine) links_.push_back(std::move(link));
      }
    if (is_server()) slice_.emplace(options_, model_.parameters(), border(rank_), border(rank_ + 1), links_);
  }

  /// A worker works on while the first server wants gradients, which may be fewer or more than steps.
  Loss step(size_t) override { return goes_on_ ? work() : Loss{}; }
  Loss finish() override {
    Loss loss;
    while (goes_on_) loss += work();
    const float comes = 0;
    if (is_server())
      slice_->finish();
    else
      for (int server = 0; server < servers_; ++server) link(server).send({&comes, 1}, 0);
    return loss;
  }
  bool in_step() const override { return false; }

  void copy_to(std::span<float> whole) override {
    if (is_server()) slice_->copy_to(whole);
  }

  std::vector<Fact> facts() override {
    double sent = 0;
    for (const Link& link : links_) sent += link->sent_bytes();
    const double count =
        is_server() ? static_cast<double>(options_.steps) * workers_ : static_cast<double>(worked_);
    const auto all = static_cast<double>(model_.parameters().values().size_bytes());
    const double part =
        is_server() ? static_cast<double>(part_of(model_.parameters().values(), rank_).size_bytes()) : all;
    // And a number with each message; a worker has one more for each server, the last.
    const double numbers = is_server() ? 1 : servers_ * (1 + 1 / std::max(count, 1.0));
    return {{"gradients", count},
            {"sent bytes a gradient", sent / std::max(count, 1.0)},
            {"by the formula", part + numbers * sizeof(float)},
            {"steps ahead at most", is_server() ? static_cast<double>(slice_->ahead_max()) : 0.0}};
  }

 private:
  Loss work() {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    const size_t targets = options_.batch * context_.task.data.train->targets_per_sample();
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part)
      loss += learn(context_, model_, sampler_->part(worked_, part), targets);
    ++worked_;
    const float comes = 1;
    for (int server = 0; server < servers_; ++server) {
      link(server).send({&comes, 1}, 0);
      link(server).send(part_of(parameters.gradients(), server), 0);
    }
    for (int server = servers_ - 1; server >= 0; --server) {
      float goes_on = 0;
      link(server).recv(part_of(parameters.values(), server), 0);
      link(server).recv({&goes_on, 1}, 0);
      goes_on_ = goes_on != 0;
    }
    return loss;
  }

  bool is_server() const { return rank_ < servers_; }
  Axis& link(int server) { return *links_[static_cast<size_t>(server)]; }
  size_t border(int server) {
    return model_.parameters().values().size() * static_cast<size_t>(server) / static_cast<size_t>(servers_);
  }
  std::span<float> part_of(std::span<float> all, int server) {
    return all.subspan(border(server), border(server + 1) - border(server));
  }

  const ModeContext& context_;
  const Options& options_;
  int rank_;
  int servers_;
  int workers_;
  Model model_;
  std::optional<Sampler> sampler_;
  size_t worked_ = 0;  ///< gradients
  bool goes_on_;
  std::vector<Link> links_;  ///< by the other side
  std::optional<Slice> slice_;
};

}  // namespace

std::unique_ptr<Mode> make_server_mode(const ModeContext& context) {
  return std::make_unique<ServerMode>(context);
}

}  // namespace tutti::trainer
