// SPDX-License-Identifier: Apache-2.0
// What the golden runs do not show: groups, bad options, state, extreme gradients, thread counts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/random.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/devices.h"
#include "tests/support/error_message.h"

namespace hearth::optimizer_test {
namespace {

using test::ToyParameters;

std::unique_ptr<optim::Optimizer> make(const std::string& text, FlatParameters& parameters) {
  return optim::optimizers().make(parse_json(text, "test"), parameters);
}

TEST(Adam, DecaysAlikeFromJsonAndFromCpp) {
  const auto after = [](auto&& make_optimizer) {
    ToyParameters toy;
    const auto optimizer = make_optimizer(toy.flat());
    toy.fill_gradients(0);
    optimizer->step(0.5);
    return toy.values();
  };
  const auto from_json = [&](const char* text) {
    return after([&](FlatParameters& parameters) { return make(text, parameters); });
  };
  const auto from_cpp = [&](const optim::AdamOptions& options) {
    return after([&](FlatParameters& parameters) { return std::make_unique<optim::Adam>(parameters, options); });
  };
  const auto coupled = optim::AdamDecay::coupled;
  EXPECT_EQ(from_cpp({}), from_json(R"({"type": "adamw"})"));
  EXPECT_EQ(from_cpp({.weight_decay = 0.01}), from_json(R"({"type": "adamw"})")) << "PyTorch's default";
  EXPECT_NE(from_cpp({}), from_cpp({.weight_decay = 0.0}));
  EXPECT_EQ(from_cpp({.weight_decay = 0.0}), from_json(R"({"type": "adamw", "weight_decay": 0})"));
  EXPECT_EQ(from_cpp({.decay = coupled}), from_json(R"({"type": "adam"})"));
  EXPECT_EQ(from_cpp({.weight_decay = 0.0, .decay = coupled}), from_json(R"({"type": "adam"})"));
}

TEST(Optimizer, TheLoopByHandCarriesNoRate) {
  const auto trained = [](bool by_hand) {
    ToyParameters toy;
    optim::Sgd sgd(toy.flat(), {.lr = 0.5, .momentum = 0.9});
    const optim::CosineSchedule schedule({}, {.total_steps = 5});
    if (!by_hand) sgd.attach(schedule);
    for (int step = 0; step < 5; ++step) {
      toy.set_gradients(step);
      if (by_hand) {
        const double scale = optim::clip_scale(optim::grad_norm(toy.flat()), 0.75);
        sgd.step(sgd.base_lr() * schedule.factor(step), scale);
        toy.flat().zero_grads();
      } else {
        EXPECT_EQ(sgd.lr(), 0.5 * schedule.factor(step));
        EXPECT_GT(sgd.clip_grad_norm(0.75), 0.75);
        sgd.step();
        sgd.zero_grad();
      }
    }
    return toy.values();
  };
  EXPECT_EQ(trained(false), trained(true));
}

TEST(Optimizer, ClippingCountsForOneStep) {
  ToyParameters toy;
  optim::Sgd sgd(toy.flat(), {.lr = 1, .momentum = 0, .weight_decay = 0});
  const double before = toy.values()[0];
  toy.fill_gradients(2);
  const double norm = sgd.clip_grad_norm(1);
  EXPECT_NEAR(norm, 2 * std::sqrt(21.0), 1e-12);
  sgd.step();
  EXPECT_NEAR(toy.values()[0], before - 2 / norm, 1e-6);
  toy.fill_gradients(2);
  (void)sgd.clip_grad_norm(1);
  sgd.zero_grad();
  toy.fill_gradients(2);
  const double clipped = toy.values()[0];
  sgd.step();
  EXPECT_EQ(toy.values()[0], clipped - 2) << "zero_grad() forgets it";
  toy.fill_gradients(2);
  const double halves = toy.values()[0];
  (void)sgd.clip_grad_norm(1);
  sgd.begin_step(1);
  sgd.apply();
  EXPECT_NEAR(toy.values()[0], halves - 2 / norm, 1e-6) << "a step in two halves";
  toy.fill_gradients(2);
  sgd.begin_step(1);
  (void)sgd.clip_grad_norm(1);
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { sgd.apply(); }), "clip before it");
  sgd.zero_grad();
  toy.fill_gradients(2);
  EXPECT_THROW((void)sgd.clip_grad_norm(0), ConfigError);
  toy.fill_gradients(std::numeric_limits<double>::infinity());
  EXPECT_THROW((void)sgd.clip_grad_norm(1), DivergedError);
}

