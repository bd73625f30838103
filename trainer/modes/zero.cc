// Sharded data parallelism (ZeRO): what every rank would hold alike, each of P ranks holds a P-th of.
//
// --zero-stage 1: the optimizer's state; 2: and the gradients; 3: and the parameters. A unit is a layer. Its
// gradients are reduce_scattered, and each rank updates its shard. An all_gather joins the shards: in stage 3
// before each pass through the unit, while the unit before computes (prefetch), else after the update.
// With S bytes of parameters a rank sends 2 (P-1)/P S a step, in stage 3 3 (P-1)/P S.
// --offload FOLDER: shards and optimizer state lie in a file while their unit is not in use (GeePS).
// The result is that of one process up to the order of sums. Sources: Rajbhandari et al., "ZeRO", 2020; Cui
// et al., "GeePS", 2016.
#include <array>
#include <deque>
#include <optional>

#include "trainer/mesh.h"
#include "trainer/modes/list.h"
#include "trainer/optimizer.h"
#include "trainer/shelf.h"

namespace tutti::trainer {
namespace {

using Buffer = BackendVector<float>;

/// A layer with its parameters, as one run of numbers that is cut into a shard for each rank.
struct Unit {
  Layer* layer = nullptr;
  std::vector<Parameter*> parameters = {};  ///< none: a layer without parameters
  size_t shard = 0;                         ///< numbers of each rank's shard
  size_t shelf = 0;                         ///< place on the shelf, with offload
  Buffer values = {};                       ///< of all ranks; not in stage 3
  Buffer gradients = {};                    ///< of all ranks; stage 1 only
  std::vector<float> own_values = {};       ///< in stage 3, without offload
  std::vector<float> own_gradients = {};
  std::unique_ptr<Optimizer> optimizer = {};

  size_t begin() const { return parameters.front()->offset; }
};

class ZeroMode : public Mode {
 public:
  explicit ZeroMode(const ModeContext& context)
      : options_(context.options),
        stage_(options_.parallel.zero_stage),
        data_(*context.task.data.train),
        axis_(context.team.gradients(), 0, "data axis"),
        ranks_(static_cast<size_t>(axis_.count())),
        rank_(static_cast<size_t>(axis_.rank())),
        model_(context.task.model, options_.seed, SumOverRanks(), multiply, host_backend(),
               {.allocates = false}),
        sampler_(sampler_of(context, axis_.rank(), axis_.count())) {
    if (!options_.parallel.offload.empty()) shelf_.emplace(options_.parallel.offload);
    if (shelf_ && stage_ < 3)
      throw Error("--offload moves parameters out of memory: it needs --zero-stage 3");
    for (Model::Named& named : model_.layers()) add_unit(named);
    for (Buffer& room : rooms_)
      if (stage_ == 3) room = Buffer(largest_ * ranks_, host_backend());
    if (stage_ >= 2) work_ = Buffer(largest_ * ranks_, host_backend());
    sum_.resize(largest_);
    for (Unit& unit : units_) fill(unit);
  }

  Loss step(size_t step) override {
    Loss loss;
    for (size_t part = 0; part < options_.accumulate; ++part) loss += pass(sampler_.part(step, part));
    for (Unit& unit : units_) {
      if (unit.parameters.empty()) continue;
      if (stage_ == 1) reduce(unit, unit.gradients);
      update(unit, step);
      if (stage_ < 3) axis_.all_gather({own(unit), unit.shard}, unit.values.data());
    }
    return loss;
  }

  void copy_to(std::span<float> whole) override {
    for (Unit& unit : units_) {
      if (unit.parameters.empty()) continue;
      const float* values = bring(unit);
      const Parameter& last = *unit.parameters.back();
      const size_t first = unit.begin() + rank_ * unit.shard;
      const size_t end = std::min(first + unit.shard, last.offset + last.count());
      for (size_t i = first; i < end; ++i) whole[i] = values[i - first];
    }
  }

