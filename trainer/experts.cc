#include "trainer/experts.h"

#include <cmath>
#include <numeric>

namespace tutti::trainer {
namespace {

void softmax(Matrix* scores) {
  for (size_t i = 0; i < scores->rows(); ++i) {
    float* row = scores->row(i);
    const float largest = *std::max_element(row, row + scores->columns());
    float sum = 0;
    for (size_t j = 0; j < scores->columns(); ++j) sum += row[j] = std::exp(row[j] - largest);
    for (size_t j = 0; j < scores->columns(); ++j) row[j] /= sum;
  }
}

}  // namespace

Experts::Experts(Parameters& parameters, const std::string& name, size_t width, size_t expert_count,
                 Product product, float gain, Axis* axis)
    : axis_(axis),
      product_(std::move(product)),
      gate_(parameters.add(name + ".gate", width, expert_count, 1 / std::sqrt(static_cast<float>(width)))) {
  const auto ranks = axis == nullptr ? size_t{1} : static_cast<size_t>(axis->count());
  if (expert_count % ranks != 0)
    throw Error(std::to_string(expert_count) + " experts do not divide among " + std::to_string(ranks) +
                " ranks: change --experts");
  const size_t own = expert_count / ranks;
  first_expert_ = axis == nullptr ? 0 : own * static_cast<size_t>(axis->rank());
  for (size_t i = 0; i < expert_count; ++i) {
    const bool mine = i >= first_expert_ && i < first_expert_ + own;
    const Cut cut{.held = mine ? Cut::Held::kAlone : Cut::Held::kNothing};
    const std::string expert = name + ".expert" + std::to_string(i);
    Layers layers;
    layers.push_back(
        std::make_unique<Linear>(parameters, expert + ".in", width, 2 * width, product_, 1.0F, cut));
    layers.push_back(std::make_unique<Relu>());
    layers.push_back(
        std::make_unique<Linear>(parameters, expert + ".out", 2 * width, width, product_, gain, cut));
    if (mine) experts_.push_back({std::make_unique<Sequence>(std::move(layers)), {}, {}});
  }
}

void Experts::choose(const Matrix& input) {
  const size_t count = gate_.columns;
  probabilities_.resize(input.rows(), count);
  product_(input.block(), gate_.value_block(), probabilities_.block(), {});
  softmax(&probabilities_);
  choices_.resize(input.rows());
  std::vector<size_t> rows_of(count);
  for (size_t i = 0; i < input.rows(); ++i) {
    const float* row = probabilities_.row(i);
    choices_[i] = static_cast<size_t>(std::max_element(row, row + count) - row);
    ++rows_of[choices_[i]];
  }
  order_.resize(input.rows());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return choices_[a] < choices_[b]; });
  // By expert, not by rank: an expert finds its rows among those of each rank.
  send_rows_ = rows_of;
  recv_rows_ = rows_of;
  if (axis_ != nullptr) {
    const size_t own = experts_.size();
    const auto ranks = static_cast<size_t>(axis_->count());
    for (size_t i = 0; i < own; ++i) {
      std::vector<size_t> part(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) part[rank] = rows_of[rank * own + i];
      part = axis_->exchange(part);
      for (size_t rank = 0; rank < ranks; ++rank) recv_rows_[rank * own + i] = part[rank];
    }
  }
  for (Expert& expert : experts_) expert.rows.clear();
  size_t next = 0;
  for (size_t i = 0; i < recv_rows_.size(); ++i)
    for (size_t j = 0; j < recv_rows_[i]; ++j) experts_[i % experts_.size()].rows.push_back(next++);
}

namespace {

std::vector<size_t> by_rank(const std::vector<size_t>& by_expert, size_t experts_a_rank) {
  std::vector<size_t> sums(by_expert.size() / experts_a_rank);
  for (size_t i = 0; i < by_expert.size(); ++i) sums[i / experts_a_rank] += by_expert[i];
  return sums;
}

void exchange(Axis* axis, const Matrix& from, const std::vector<size_t>& send,
              const std::vector<size_t>& recv, size_t experts_a_rank, Matrix* to) {
  to->resize(std::accumulate(recv.begin(), recv.end(), size_t{0}), from.columns());
  if (axis == nullptr)
    std::copy(from.data(), from.data() + from.size(), to->data());
  else
    axis->all_to_all(from.data(), by_rank(send, experts_a_rank), to->data(), by_rank(recv, experts_a_rank),
                     from.columns());
}

}  // namespace