TEST(Optimizer, AStepThatIsGivenUpCountsForNothing) {
  ToyParameters toy;
  optim::Adam adam(toy.flat(), {.lr = 1});
  optim::Ema ema(toy.flat(), {}, {});
  adam.begin_step(1);
  ema.begin_update();
  adam.abandon_step();
  ema.abandon_update();
  EXPECT_EQ(adam.steps(), 0);
  EXPECT_EQ(ema.updates(), 0);
  toy.fill_gradients(1);
  adam.begin_step(1);
  ema.begin_update();
  adam.apply(&ema);
  adam.abandon_step();
  ema.abandon_update();
  EXPECT_EQ(adam.steps(), 1) << "what was applied counts";
  EXPECT_EQ(ema.updates(), 1);
}

TEST(Optimizer, ARefusedStepCountsForNothing) {
  ToyParameters toy;
  optim::Adam adam(toy.flat(), {.lr = 1});
  toy.flat().zero_grads();
  EXPECT_THROW(adam.step(), UsageError) << "no gradient has arrived";
  EXPECT_EQ(adam.steps(), 0);
}

TEST(Optimizer, OutlivesItsParametersOnlyToSaySo) {
  auto toy = std::make_unique<ToyParameters>();
  optim::Sgd sgd(toy->flat(), {.lr = 1});
  toy.reset();
  EXPECT_THROW(sgd.zero_grad(), UsageError);
  EXPECT_THROW((void)sgd.clip_grad_norm(1), UsageError);
  State state;
  EXPECT_THROW(sgd.register_state(state), UsageError);
  EXPECT_THROW(optim::save(sgd, "nowhere.safetensors"), UsageError);
}

