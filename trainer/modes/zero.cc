// Sharded data parallelism (ZeRO): what every rank would hold alike, each of P ranks holds a P-th of.
//
// --zero-stage 1: the optimizer's state; 2: and the gradients; 3: and the parameters. A unit is a layer. Its
// gradients are reduce_scattered, and each rank updates its shard. An all_gather joins the shards: in stage 3
// before each pass through the unit, while the unit before computes (prefetch), else after the update.
// With S bytes of parameters a rank sends 2 (P-1)/P S a step, in stage 3 3 (P-1)/P S. --offload FOLDER:
// shards and optimizer state lie in a file while their unit is not in use (GeePS). The result is that of one
// process up to the order of sums. Sources: Rajbhandari et al., "ZeRO", 2020; Cui et al., "GeePS", 2016.
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
  Buffer values = {};                       ///< of all ranks; not in stage 3
  Buffer gradients = {};                    ///< of all ranks; stage 1 only
  std::vector<float> own_values = {};       ///< in stage 3, without offload
  std::vector<float> own_gradients = {};
  std::unique_ptr<Optimizer> optimizer = {};

  size_t begin() const { return parameters.empty() ? 0 : parameters.front()->offset; }
  size_t end() const {
    return parameters.empty() ? 0 : parameters.back()->offset + parameters.back()->count();
  }
  /// Place on the shelf, for values and at most two states of an optimizer.
  size_t shelf() const { return 3 * begin(); }
};

class ZeroMode : public Mode {
 public:
  explicit ZeroMode(const ModeContext& context)
      : context_(context),
        stage_(context.options.parallel.zero_stage),
        axis_(context, 0, "data axis"),
        ranks_(static_cast<size_t>(axis_.count())),
        model_(context.task.model, context_.options.seed, SumOverRanks(), multiply, host_backend(),
               {.allocates = false}),
        sampler_(sampler_of(context, axis_.rank(), axis_.count())) {
    if (!context_.options.parallel.offload.empty()) shelf_.emplace(context_.options.parallel.offload);
    for (Model::Named& named : model_.layers()) add_unit(named);
    for (Buffer& room : rooms_) room = Buffer(stage_ == 3 ? largest_ * ranks_ : 0, host_backend());
    work_ = Buffer(stage_ >= 2 ? largest_ * ranks_ : 0, host_backend());
    for (Unit& unit : units_) fill(unit);
  }

