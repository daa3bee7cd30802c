// SPDX-License-Identifier: Apache-2.0
// Every form of LARS and LAMB beside the papers' algorithms written out, 1,000 steps in f64, on every device.
#include "optim/layerwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "optim/grad_scaler.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/error_message.h"

namespace hearth::layerwise_test {
namespace {

using Numbers = std::vector<double>;

constexpr double infinity = std::numeric_limits<double>::infinity();

double norm(const Numbers& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

/// One parameter with what an algorithm keeps of it.
struct Layer {
  Numbers w, g;
  Numbers m = Numbers(w.size(), 0.0), v = Numbers(w.size(), 0.0);
  bool adapts;
  double decay;      ///< beta of LARS, lambda of LAMB
  double ratio = 1;  ///< of norms, in the last step
};

struct Step {
  int t;             ///< from 1
  double lr;         ///< gamma of LARS, eta of LAMB
  double grad_norm;  ///< of all layers together
};

using Algorithm = std::function<void(Layer&, const Step&)>;

/// LARS: You et al. 2017 (arXiv:1708.03888). Its algorithm 1 has the learning rate in the momentum.
struct LarsForm {
  double trust = 0.02, momentum = 0.9, eps = 1e-8;
  bool clip = false, lr_in_momentum = false;

  void operator()(Layer& layer, const Step& step) const {
    const double of_w = norm(layer.w), of_g = norm(layer.g);
    // The local learning rate, lambda.
    double local = 1.0;
    if (layer.adapts && of_w > 0 && of_g > 0) {
      local = trust * of_w / (of_g + layer.decay * of_w + eps);
    }
    if (layer.adapts && clip) local = std::min(local / step.lr, 1.0);
    layer.ratio = local;
    for (std::size_t i = 0; i < layer.w.size(); ++i) {
      const double change = local * (layer.g[i] + layer.decay * layer.w[i]);
      if (lr_in_momentum) {
        layer.m[i] = momentum * layer.m[i] + step.lr * change;
        layer.w[i] -= layer.m[i];
      } else {
        layer.m[i] = momentum * layer.m[i] + change;
        layer.w[i] -= step.lr * layer.m[i];
      }
    }
  }
};

/// LAMB: algorithm 2 of You et al. 2019 (arXiv:1904.00962), line by line; phi as in its section 3. Before it, NVIDIA's
/// normalisation of the gradients.
struct LambForm {
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-6;
  double norm_min = 0, norm_max = infinity, max_grad_norm = infinity, longest = infinity;

  void operator()(Layer& layer, const Step& step) const {
    const double divisor = std::max(1.0, step.grad_norm / max_grad_norm);
    Numbers u(layer.w.size());
    for (std::size_t i = 0; i < u.size(); ++i) {
      const double g = layer.g[i] / divisor;
      layer.m[i] = beta1 * layer.m[i] + (1 - beta1) * g;
      layer.v[i] = beta2 * layer.v[i] + (1 - beta2) * g * g;
      const double m = layer.m[i] / (1 - std::pow(beta1, step.t)), v = layer.v[i] / (1 - std::pow(beta2, step.t));
      u[i] = m / (std::sqrt(v) + eps) + layer.decay * layer.w[i];
    }
    const double phi = std::min(std::max(norm(layer.w), norm_min), norm_max), of_u = norm(u);
    const double ratio = layer.adapts && phi > 0 && of_u > 0 ? std::min(phi / of_u, longest) : 1.0;
    layer.ratio = ratio;
    for (std::size_t i = 0; i < u.size(); ++i) layer.w[i] -= step.lr * ratio * u[i];
  }
};

struct Case {
  const char* name;
  const char* optimizer;
  Algorithm algorithm;
  double decay = 0.05;
  bool all_adapt = false;
  bool all_decay = false;  ///< as weights do; else only what adapts
};

void PrintTo(const Case& tried, std::ostream* out) { *out << tried.name; }

const Case cases[] = {
    {"lars", R"({"type": "lars", "lr": 0.1, "trust": 0.02, "weight_decay": 0.05})", LarsForm{}},
    {"lars_lr_in_momentum",
     R"({"type": "lars", "lr": 0.1, "trust": 0.02, "weight_decay": 0.05, "lr_in_momentum": true})",
     LarsForm{.lr_in_momentum = true}},
    {"lars_clip_trust", R"({"type": "lars", "lr": 0.1, "trust": 0.05, "weight_decay": 0.05, "clip_trust": true})",
     LarsForm{.trust = 0.05, .clip = true}},
    {"lars_clip_trust_lr_in_momentum",
     R"({"type": "lars", "lr": 0.1, "trust": 0.05, "momentum": 0.5, "weight_decay": 0.05, "clip_trust": true,
         "lr_in_momentum": true})",
     LarsForm{.trust = 0.05, .momentum = 0.5, .clip = true, .lr_in_momentum = true}},
    {"lars_that_adapts_all",
     R"({"type": "lars", "lr": 0.1, "trust": 0.02,
         "groups": [{"type": "by_name", "match": ["*"], "weight_decay": 0.05, "adapt": true}]})",
     LarsForm{}, 0.05, true},
    {"lamb", R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05})", LambForm{}},
    {"lamb_pre_normalised",
     R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "max_grad_norm": 0.5})",
     LambForm{.max_grad_norm = 0.5}},
    {"lamb_with_phi",
     R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "norm_min": 1.6, "norm_max": 1.8})",
     LambForm{.norm_min = 1.6, .norm_max = 1.8}},
    {"lamb_pre_normalised_with_phi",
     R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "max_grad_norm": 1, "norm_max": 1})",
     LambForm{.norm_max = 1, .max_grad_norm = 1}},
    {"lamb_with_trust_clip", R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "trust_clip": true})",
     LambForm{.longest = 1}},
    {"lamb_that_adapts_what_decays",
     R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "adapt": "decayed"})", LambForm{}},
    {"lamb_that_adapts_all",
     R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05, "decay_norm_bias": true, "adapt": "all"})",
     LambForm{}, 0.05, true},
    {"lars_of_matrices_where_all_decays",
     R"({"type": "lars", "lr": 0.1, "trust": 0.02, "weight_decay": 0.05, "decay_norm_bias": true,
         "adapt": "matrices"})",
     LarsForm{}, 0.05, false, true},
};