TEST(OptimGroups, GlobsCoverTheWholeName) {
  EXPECT_TRUE(optim::matches("layer?.*.weight", "layer1.0.conv1.weight"));
  EXPECT_TRUE(optim::matches("*", ""));
  EXPECT_TRUE(optim::matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(optim::matches("weight", "fc.weight"));
  EXPECT_FALSE(optim::matches("fc.*", "fc"));
  EXPECT_FALSE(optim::matches("a*b", "a-b-c"));
  EXPECT_FALSE(optim::matches("?", ""));
}

TEST(OptimGroups, NormsAndBiasesDoNotDecayByDefault) {
  ToyParameters toy;
  const optim::UpdatePlan plan(toy.flat(), {.weight_decay = 0.5});
  ASSERT_EQ(plan.ranges().size(), 3u);
  EXPECT_EQ(plan.ranges()[0].weight_decay, 0.5);
  EXPECT_EQ(plan.ranges()[1].weight_decay, 0.0);
  EXPECT_EQ(plan.ranges()[2].weight_decay, 0.5);
  EXPECT_EQ(plan.ranges()[2].end, toy.flat().values().size());
  const optim::UpdatePlan all(toy.flat(), {.weight_decay = 0.5, .decay_norm_bias = true});
  EXPECT_EQ(all.ranges().size(), 1u) << "neighbours with equal settings are one range";
}

TEST(OptimGroups, TheFirstMatchApplies) {
  ToyParameters toy;
  const optim::UpdatePlan plan(toy.flat(), {.weight_decay = 0.5,
                                            .groups = {{.match = {"*.bias", "second.*"}, .weight_decay = 0.25},
                                                       {.match = {"*"}, .lr_scale = 3.0}}});
  ASSERT_EQ(plan.ranges().size(), 2u);
  EXPECT_EQ(plan.ranges()[0].lr_scale, 3.0);
  EXPECT_EQ(plan.ranges()[0].weight_decay, 0.5);
  EXPECT_EQ(plan.ranges()[1].lr_scale, 1.0);
  EXPECT_EQ(plan.ranges()[1].weight_decay, 0.25);
}

TEST(OptimGroups, WhatAdaptsIsOfRankTwoUnlessAGroupSaysOtherwise) {
  ToyParameters toy;
  const optim::GroupOptions options{
      .groups = {{.match = {"*.bias"}, .adapt = true}, {.match = {"second.*"}, .adapt = false}}};
  const auto adapting = [&](const optim::UpdatePlan& plan) {
    std::vector<bool> all;
    for (const optim::ParameterRange& range : plan.ranges()) all.push_back(range.adapts);
    return all;
  };
  EXPECT_EQ(adapting({toy.flat(), {}, optim::Ranges::by_parameter}), (std::vector{true, false, true}));
  EXPECT_EQ(adapting({toy.flat(), options, optim::Ranges::by_parameter}), (std::vector{true, true, false}));
}

TEST(OptimLayerDecay, CountsLayersFromTheTop) {
  const std::vector<std::string> names{"embed.weight",          "blocks.0.norm.weight",
                                       "blocks.0.mlp.0.weight", "blocks.0.mlp.1.weight",
                                       "merge.0.weight",        "blocks.1.norm.weight",
                                       "blocks.10.weight",      "norm.weight",
                                       "head.weight",           "head.bias"};
  const auto scales = [&](std::vector<std::string> layers) {
    return optim::layer_scales({.decay = 0.5, .layers = std::move(layers)}, names);
  };
  // merge and norm belong to the layer before them.
  EXPECT_EQ(scales({"embed", "blocks.*", "head"}),
            (std::vector{1. / 16, 1. / 8, 1. / 8, 1. / 8, 1. / 8, .25, .5, .5, 1., 1.}));
  // What lies before the first layer is one of its own, and so it is without a pattern.
  EXPECT_EQ(scales({"blocks.*", "head"}), scales({"embed", "blocks.*", "head"}));
  EXPECT_EQ(scales({"blocks.?"}), (std::vector{.25, .5, .5, .5, .5, 1., 1., 1., 1., 1.}));
  EXPECT_EQ(scales({"*.*.weight", "*"}).front(), 1. / 32) << "the first pattern that fits counts";
  EXPECT_EQ(optim::layer_scales({}, names), std::vector<double>(names.size(), 1.0));
  EXPECT_EQ(optim::layer_scales({.decay = 0.5, .layers = {"head"}}, {"head.weight"}), std::vector{1.0});
}

TEST(OptimLayerDecay, MultipliesTheRateOfEachGroup) {
  ToyParameters toy;
  const optim::UpdatePlan plan(toy.flat(), {.groups = {{.match = {"*.bias"}, .lr_scale = 3.0}},
                                            .layer_decay = {.decay = 0.25, .layers = {"first", "second"}}});
  ASSERT_EQ(plan.ranges().size(), 3u);
  EXPECT_EQ(plan.ranges()[0].lr_scale, 0.25);
  EXPECT_EQ(plan.ranges()[1].lr_scale, 0.75);
  EXPECT_EQ(plan.ranges()[2].lr_scale, 1.0);
}

TEST(OptimLayerDecay, SlowsTheLowerLayersOfARun) {
  ToyParameters toy, plain;
  const auto optimizer = make(R"({"type": "sgd", "layer_decay": {"decay": 0.5, "layers": ["*"]}})", toy.flat());
  const auto even = make(R"({"type": "sgd"})", plain.flat());
  const std::vector<double> before = toy.values();
  for (auto* one : {&toy, &plain}) one->fill_gradients(1.0);
  optimizer->step(1.0);
  even->step(1.0);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i] - plain.values()[i], 1.0);
    EXPECT_EQ(before[i] - toy.values()[i], i < 15 ? 0.5 : 1.0);
  }
}

TEST(OptimLayerDecay, SaysWhatIsWrong) {
  ToyParameters toy;
  const auto message = [&](const std::string& node) {
    return test::error_message<ConfigError>(
        [&] { make(R"({"type": "adamw", "layer_decay": )" + node + "}", toy.flat()); });
  };
  EXPECT_PRED2(test::contains, message(R"({"decay": 0.5})"), "decay needs layers");
  EXPECT_PRED2(test::contains, message(R"({"decay": 0, "layers": ["*"]})"), "decay");
  EXPECT_PRED2(test::contains, message(R"({"decay": 1.5, "layers": ["*"]})"), "1.5");
  EXPECT_PRED2(test::contains, message(R"({"decay": 0.5, "layers": ["frist"]})"),
               "no parameter lies in \"frist\" of layer_decay; the nearest are \"first.");
  EXPECT_PRED2(test::contains, message(R"({"decay": 0.5, "layers": ["first.weight.more"]})"), "first.weight.more");
  EXPECT_THROW(optim::layer_scales({.decay = std::nan(""), .layers = {"*"}}, {"a"}), ConfigError);
  const auto of_options =
      test::error_message<ConfigError>([&] { optim::Adam(toy.flat(), {.layer_decay = {.decay = 0.5}}); });
  EXPECT_PRED2(test::contains, of_options, "decay needs layers");
}