  Loss step(size_t step) override {
    Loss loss;
    for (size_t part = 0; part < context_.options.accumulate; ++part) loss += pass(sampler_.part(step, part));
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
      const size_t first = unit.begin() + at(unit);
      if (first < unit.end())
        std::copy_n(bring(unit), std::min(unit.shard, unit.end() - first), &whole[first]);
    }
  }

  std::vector<Fact> facts() override {
    size_t values = staging_.size() + rooms_[0].size() + rooms_[1].size();
    size_t gradients = work_.size() + largest_;
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
    const auto parts = static_cast<double>(context_.options.accumulate);
    const double times = stage_ == 1 ? 2 : stage_ == 2 ? 1 + parts : 3 * parts;
    return {{"sent bytes a step", axis_.sent_bytes() / static_cast<double>(context_.options.steps)},
            {"by the formula", times * bytes(all - all / ranks_)},
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
    unit.shard = (unit.end() - unit.begin() + ranks_ - 1) / ranks_;
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
    const size_t first = unit.begin() + at(unit);
    std::vector<float> drawn(unit.shard * ranks_);
    for (const Parameter* parameter : unit.parameters)
      Parameters::draw(*parameter, context_.options.seed, drawn.data() + (parameter->offset - unit.begin()));
    std::copy_n(drawn.data() + at(unit), unit.shard, own(unit));
    if (stage_ < 3) std::copy(drawn.begin(), drawn.end(), unit.values.data());
    unit.optimizer = make_optimizer(
        context_.options.optimizer,
        pieces_between(unit.parameters, first, first + unit.shard, own(unit), unit.own_gradients.data()),
        unit.shard);
    store(unit);
    bind(unit, unit.values.data(), unit.gradients.data());
  }

  /// This rank's shard begins here in the unit.
  size_t at(const Unit& unit) const { return static_cast<size_t>(axis_.rank()) * unit.shard; }

  /// Where this rank's values of the unit are, or will be while the unit is in use.
  float* own(Unit& unit) {
    if (stage_ < 3) return unit.values.data() + at(unit);
    return shelf_ ? staging_.data() : unit.own_values.data();
  }

  /// Offload: the values and the optimizer's state leave memory, and come back.
  void store(Unit& unit) {
    if (!shelf_) return;
    shelf_->put(unit.shelf(), own(unit), unit.shard);
    shelf_->put_away(unit.shelf() + unit.shard, &unit.optimizer->state());
  }
  float* bring(Unit& unit) {
    if (shelf_) shelf_->get(unit.shelf(), own(unit), unit.shard);
    return own(unit);
  }

  void update(Unit& unit, size_t step) {
    bring(unit);
    if (shelf_) shelf_->bring_back(unit.shelf() + unit.shard, unit.shard, &unit.optimizer->state());
    unit.optimizer->step(step + 1, static_cast<float>(learning_rate(context_.options, step)));
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
    float* mine = rooms_[room].data() + at(unit);
    std::copy_n(bring(unit), unit.shard, mine);
    axis_.all_gather({mine, unit.shard}, rooms_[room].data(), stream_.handle());
    issued_[room] = context_.sketch.now();
  }

  /// Calls `act` with the unit's values in place. Meanwhile unit number `next`, if it exists, is on its way.
  template <class Act>
  void use(Unit& unit, size_t next, Stroke::Kind kind, const Act& act) {
    prefetch(unit);
    const size_t room = tenants_[0] == &unit ? 0 : 1;
    const bool gathers = tenants_[room] == &unit;
    if (gathers) {
      stream_.wait();
      context_.sketch.add(Stroke::Kind::kCollective, issued_[room], "all_gather");
      bind(unit, rooms_[room].data(), nullptr);
    }
    if (next < units_.size()) prefetch(units_[next]);
    const Pass pass(context_, kind);
    act();
    pass.wait();
    if (gathers) tenants_[room] = nullptr;
  }

  Loss pass(std::span<const uint32_t> samples) {
    context_.task.data.train->read(samples, &batch_);
    const Matrix* current = &batch_.input;
    for (size_t i = 0; i < units_.size(); ++i)
      use(units_[i], i + 1, Stroke::Kind::kForward,
          [&] { current = &units_[i].layer->forward(*current, true); });
    const size_t targets = batch_.targets.size() * context_.options.accumulate * ranks_;
    const Loss loss = cross_entropy(*current, batch_.targets, 1 / static_cast<float>(targets), &gradient_);
    current = &gradient_;
    for (size_t i = units_.size(); i-- > 0;) {
      Unit& unit = units_[i];
      use(unit, i - 1, Stroke::Kind::kBackward, [&] {  // before unit 0 there is none
        if (stage_ >= 2) bind(unit, nullptr, work_.data());
        current = &unit.layer->backward(*current, {});
      });
      if (stage_ >= 2 && !unit.parameters.empty()) reduce(unit, work_);
    }
    return loss;
  }

  /// Adds this rank's shard of the sum over all ranks. Afterwards `gradients` are 0.
  void reduce(Unit& unit, Buffer& gradients) {
    std::vector<float> sum(unit.shard);
    axis_.reduce_scatter(gradients.data(), sum);
    for (size_t i = 0; i < unit.shard; ++i) unit.own_gradients[i] += sum[i];
    std::fill_n(gradients.data(), unit.shard * ranks_, 0.0F);
  }

  const ModeContext& context_;
  int stage_;
  Buffer work_;                  ///< gradients of the unit that goes backward
  std::array<Buffer, 2> rooms_;  ///< stage 3: all values of two units
  std::array<Unit*, 2> tenants_ = {};
  std::array<double, 2> issued_ = {};
  HostStream stream_;
  Axis axis_;  ///< destroyed before the stream and the memory of its calls
  size_t ranks_;
  Model model_;
  Sampler sampler_;
  std::optional<Shelf> shelf_;
  std::deque<Unit> units_;
  size_t largest_ = 0;  ///< shard
  std::vector<float> staging_;
  Batch batch_;
  Matrix gradient_;
};

}  // namespace

std::unique_ptr<Mode> make_zero_mode(const ModeContext& context) {
  return std::make_unique<ZeroMode>(context);
}

}  // namespace tutti::trainer