void Experts::dispatch(const Matrix& rows, Matrix* arrived) {
  sent_.resize(rows.rows(), rows.columns());
  for (size_t i = 0; i < order_.size(); ++i)
    std::copy(rows.row(order_[i]), rows.row(order_[i]) + rows.columns(), sent_.row(i));
  exchange(axis_, sent_, send_rows_, recv_rows_, experts_.size(), arrived);
}

void Experts::combine(const Matrix& answers, Matrix* rows) {
  exchange(axis_, answers, recv_rows_, send_rows_, experts_.size(), rows);
}

template <class Act>
void Experts::each(const Matrix& from, Matrix* to, const Act& act) {
  to->resize(from.rows(), from.columns());
  for (Expert& expert : experts_) {
    Matrix own(expert.rows.size(), from.columns());
    for (size_t i = 0; i < own.rows(); ++i)
      std::copy(from.row(expert.rows[i]), from.row(expert.rows[i]) + own.columns(), own.row(i));
    const Matrix& answer = act(expert, own);
    for (size_t i = 0; i < own.rows(); ++i)
      std::copy(answer.row(i), answer.row(i) + own.columns(), to->row(expert.rows[i]));
  }
}

const Matrix& Experts::forward(const Matrix& input, bool training) {
  input_ = &input;
  choose(input);
  dispatch(input, &arrived_);
  each(arrived_, &answers_, [&](Expert& expert, Matrix& rows) -> const Matrix& {
    std::swap(expert.input, rows);
    rows.resize(expert.input.rows(), expert.input.columns());
    return expert.layers->forward(expert.input, training);
  });
  combine(answers_, &back_);
  output_.resize(input.rows(), input.columns());
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t row = order_[i];
    const float weight = probabilities_.row(row)[choices_[row]];
    for (size_t j = 0; j < output_.columns(); ++j) output_.row(row)[j] = weight * back_.row(i)[j];
  }
  return output_;
}

const Matrix& Experts::backward(const Matrix& gradient, const GradientReady& ready) {
  Matrix weighted(gradient.rows(), gradient.columns());
  gate_gradient_.resize(gradient.rows(), gate_.columns);
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t row = order_[i];
    const size_t choice = choices_[row];
    const float* probabilities = probabilities_.row(row);
    float dot = 0;
    for (size_t j = 0; j < gradient.columns(); ++j) {
      dot += gradient.row(row)[j] * back_.row(i)[j];
      weighted.row(row)[j] = probabilities[choice] * gradient.row(row)[j];
    }
    for (size_t j = 0; j < gate_.columns; ++j)
      gate_gradient_.row(row)[j] =
          probabilities[choice] * (static_cast<float>(j == choice) - probabilities[j]) * dot;
  }
  Matrix arrived;
  Matrix answers;
  dispatch(weighted, &arrived);
  each(arrived, &answers, [&](Expert& expert, const Matrix& rows) -> const Matrix& {
    return expert.layers->backward(rows, ready);
  });
  combine(answers, &weighted);
  product_(input_->block(), gate_gradient_.block(), gate_.gradient_block(),
           {.transpose_left = true, .accumulate = true});
  if (ready) ready(gate_);
  input_gradient_.resize(gradient.rows(), gradient.columns());
  product_(gate_gradient_.block(), gate_.value_block(), input_gradient_.block(), {.transpose_right = true});
  for (size_t i = 0; i < order_.size(); ++i)
    for (size_t j = 0; j < gradient.columns(); ++j) input_gradient_.row(order_[i])[j] += weighted.row(i)[j];
  return input_gradient_;
}

}  // namespace tutti::trainer
