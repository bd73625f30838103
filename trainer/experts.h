// Experts: several small networks, of which each character uses one (a mixture of experts).
//
// A gate scores the experts for every row, and the best one, times its probability, answers. With an axis,
// each rank holds a part of the experts. Rows travel to their expert and back: two all_to_all_v forward, two
// backward. How many rows an expert gets depends on the data, so the ranks exchange counts first.
// Sources: Shazeer et al., "Outrageously large neural networks", 2017; Fedus, Zoph & Shazeer, "Switch
// Transformers", 2021.
#pragma once

#include "trainer/layer.h"
#include "trainer/linear.h"
#include "trainer/mesh.h"

namespace tutti::trainer {

class Experts : public Layer {
 public:
  /// Maps [rows, width] to [rows, width]. `axis` null: this rank holds all experts. Throws Error if the
  /// experts do not divide among the ranks.
  Experts(Parameters& parameters, const std::string& name, size_t width, size_t expert_count, Product product,
          float gain, Axis* axis);
  const Matrix& forward(const Matrix& input, bool training) override;
  const Matrix& backward(const Matrix& gradient, const GradientReady& ready) override;

 private:
  struct Expert {
    std::unique_ptr<Sequence> layers;
    std::vector<size_t> rows;  ///< of arrived_ that are this expert's
    Matrix input;
  };
  void choose(const Matrix& input);
  /// Rows in the order of `order_` go to the ranks of their experts.
  void dispatch(const Matrix& rows, Matrix* arrived);
  /// The way back.
  void combine(const Matrix& answers, Matrix* rows);
  /// Calls `act` for every expert of this rank; collects its rows of `from` and spreads its answer in `to`.
  template <class Act>
  void each(const Matrix& from, Matrix* to, const Act& act);

  Axis* axis_;
  Product product_;
  Parameter& gate_;
  std::vector<Expert> experts_;  ///< this rank's
  size_t first_expert_ = 0;
  const Matrix* input_ = nullptr;
  Matrix probabilities_;         ///< [rows, experts]
  std::vector<size_t> choices_;  ///< the expert of each row
  std::vector<size_t> order_;    ///< the rows, by expert
  std::vector<size_t> send_rows_;
  std::vector<size_t> recv_rows_;
  Matrix sent_;
  Matrix arrived_;
  Matrix answers_;
  Matrix back_;  ///< the experts' answers, in the order of `order_`
  Matrix output_;
  Matrix gate_gradient_;
  Matrix input_gradient_;
};

}  // namespace tutti::trainer