/// The optimizer's ratios are those of the layers that adapt.
void expect_ratios(const optim::Optimizer& optimizer, const std::vector<Layer>& layers) {
  Numbers expected;
  for (const Layer& layer : layers)
    if (layer.adapts) expected.push_back(layer.ratio);
  std::sort(expected.begin(), expected.end());
  const std::vector<optim::TrustRatios> found = optimizer.read_trust_ratios();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].group, "*");
  const std::size_t middle = expected.size() / 2;
  const double median = expected.size() % 2 == 1 ? expected[middle] : (expected[middle - 1] + expected[middle]) / 2;
  EXPECT_NEAR(found[0].min, expected.front(), 1e-12 * std::abs(expected.front()));
  EXPECT_NEAR(found[0].median, median, 1e-12 * std::abs(median));
  EXPECT_NEAR(found[0].max, expected.back(), 1e-12 * std::abs(expected.back()));
}

class LayerwiseForms : public testing::TestWithParam<std::tuple<Case, Device>> {};

TEST_P(LayerwiseForms, ThousandStepsMatchTheAlgorithm) {
  const auto& [tried, device] = GetParam();
  if (device_count(device.type) == 0) GTEST_SKIP() << "there is no device " << device;
  // Emulated devices take their time.
  const int steps = device.is_cpu() ? 1000 : 100;
  test::ToyParameters toy(DType::f64, device);
  const auto optimizer = optim::optimizers().make(parse_json(tried.optimizer, "test"), toy.flat());
  std::vector<Layer> layers;
  for (const auto& entry : toy.flat().entries()) {
    const bool special = entry.value.rank() > 1 || tried.all_adapt;
    const bool decays = special || tried.all_decay;
    layers.push_back({.w = entry.value.to_doubles(), .g = {}, .adapts = special, .decay = decays ? tried.decay : 0});
  }
  // The rate changes from step to step, which is where the forms of momentum differ.
  const auto rate = [&](int step) { return optimizer->base_lr() * std::pow(1.0 - step / 1000.0, 2); };
  for (int step = 0; step < steps; ++step) {
    toy.set_gradients(step);
    Step now{step + 1, rate(step), 0};
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].g = grad_of(toy.flat().entries()[i].value).to_doubles();
      now.grad_norm = std::hypot(now.grad_norm, norm(layers[i].g));
    }
    optimizer->step(now.lr);
    Numbers expected;
    for (Layer& layer : layers) {
      tried.algorithm(layer, now);
      expected.insert(expected.end(), layer.w.begin(), layer.w.end());
    }
    const Numbers found = toy.values();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])))
          << "step " << step + 1 << " element " << i;
    ASSERT_NO_FATAL_FAILURE(expect_ratios(*optimizer, layers)) << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LayerwiseForms,
                         testing::Combine(testing::ValuesIn(cases),
                                          testing::Values(Device{}, Device{DeviceType::cuda, 0})),
                         [](const auto& tried) {
                           const bool on_cpu = std::get<1>(tried.param).is_cpu();
                           return std::string(std::get<0>(tried.param).name) + (on_cpu ? "" : "_cuda");
                         });