TEST(OptimOptions, LarsWithoutMomentumIsToldOfSgd) {
  ToyParameters toy;
  const auto message =
      test::error_message<ConfigError>([&] { make(R"({"type": "lars", "momentum": 0})", toy.flat()); });
  EXPECT_PRED2(test::contains, message, "lars needs momentum above 0; 0.9 is usual, and sgd goes without");
}

TEST(OptimGroups, APatternWithoutParameterIsNamed) {
  ToyParameters toy;
  const auto message = [&](const char* pattern) {
    return test::error_message<ConfigError>([&] { optim::UpdatePlan(toy.flat(), {.groups = {{.match = {pattern}}}}); });
  };
  EXPECT_PRED2(test::contains, message("first.weigth"),
               "/optimizer/groups/0/match: no parameter matches the pattern \"first.weigth\"; the nearest are "
               "\"first.weight\", \"first.bias\", \"second.weight\"");
  EXPECT_PRED2(test::contains, message("*.wieght"), "the nearest are \"");
  EXPECT_PRED2(test::contains, message("second*bias*"), "the nearest are \"second.weight\"");
}

TEST(OptimGroups, AGroupWithoutPatternsIsRefused) {
  ToyParameters toy;
  const auto message =
      test::error_message<ConfigError>([&] { optim::Sgd(toy.flat(), {.groups = {{.match = {}, .lr_scale = 0.5}}}); });
  EXPECT_PRED2(test::contains, message, "without patterns");
}

TEST(OptimGroups, OneWithoutEffectIsRefused) {
  ToyParameters toy;
  const auto message = [&](const char* text) {
    return test::error_message<ConfigError>([&] { make(text, toy.flat()); });
  };
  EXPECT_PRED2(test::contains, message(R"({"type": "sgd", "groups": [{"type": "by_name", "match": ["*.bias"]},
                 {"type": "by_name", "match": ["first.*"]}, {"type": "by_name", "match": ["*bias", "first.weight"]}]})"),
               "/optimizer/groups/2: every parameter that it matches is in a group before it");
  EXPECT_PRED2(test::contains, message(R"({"type": "sgd", "groups": [{"type": "by_name", "match": ["*.bias"]},
                 {"type": "by_name", "match": ["thrid.*"]}]})"),
               "/optimizer/groups/1/match: no parameter matches the pattern \"thrid.*\"");
  for (const char* type : {"sgd", "adam", "adamw"})
    EXPECT_PRED2(test::contains,
                 message((R"({"type": ")" + std::string(type) +
                          R"(", "groups": [{"type": "by_name", "match": ["*.bias"], "adapt": true}]})")
                             .c_str()),
                 "/optimizer/groups/0/adapt: this optimizer sets no step by the norms of weights");
  EXPECT_NO_THROW(
      make(R"({"type": "lars", "groups": [{"type": "by_name", "match": ["*.bias"], "adapt": true}]})", toy.flat()));
}

TEST(OptimOptions, BadOnesAreRefused) {
  ToyParameters toy;
  const auto refused = [&](const char* text) { EXPECT_THROW(make(text, toy.flat()), ConfigError) << text; };
  refused(R"({"type": "sgd", "lr": -1})");
  refused(R"({"type": "sgd", "momentum": 1})");
  refused(R"({"type": "sgd", "nesterov": true})");
  refused(R"({"type": "sgd", "momentum": 0.9, "nesterov": true, "dampening": 0.1})");
  refused(R"({"type": "sgd", "momentun": 0.9})");
  refused(R"({"type": "adam", "beta2": 1})");
  refused(R"({"type": "adamw", "eps": 0})");
  refused(R"({"type": "adamw", "weight_decay": -0.1})");
  refused(R"({"type": "adamw", "groups": [{"type": "by_name", "match": ["third.*"]}]})");
  refused(R"({"type": "lars", "trust": 0})");
  refused(R"({"type": "lars", "momentum": 0})");
  refused(R"({"type": "lamb", "eps": 0})");
  refused(R"({"type": "sgdd"})");
  EXPECT_THROW(optim::Sgd(toy.flat(), {.momentum = -0.5}), ConfigError);
  EXPECT_THROW(optim::Sgd(toy.flat(), {.lr = std::nan("")}), ConfigError);
  EXPECT_THROW(optim::Adam(toy.flat(), {.beta1 = 1.5}), ConfigError);
  EXPECT_THROW(optim::Lars(toy.flat(), {.momentum = 0}), ConfigError);
  optim::Sgd sgd(toy.flat(), {});
  EXPECT_THROW(sgd.step(std::nan("")), UsageError);
  EXPECT_THROW(sgd.step(-0.1), UsageError);
  EXPECT_THROW(sgd.step(0.1, std::numeric_limits<double>::infinity()), UsageError);
  EXPECT_EQ(sgd.steps(), 0);
}