  std::vector<Fact> facts() override {
    size_t values = staging_.size() + rooms_[0].size() + rooms_[1].size();
    size_t gradients = work_.size() + sum_.size();
    size_t state = 0;
    size_t all = 0;
    for (Unit& unit : units_) {
      values += unit.values.size() + unit.own_values.size();
      gradients += unit.gradients.size() + unit.own_gradients.size();
      all += unit.shard * ranks_;
      if (!unit.parameters.empty() && !shelf_)
        for (const std::vector<float>& numbers : unit.optimizer->state()) state += numbers.size();
    }
    const auto bytes = [](size_t count) { return static_cast<double>(count * sizeof(float)); };
    const double share = 1 - 1 / static_cast<double>(ranks_);
    return {{"sent bytes a step", axis_.sent_bytes() / static_cast<double>(options_.steps)},
            {"by the formula", (stage_ == 3 ? 3 : 2) * share * bytes(all)},
            {"bytes of parameters held", bytes(values)},
            {"bytes of gradients held", bytes(gradients)},
            {"bytes of optimizer state held", bytes(state)}};
  }

 private:
  void add_unit(Model::Named& named) {
    Unit& unit = units_.emplace_back();
    unit.layer = named.layer.get();
    for (size_t i = named.first_parameter; i < named.end_parameter; ++i)
      unit.parameters.push_back(&model_.parameters().list()[i]);
    if (unit.parameters.empty()) return;
    const size_t count = unit.parameters.back()->offset + unit.parameters.back()->count() - unit.begin();
    unit.shard = (count + ranks_ - 1) / ranks_;
    unit.shelf = shelf_end_;
    shelf_end_ += 3 * unit.shard;  // values, and two states of an optimizer at most
    largest_ = std::max(largest_, unit.shard);
  }

  /// Draws this rank's values, and makes the optimizer of its shard.
  void fill(Unit& unit) {
    if (unit.parameters.empty()) return;
    unit.own_gradients.resize(unit.shard);
    if (stage_ < 3) unit.values = Buffer(unit.shard * ranks_, host_backend());
    if (stage_ == 1) unit.gradients = Buffer(unit.shard * ranks_, host_backend());
    if (stage_ == 3 && !shelf_) unit.own_values.resize(unit.shard);
    if (shelf_) staging_.resize(largest_);
    const size_t first = unit.begin() + rank_ * unit.shard;
    std::vector<float> drawn(unit.shard * ranks_);
    for (const Parameter* parameter : unit.parameters)
      Parameters::draw(*parameter, options_.seed, drawn.data() + (parameter->offset - unit.begin()));
    std::copy_n(drawn.data() + rank_ * unit.shard, unit.shard, own(unit));
    if (stage_ < 3) std::copy(drawn.begin(), drawn.end(), unit.values.data());
    unit.optimizer = make_optimizer(
        options_.optimizer,
        pieces_between(unit.parameters, first, first + unit.shard, own(unit), unit.own_gradients.data()),
        unit.shard);
    store(unit);
    bind(unit, unit.values.data(), unit.gradients.data());
  }

  /// Where this rank's values of the unit are, or will be while the unit is in use.
  float* own(Unit& unit) {
    if (stage_ < 3) return unit.values.data() + rank_ * unit.shard;
    return shelf_ ? staging_.data() : unit.own_values.data();
  }

  /// Offload: the values and the optimizer's state leave memory, and come back.
  void store(Unit& unit) {
    if (!shelf_) return;
    shelf_->put(unit.shelf, own(unit), unit.shard);
    shelf_->put_away(unit.shelf + unit.shard, &unit.optimizer->state());
  }
  float* bring(Unit& unit) {
    if (shelf_) shelf_->get(unit.shelf, own(unit), unit.shard);
    return own(unit);
  }