TEST(Lars, AClippedStepIsNoLongerThanThatOfSgd) {
  // |w| / |g| is large: without the bound the step would be 100 times that of SGD.
  for (const bool clip : {true, false}) {
    test::ToyParameters toy, plain;
    optim::Lars lars(toy.flat(), {.trust = 1000, .clip_trust = clip});
    optim::Sgd sgd(plain.flat(), {.momentum = 0.9});
    for (int step = 0; step < 3; ++step) {
      toy.fill_gradients(0.01);
      plain.fill_gradients(0.01);
      lars.step(0.1);
      sgd.step(0.1);
    }
    EXPECT_EQ(toy.values() == plain.values(), clip);
  }
}

class LayerwiseOnDevices : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (device_count(GetParam().type) == 0) GTEST_SKIP() << "there is no device " << GetParam();
  }
};

/// All weights are `value`, their gradients `gradient`: what the weights are after one step with a rate of 0.1.
template <class Optimizer, class Options>
void expect_step(const Options& options, double value, double gradient, double after) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    test::ToyParameters toy(dtype, LayerwiseOnDevices::GetParam());
    Optimizer optimizer(toy.flat(), options);
    toy.flat().values().fill_(value);
    toy.fill_gradients(gradient);
    optimizer.step(0.1);
    for (const double found : toy.values()) EXPECT_NEAR(found, after, 1e-6) << dtype;
  }
}

// Where a norm is zero the ratio is 1: weights that begin as zeros leave it, and decay goes on without a gradient.
TEST_P(LayerwiseOnDevices, ANormOfZeroLeavesTheRate) {
  const std::vector<optim::ParameterGroup> all{{.match = {"*"}, .weight_decay = 0.0, .adapt = true}};
  const std::vector<optim::ParameterGroup> decayed{{.match = {"*"}, .weight_decay = 0.5, .adapt = true}};
  expect_step<optim::Lars>(optim::LarsOptions{.groups = all}, 0.0, 0.5, -0.1 * 0.5);
  expect_step<optim::Lars>(optim::LarsOptions{.groups = decayed}, 2.0, 0.0, 2.0 - 0.1 * 0.5 * 2.0);
  expect_step<optim::Lamb>(optim::LambOptions{.groups = all}, 0.0, 0.5, -0.1);
  expect_step<optim::Lamb>(optim::LambOptions{.groups = all}, 2.0, 0.0, 2.0);
}

// LARC, whose r is 1 there too: a learning rate of at most 1.
TEST_P(LayerwiseOnDevices, ANormOfZeroIsARateOfOneInLarc) {
  const std::vector<optim::ParameterGroup> all{{.match = {"*"}, .weight_decay = 0.0, .adapt = true}};
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double lr : {0.25, 4.0}) {
      test::ToyParameters toy(dtype, GetParam());
      optim::Lars larc(toy.flat(), {.clip_trust = true, .groups = all});
      toy.flat().values().fill_(0);
      toy.fill_gradients(0.5);
      larc.step(lr);
      for (const double found : toy.values()) EXPECT_NEAR(found, -std::min(lr, 1.0) * 0.5, 1e-6) << dtype;
    }
  }
}

