// SPDX-License-Identifier: Apache-2.0
// SGD whose gradients come with their momentum makes the steps of SGD that adds it.
#include <gtest/gtest.h>

#include "core/error.h"
#include "optim/sgd.h"
#include "tests/optim/toy_parameters.h"

namespace hearth::optim {
namespace {

/// The gradient of a step, the same whatever the weights are.
double gradient_at(int step) { return 0.3 * (step % 3) - 0.2 * (step % 5) + 0.1; }

TEST(MomentumInGradients, MakesTheStepsOfSgd) {
  for (const bool nesterov : {false, true}) {
    test::ToyParameters plain, compressed;
    SgdOptions options{
        .lr = 0.1, .momentum = 0.75, .nesterov = nesterov, .weight_decay = 0.125, .decay_norm_bias = true};
    Sgd usual(plain.flat(), options);
    options.momentum_in_gradients = true;
    Sgd other(compressed.flat(), options);
    double momentum = 0;
    for (int step = 0; step < 8; ++step) {
      const double g = gradient_at(step);
      momentum = 0.75 * momentum + g;
      plain.fill_gradients(g);
      compressed.fill_gradients(2 * (nesterov ? g + 0.75 * momentum : momentum));
      usual.step(0.1);
      other.step(0.1, 0.5);
      const std::vector<double> exact = plain.values(), found = compressed.values();
      for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(found[i], exact[i], 1e-12) << step << ' ' << i;
    }
  }
}

TEST(MomentumInGradients, NeedsMomentumWithoutDampening) {
  test::ToyParameters toy;
  EXPECT_THROW(Sgd(toy.flat(), {.momentum_in_gradients = true}), ConfigError);
  EXPECT_THROW(Sgd(toy.flat(), {.momentum = 0.5, .dampening = 0.1, .momentum_in_gradients = true}), ConfigError);
}

}  // namespace
}  // namespace hearth::optim