TEST(OptimOptions, EpsIsAboveZeroInTheTypeOfTheWeights) {
  ToyParameters low_precision(DType::f32), wide;
  const auto message = [&](const auto& make) { return test::error_message<ConfigError>(make); };
  EXPECT_PRED2(test::contains, message([&] { optim::Adam(low_precision.flat(), {.eps = 1e-46}); }), "adam: eps 1e-46");
  EXPECT_PRED2(test::contains, message([&] { optim::Lamb(low_precision.flat(), {.eps = 1e-46}); }), "lamb: eps 1e-46");
  EXPECT_THROW(optim::Adam(low_precision.flat(), {.eps = 1e39}), ConfigError);
  EXPECT_THROW(optim::Adam(wide.flat(), {.eps = std::nan("")}), ConfigError);
  for (ToyParameters* const toy : {&low_precision, &wide}) {
    optim::Adam adam(toy->flat(), {.eps = toy == &low_precision ? 1e-37 : 1e-46, .weight_decay = 0.0});
    toy->fill_gradients(0);
    const std::vector<double> before = toy->values();
    adam.step(0.1);
    EXPECT_EQ(toy->values(), before);
  }
}

TEST(OptimOptions, ApplyBelongsToAStepThatWasBegun) {
  for (const char* const type : {"sgd", "adam", "lars", "lamb"}) {
    ToyParameters toy;
    const auto optimizer = make(join_text(R"({"type": ")", type, R"("})"), toy.flat());
    toy.fill_gradients(1);
    const std::vector<double> before = toy.values();
    EXPECT_PRED2(test::contains, test::error_message<UsageError>([&] { optimizer->apply(); }), "before begin_step()");
    EXPECT_EQ(toy.values(), before);
    optimizer->begin_step(0.1);
    optimizer->apply();
    EXPECT_NE(toy.values(), before);
  }
}

TEST(OptimOptions, ParametersWithoutContributionCountAsZeroGradient) {
  ToyParameters toy;
  toy.fill_gradients(5.0);
  toy.flat().zero_grads();
  grad_of(toy.flat().entries()[1].value).fill_(1);
  std::vector<double> expected = toy.values();
  for (std::size_t i = 12; i < 15; ++i) expected[i] -= 1;
  optim::Sgd(toy.flat(), {}).step(1.0);
  EXPECT_EQ(toy.values(), expected);
}

TEST(OptimExtremesOnDevices, AdamMovesOnAfterAGradientOf1e25) {
  for (const Device device : test::devices())
    for (const char* type : {"adam", "adamw"}) {
      // A short memory, so that the one large gradient is forgotten within the test.
      const std::string text = R"(", "weight_decay": 0, "beta1": 0.5, "beta2": 0.5})";
      ToyParameters toy(DType::f32, device);
      const auto optimizer = make(join_text(R"({"type": ")", type, text), toy.flat());
      const auto moved_by = [&](double gradient) {
        const std::vector<double> before = toy.values();
        toy.fill_gradients(gradient);
        optimizer->step(0.01);
        std::vector<double> moves = toy.values();
        for (std::size_t i = 0; i < moves.size(); ++i) moves[i] -= before[i];
        return moves;
      };
      for (int step = 0; step < 4; ++step)
        for (const double move : moved_by(1e25))
          EXPECT_NEAR(move, -0.01, 1e-4) << device << type << ": a constant gradient moves a weight by lr";
      // The bound, 1e18, squared is halved with each step, the bound itself too: 150 steps for both to be nothing.
      for (int step = 0; step < 150; ++step) (void)moved_by(-0.5);
      for (const double move : moved_by(-0.5)) EXPECT_NEAR(move, 0.01, 1e-4) << device << type << " afterwards";
    }
}