  void update(Unit& unit, size_t step) {
    bring(unit);
    if (shelf_) shelf_->bring_back(unit.shelf + unit.shard, unit.shard, &unit.optimizer->state());
    unit.optimizer->step(step + 1, static_cast<float>(learning_rate(options_, step)));
    std::fill(unit.own_gradients.begin(), unit.own_gradients.end(), 0.0F);
    store(unit);
  }

  static void bind(Unit& unit, float* values, float* gradients) {
    for (Parameter* p : unit.parameters) {
      if (values != nullptr) p->value = values + (p->offset - unit.begin());
      if (gradients != nullptr) p->gradient = gradients + (p->offset - unit.begin());
    }
  }

  /// Stage 3: begins to gather the unit's values, unless they are there or on their way.
  void prefetch(Unit& unit) {
    if (stage_ < 3 || unit.parameters.empty() || tenants_[0] == &unit || tenants_[1] == &unit) return;
    const size_t room = tenants_[0] == nullptr ? 0 : 1;
    tenants_[room] = &unit;
    float* mine = rooms_[room].data() + rank_ * unit.shard;
    std::copy_n(bring(unit), unit.shard, mine);
    axis_.all_gather({mine, unit.shard}, rooms_[room].data(), stream_.handle());
  }

  /// Calls `act` with the unit's values in place. Meanwhile unit number `next`, if it exists, is on its way.
  template <class Act>
  void use(Unit& unit, size_t next, const Act& act) {
    prefetch(unit);
    if (stage_ == 3) stream_.wait();
    if (next < units_.size()) prefetch(units_[next]);
    const size_t room = tenants_[0] == &unit ? 0 : 1;
    if (tenants_[room] == &unit) bind(unit, rooms_[room].data(), nullptr);
    act();
    if (tenants_[room] == &unit) tenants_[room] = nullptr;
  }

  Loss pass(std::span<const uint32_t> samples) {
    data_.read(samples, &batch_);
    const Matrix* current = &batch_.input;
    for (size_t i = 0; i < units_.size(); ++i)
      use(units_[i], i + 1, [&] { current = &units_[i].layer->forward(*current, true); });
    const auto targets = static_cast<float>(options_.batch * data_.targets_per_sample());
    const Loss loss = cross_entropy(*current, batch_.targets, 1 / targets, &gradient_);
    current = &gradient_;
    for (size_t i = units_.size(); i-- > 0;) {
      Unit& unit = units_[i];
      use(unit, i - 1, [&] {  // before unit 0 there is none
        if (stage_ >= 2) bind(unit, nullptr, work_.data());
        current = &unit.layer->backward(*current, {});
      });
      if (stage_ >= 2 && !unit.parameters.empty()) reduce(unit, work_);
    }
    return loss;
  }

  /// Adds this rank's shard of the sum over all ranks. Afterwards `gradients` are 0.
  void reduce(Unit& unit, Buffer& gradients) {
    axis_.reduce_scatter(gradients.data(), std::span(sum_).first(unit.shard));
    for (size_t i = 0; i < unit.shard; ++i) unit.own_gradients[i] += sum_[i];
    std::fill_n(gradients.data(), unit.shard * ranks_, 0.0F);
  }

  const Options& options_;
  int stage_;
  const Dataset& data_;
  Buffer work_;                  ///< gradients of the unit that goes backward
  std::array<Buffer, 2> rooms_;  ///< stage 3: all values of two units
  std::array<Unit*, 2> tenants_ = {};
  HostStream stream_;
  Axis axis_;  ///< destroyed before the stream and the memory of its calls
  size_t ranks_;
  size_t rank_;
  Model model_;
  Sampler sampler_;
  std::optional<Shelf> shelf_;
  std::deque<Unit> units_;
  size_t largest_ = 0;  ///< shard
  size_t shelf_end_ = 0;
  std::vector<float> sum_;
  std::vector<float> staging_;
  Batch batch_;
  Matrix gradient_;
};

}  // namespace

std::unique_ptr<Mode> make_zero_mode(const ModeContext& context) {
  return std::make_unique<ZeroMode>(context);
}

}  // namespace tutti::trainer