TEST_P(LayerwiseOnDevices, LarsHidesNoInfiniteNorm) {
  for (const double bad : {infinity, -infinity, std::nan(""), 1e200}) {
    test::ToyParameters toy(DType::f64, GetParam());
    optim::Lars lars(toy.flat(), {.trust = 0.1, .clip_trust = true});
    toy.fill_gradients(0.5);
    grad_of(toy.flat().entries()[0].value).fill_(bad);
    lars.step(0.01);
    for (const double value : toy.flat().entries()[0].value.to_doubles()) EXPECT_TRUE(std::isnan(value)) << bad;
    for (const double value : toy.flat().entries()[2].value.to_doubles()) EXPECT_TRUE(std::isfinite(value)) << bad;
  }
}

TEST_P(LayerwiseOnDevices, LambHidesNoInfiniteNorm) {
  for (const double bad : {infinity, -infinity, std::nan(""), 1e200}) {
    test::ToyParameters toy(DType::f64, GetParam());
    optim::Lamb lamb(toy.flat(), {.max_grad_norm = 1.0});
    toy.fill_gradients(0.5);
    grad_of(toy.flat().entries()[0].value).fill_(bad);
    lamb.step(0.01);
    for (const double value : toy.values()) EXPECT_TRUE(std::isnan(value)) << bad;
  }
}

TEST_P(LayerwiseOnDevices, GradientsWithinTheBoundStayAsTheyAre) {
  test::ToyParameters free(DType::f32, GetParam()), bounded(DType::f32, GetParam());
  optim::Lamb lamb(free.flat(), {}), normalised(bounded.flat(), {.max_grad_norm = 100.0});
  for (int step = 0; step < 3; ++step) {
    free.set_gradients(step);
    bounded.set_gradients(step);
    lamb.step(0.01, -1.0);
    normalised.step(0.01, -1.0);
  }
  EXPECT_EQ(free.values(), bounded.values());
}

TEST_P(LayerwiseOnDevices, GradientsBeyondTheBoundLoseTheirSize) {
  const auto after = [](double size) {
    test::ToyParameters toy(DType::f64, GetParam());
    optim::Lamb lamb(toy.flat(), {.max_grad_norm = 1.0});
    for (int step = 0; step < 3; ++step) {
      toy.fill_gradients(size);
      lamb.step(0.01);
    }
    return toy.values();
  };
  EXPECT_EQ(after(1024), after(1048576));
}

TEST_P(LayerwiseOnDevices, RatiosAreSortedByGroup) {
  const std::vector<optim::ParameterGroup> groups{{.match = {"first.*"}, .adapt = true},
                                                  {.match = {"second.*"}, .adapt = false}};
  test::ToyParameters toy(DType::f64, GetParam()), rest(DType::f64, GetParam());
  // 12 elements and 3; ratios do not depend on their number.
  optim::Lars lars(toy.flat(), {.trust = 0.5, .eps = 0, .groups = groups});
  EXPECT_TRUE(lars.read_trust_ratios().empty()) << "before the first step";
  toy.flat().entries()[0].value.fill_(4);
  toy.flat().entries()[1].value.fill_(2);
  toy.fill_gradients(0.5);
  lars.step(0.125);
  const std::vector<optim::TrustRatios> found = lars.read_trust_ratios();
  ASSERT_EQ(found.size(), 1u) << "a group that does not adapt has none, nor has the empty rest";
  EXPECT_EQ(found[0].group, "first.*");
  EXPECT_NEAR(found[0].min, 2, 1e-14);
  EXPECT_NEAR(found[0].median, 3, 1e-14);
  EXPECT_NEAR(found[0].max, 4, 1e-14);
  optim::Lamb lamb(rest.flat(), {.adapt = optim::Adapt::all, .groups = {{.match = {"*.bias", "first.*"}}}});
  rest.fill_gradients(0.5);
  lamb.step(0.125);
  ASSERT_EQ(lamb.read_trust_ratios().size(), 2u);
  EXPECT_EQ(lamb.read_trust_ratios()[0].group, "*.bias, first.*");
  EXPECT_EQ(lamb.read_trust_ratios()[1].group, "*");
}