TEST(OptimExtremes, AdamDoesNotHideInfiniteGradients) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    ToyParameters toy(DType::f32);
    optim::Adam adam(toy.flat(), {});
    toy.fill_gradients(bad);
    adam.step(0.01);
    for (const double value : toy.values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(OptimExtremesOnDevices, AFiniteGradientThatItsScaleMakesInfiniteIsBounded) {
  for (const Device device : {Device{}, Device{DeviceType::cuda, 0}})
    for (const char* const text : {R"({"type": "adam"})", R"({"type": "lamb", "weight_decay": 0})"}) {
      if (device_count(device.type) == 0) continue;
      ToyParameters bounded(DType::f32, device), reference(DType::f32, device);
      bounded.fill_gradients(-3e38);
      make(text, bounded.flat())->step(0.01, 2.0);
      reference.fill_gradients(-1e18);
      make(text, reference.flat())->step(0.01);
      EXPECT_EQ(bounded.values(), reference.values()) << text << device;
    }
}

TEST(OptimExtremes, AGradientScaleBelowTheNormalRangeKeepsItsPrecision) {
  ToyParameters toy(DType::f32);
  const std::vector<double> before = toy.values();
  toy.fill_gradients(3e38);
  optim::Sgd(toy.flat(), {}).step(1.0, 1e-42);
  const std::vector<double> after = toy.values();
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(before[i] - after[i], 3e-4, 1e-7);
}

TEST(OptimState, GapsBetweenParametersStayZero) {
  ToyParameters toy;
  optim::Adam adam(toy.flat(), {.weight_decay = 0.1, .decay_norm_bias = true});
  for (int step = 0; step < 5; ++step) {
    toy.set_gradients(step);
    adam.step(0.1);
  }
  const std::vector<double> all = toy.flat().values().to_doubles();
  std::size_t at = 0;
  for (const auto& entry : toy.flat().entries()) {
    for (; at < static_cast<std::size_t>(entry.begin); ++at) EXPECT_EQ(all[at], 0.0);
    at += static_cast<std::size_t>(entry.size);
  }
  for (; at < all.size(); ++at) EXPECT_EQ(all[at], 0.0);
}

TEST(LrScaling, FollowsTheBatch) {
  using optim::LrScaling;
  EXPECT_EQ(optim::lr_scaling_factor(LrScaling::none, 4096, 256), 1.0);
  EXPECT_EQ(optim::lr_scaling_factor(LrScaling::linear, 4096, 256), 16.0);
  EXPECT_EQ(optim::lr_scaling_factor(LrScaling::sqrt, 4096, 256), 4.0);
  EXPECT_EQ(optim::lr_scaling_factor(LrScaling::linear, 64, 256), 0.25);
  EXPECT_EQ(optim::lr_scaling_factor(LrScaling::sqrt, 64, 256), 0.5);
  EXPECT_THROW(optim::lr_scaling_factor(LrScaling::linear, 64, 0), ConfigError);
  EXPECT_THROW(optim::lr_scaling_factor(LrScaling::sqrt, 0, 64), ConfigError);
}

class LargeParameters {
 public:
  explicit LargeParameters(std::int64_t size) : tensor_(filled(size, 1)), flat_({{"weight", &tensor_}}) {
    grad_of(flat_.entries()[0].value).copy_from(filled(size, 2));
  }
  FlatParameters& flat() { return flat_; }

 private:
  static Tensor filled(std::int64_t size, std::uint64_t stream) {
    Tensor tensor = Tensor::empty({size / 8, 8});
    Random random(3, stream);
    for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = static_cast<float>(random.normal());
    return tensor;
  }
  Tensor tensor_;
  FlatParameters flat_;
};

TEST(OptimThreads, UpdatesDoNotDependOnTheThreadCount) {
  const int threads = cpu::threads();
  for (const char* text : {R"({"type": "sgd", "momentum": 0.9, "weight_decay": 0.1})", R"({"type": "adamw"})",
                           R"({"type": "lars"})", R"({"type": "lamb"})", R"({"type": "lamb", "max_grad_norm": 1})"}) {
    std::vector<double> expected;
    for (const int count : {1, 2, 3, 8}) {
      cpu::set_threads(count);
      LargeParameters large(200'000);
      const auto optimizer = make(text, large.flat());
      optimizer->step(0.1);
      optimizer->step(0.1);
      const std::vector<double> values = large.flat().values().to_doubles();
      if (expected.empty()) expected = values;
      EXPECT_EQ(values, expected) << text << " with " << count << " threads";
    }
  }
  cpu::set_threads(threads);
}

}  // namespace
}  // namespace hearth::optimizer_test
