// Data parallel with tensor fusion in cycles, as Horovod does it, to compare with the buckets of --mode data.
//
// A bucket goes when it is full. A cycle goes when its time has come (--fusion-ms): a thread wakes, the ranks
// agree which gradients are ready on all of them, and one all_reduce takes all of these. Gradients are
// finished in the same order on all ranks, and lie in this order in one buffer: so the agreement is one
// number, and nothing is copied. Bytes a step: 2 (P-1)/P S, as with buckets; a cycle more adds a message.
// Source: Sergeev & Del Balso, "Horovod", 2018.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"

namespace tutti::trainer {
namespace {

/// Reduces gradients from the end of the buffer on, in its own thread.
class Fusion {
 public:
  Fusion(Axis& axis, std::span<float> gradients, double cycle_ms)
      : axis_(axis), gradients_(gradients), cycle_(cycle_ms), ready_(gradients.size()), thread_([this] {
          run();
        }) {}
  ~Fusion() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// The step's gradients from element `begin` on are final.
  void mark_ready(size_t begin) {
    {
      const std::lock_guard lock(mutex_);
      ready_ = begin;
    }
    changed_.notify_all();
  }

  /// Waits until all gradients are sums. Throws the thread's error.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reduced_ == 0 || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    ready_ = reduced_ = gradients_.size();
  }

  size_t cycles() const { return cycles_; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    try {
      while (true) {
        changed_.wait(lock, [&] { return ends_ || ready_ < reduced_; });
        if (ends_) return;
        // The end of the step, not the cycle, if that comes first.
        changed_.wait_for(lock, cycle_, [&] { return ends_ || ready_ == 0; });
        auto agreed = static_cast<uint64_t>(ready_);
        lock.unlock();
        check(tutti_all_reduce(&agreed, &agreed, 1, TUTTI_UINT64, TUTTI_MAX, axis_.comm(), TUTTI_BLOCKING),
              "agreeing on the gradients of a cycle");
        axis_.all_reduce(gradients_.subspan(agreed, reduced_ - agreed));
        lock.lock();
        ++cycles_;
        reduced_ = agreed;
        if (reduced_ == 0) changed_.notify_all();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  Axis& axis_;
  std::span<float> gradients_;
  std::chrono::duration<double, std::milli> cycle_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t ready_;                        ///< from here on gradients are final on this rank
  size_t reduced_ = gradients_.size();  ///< from here on they are sums
  size_t cycles_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

class FusionMode : public Mode {
 public:
  explicit FusionMode(const ModeContext& context)
      : context_(context),
        options_(context.options),
        model_(context.task.model, options_.seed, SumOverRanks()),
        axis_(context, 0, "data axis"),
        optimizer_(make_optimizer(options_.optimizer, model_.parameters())),
        sampler_(sampler_of(context, axis_.rank(), axis_.count())),
        fusion_(axis_, model_.parameters().gradients(), options_.parallel.fusion_ms) {}

  Loss step(size_t step) override {
    Parameters& parameters = model_.parameters();
    std::fill(parameters.gradients().begin(), parameters.gradients().end(), 0.0F);
    const size_t targets = options_.batch * context_.task.data.train->targets_per_sample();
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part) {
      const bool last = part + 1 == options_.accumulate;
      loss += learn(context_, model_, sampler_.part(step, part), targets, [&](const Parameter& parameter) {
        if (last) fusion_.mark_ready(parameter.offset);
      });
    }
    fusion_.finish();
    optimizer_->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    return loss;
  }

  void copy_to(std::span<float> whole) override { model_.parameters().copy_to(whole); }

  std::vector<Fact> facts() override {
    const auto steps = static_cast<double>(options_.steps);
    const double away = 1 - 1 / static_cast<double>(axis_.count());
    return {{"sent bytes a step", axis_.sent_bytes() / steps},
            {"by the formula", 2 * away * static_cast<double>(model_.parameters().gradients().size_bytes())},
            {"cycles a step", static_cast<double>(fusion_.cycles()) / steps}};
  }

 private:
  const ModeContext& context_;
  const Options& options_;
  Model model_;
  Axis axis_;
  std::unique_ptr<Optimizer> optimizer_;
  Sampler sampler_;
  Fusion fusion_;
};

}  // namespace

std::unique_ptr<Mode> make_fusion_mode(const ModeContext& context) {
  return std::make_unique<FusionMode>(context);
}

}  // namespace tutti::trainer