// A step that was skipped has none, as a run that was resumed after it knows of none.
TEST_P(LayerwiseOnDevices, ASkippedStepHasNoRatios) {
  for (const char* text : {R"({"type": "lars"})", R"({"type": "lamb"})"}) {
    test::ToyParameters toy(DType::f32, GetParam());
    const auto optimizer = optim::optimizers().make(parse_json(text, "test"), toy.flat());
    optim::GradScaler scale(toy.flat(), {}, {});
    for (const double gradient : {1.0, infinity, 1.0}) {
      toy.flat().zero_grads();
      toy.fill_gradients(gradient);
      optimizer->begin_step(0.1);
      scale.begin_step(*optimizer, nullptr, 1);
      scale.check_found_inf(*optimizer, nullptr, 0, {}, {});
      optimizer->apply();
      EXPECT_EQ(optimizer->read_trust_ratios().size(), std::isfinite(gradient) ? 1u : 0u) << text << gradient;
    }
  }
}

TEST_P(LayerwiseOnDevices, ARatioThatIsNotFiniteIsTheLargest) {
  test::ToyParameters toy(DType::f64, GetParam());
  optim::Lars lars(toy.flat(), {.trust = 0.1});
  toy.fill_gradients(0.5);
  grad_of(toy.flat().entries()[0].value).fill_(std::nan(""));
  lars.step(0.01);
  const std::vector<optim::TrustRatios> found = lars.read_trust_ratios();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(std::isfinite(found[0].min));
  EXPECT_EQ(found[0].max, infinity);
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerwiseOnDevices, testing::Values(Device{}, Device{DeviceType::cuda, 0}),
                         [](const auto& tried) { return tried.param.is_cpu() ? "cpu" : "cuda"; });

// The policies of the peers, and what a group says instead.
TEST(Layerwise, WhichParametersAdapt) {
  const auto adapting = [](const std::string& options) {
    test::ToyParameters toy;
    const auto lamb = optim::optimizers().make(parse_json(R"({"type": "lamb", )" + options + "}", "test"), toy.flat());
    std::vector<bool> result;
    for (const optim::ParameterRange& range : lamb->ranges()) result.push_back(range.adapts);
    return result;
  };
  const std::string half =
      R"("groups": [{"type": "by_name", "match": ["first.weight"], "weight_decay": 0},
                    {"type": "by_name", "match": ["first.bias"], "weight_decay": 0.1}])";
  const std::string against = R"("groups": [{"type": "by_name", "match": ["first.*"], "adapt": false}])";
  using Flags = std::vector<bool>;
  EXPECT_EQ(adapting(R"("lr": 1)"), Flags({true, false, true}));
  EXPECT_EQ(adapting(R"("adapt": "matrices", )" + half), Flags({true, false, true}));
  EXPECT_EQ(adapting(R"("adapt": "decayed", )" + half), Flags({false, true, true}));
  EXPECT_EQ(adapting(R"("adapt": "decayed", "weight_decay": 0)"), Flags({false, false, false}));
  EXPECT_EQ(adapting(R"("adapt": "all", "weight_decay": 0)"), Flags({true, true, true}));
  EXPECT_EQ(adapting(R"("adapt": "all", )" + against), Flags({false, false, true}));
}

TEST(Lamb, BadOptionsAreRefused) {
  test::ToyParameters toy;
  EXPECT_THROW(optim::Lamb(toy.flat(), {.max_grad_norm = 0.0}), ConfigError);
  EXPECT_THROW(optim::Lamb(toy.flat(), {.norm_min = -1.0}), ConfigError);
  EXPECT_THROW(optim::Lamb(toy.flat(), {.norm_min = 2.0, .norm_max = 1.0}), ConfigError);
  EXPECT_THROW(optim::Lamb(toy.flat(), {.norm_max = 0.0}), ConfigError);
  const auto message = test::error_message<ConfigError>([&] {
    (void)optim::optimizers().make(parse_json(R"({"type": "lamb", "norm_min": 2, "norm_max": 1})", "test"), toy.flat());
  });
  EXPECT_PRED2(test::contains, message, "norm_min is at most norm_max");
}

}  // namespace
}  // namespace hearth::layerwise_test
