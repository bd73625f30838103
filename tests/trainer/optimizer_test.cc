// Optimizers, against their formulas by hand.
#include "trainer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/cluster.h"
#include "tests/trainer/team_run.h"
#include "trainer/error.h"

namespace tutti::trainer {
namespace {

/// A matrix that decays and a vector that does not, both 1 at first; the values after steps with gradients 2,
/// then -1, at a learning rate of 0.1.
std::string check_two_steps(const OptimizerOptions& options, const std::array<double, 2>& matrix,
                            const std::array<double, 2>& vector) {
  Parameters parameters;
  parameters.add("matrix", 2, 1, 0, 1);
  parameters.add("vector", 1, 2, 0, 1);
  parameters.allocate(1);
  const auto optimizer = make_optimizer(options, parameters);
  std::string failures;
  for (size_t step = 0; step < 2; ++step) {
    for (const Parameter& parameter : parameters.list())
      for (size_t i = 0; i < parameter.count(); ++i) parameter.gradient[i] = step == 0 ? 2 : -1;
    optimizer->step(step + 1, 0.1F);
    for (const Parameter& parameter : parameters.list()) {
      const double wanted = parameter.rows > 1 ? matrix[step] : vector[step];
      for (size_t i = 0; i < parameter.count(); ++i)
        if (std::abs(parameter.value[i] - wanted) > 1e-6)
          failures += options.name + " " + parameter.name + " after step " + std::to_string(step + 1) + ": " +
                      std::to_string(parameter.value[i]) + ", not " + std::to_string(wanted) + "\n";
    }
  }
  return failures;
}

// Goal: SGD with momentum m and decay d: v = m v + g + d x, x = x - r v; vectors do not decay.
TEST(OptimizerTest, SgdKeepsMomentum) {
  EXPECT_EQ(test::run_child([] {
              // Velocities of the matrix: 2 + 0.5, then 0.9 * 2.5 - 1 + 0.5 * 0.75; of the vector: 2, then
              // 0.8.
              return check_two_steps({.name = "sgd", .momentum = 0.9F, .weight_decay = 0.5F}, {0.75, 0.5875},
                                     {0.8, 0.72});
            }),
            "");
}

// Goal: AdamW moves by mean over root of mean square, both corrected for their start, after a decay of the
// value itself. The first step has the size of the learning rate, whatever the gradient.
TEST(OptimizerTest, AdamWDividesByTheGradientsSize) {
  EXPECT_EQ(test::run_child([] {
              const double mean = (0.9 * 0.1 * 2 - 0.1) / (1 - 0.9 * 0.9);
              const double square = (0.99 * 0.01 * 4 + 0.01) / (1 - 0.99 * 0.99);
              const double second = 0.1 * mean / std::sqrt(square);
              return check_two_steps({.name = "adamw", .weight_decay = 0.5F}, {0.85, 0.85 * 0.95 - second},
                                     {0.9, 0.9 - second});
            }),
            "");
}

TEST(OptimizerTest, UnknownNamesAreRefused) {
  Parameters parameters;
  EXPECT_NE(test::error_of([&] { make_optimizer({.name = "lion"}, parameters); }), "");
}

}  // namespace
}  // namespace tutti::trainer
