// SPDX-License-Identifier: Apache-2.0
// 1,000 steps of every optimizer and schedule against PyTorch in double precision (golden/make_optim.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>

#include "core/io/json_text.h"
#include "optim/registry.h"
#include "tests/optim/toy_parameters.h"
#include "tests/support/places.h"

namespace hearth::golden_test {
namespace {

const Json& golden() {
  static const Json document = read_json(test::source_dir() + "/tests/golden/optim.json");
  return document;
}

struct Case {
  const char* name;
  const char* optimizer;
  const char* schedule = R"({"type": "constant"})";
};

void PrintTo(const Case& tried, std::ostream* out) { *out << tried.name; }

constexpr const char* cosine_schedule = R"({"type": "cosine", "warmup_steps": 50})";

// What torch.optim was given; it lets every parameter decay.
const Case cases[] = {
    {"sgd", R"({"type": "sgd", "lr": 0.01})"},
    {"sgd_decay", R"({"type": "sgd", "lr": 0.01, "weight_decay": 0.1, "decay_norm_bias": true})"},
    {"sgd_momentum", R"({"type": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 0.05, "decay_norm_bias": true})"},
    {"sgd_dampening", R"({"type": "sgd", "lr": 0.01, "momentum": 0.9, "dampening": 0.3})"},
    {"sgd_nesterov",
     R"({"type": "sgd", "lr": 0.01, "momentum": 0.8, "nesterov": true, "weight_decay": 0.05,
         "decay_norm_bias": true})"},
    {"sgd_cosine", R"({"type": "sgd", "lr": 0.02, "momentum": 0.9})", cosine_schedule},
    {"sgd_groups",
     R"({"type": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 0.1,
         "groups": [{"type": "by_name", "match": ["second.*"], "lr_scale": 10}]})"},
    {"adam", R"({"type": "adam", "lr": 0.01})"},
    {"adam_decay",
     R"({"type": "adam", "lr": 0.01, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1,
         "decay_norm_bias": true})"},
    {"adamw", R"({"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay_norm_bias": true})"},
    {"adamw_cosine", R"({"type": "adamw", "lr": 0.02, "beta2": 0.95, "weight_decay": 0.01, "decay_norm_bias": true})",
     cosine_schedule},
    {"lars", R"({"type": "lars", "lr": 0.1, "trust": 0.02, "weight_decay": 0.05})"},
    {"lamb", R"({"type": "lamb", "lr": 0.01, "beta2": 0.99, "weight_decay": 0.05})"},
    {"adamw_groups",
     R"({"type": "adamw", "lr": 0.01, "weight_decay": 0.1,
         "groups": [{"type": "by_name", "match": ["second.*"], "lr_scale": 10}]})"},
};

class OptimGolden : public testing::TestWithParam<std::tuple<Case, Device>> {};

TEST_P(OptimGolden, ThousandStepsMatchTorch) {
  const auto& [tried, device] = GetParam();
  if (device_count(device.type) == 0) GTEST_SKIP() << "there is no device " << device;
  test::ToyParameters toy(DType::f64, device);
  const auto optimizer = optim::optimizers().make(parse_json(tried.optimizer, "test"), toy.flat());
  const auto schedule =
      optim::schedules().make(parse_json(tried.schedule, "test"), {.total_steps = 1000, .steps_per_epoch = 100});
  const Json& sampled = golden().at("sampled");
  const Json& expected = golden().at("cases").at(tried.name);
  std::size_t next = 0;
  for (int step = 0; step < 1000; ++step) {
    toy.set_gradients(step);
    optimizer->step(optimizer->base_lr() * schedule->factor(step));
    if (sampled.at(next).as_integer() != step + 1) continue;
    const std::vector<double> values = toy.values();
    ASSERT_EQ(values.size(), expected.at(next).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double wanted = expected.at(next).at(i).as_number();
      EXPECT_NEAR(values[i], wanted, 1e-12 * std::max(1.0, std::abs(wanted)))
          << "step " << step + 1 << " element " << i;
    }
    ++next;
  }
  EXPECT_EQ(next, sampled.size());
  EXPECT_EQ(optimizer->steps(), 1000);
}

INSTANTIATE_TEST_SUITE_P(Torch, OptimGolden,
                         testing::Combine(testing::ValuesIn(cases),
                                          testing::Values(Device{}, Device{DeviceType::cuda, 0})),
                         [](const auto& tried) {
                           const bool on_cpu = std::get<1>(tried.param).is_cpu();
                           return std::string(std::get<0>(tried.param).name) + (on_cpu ? "" : "_cuda");
                         });

TEST(ScheduleGolden, EveryScheduleMatchesTorch) {
  const struct {
    const char* name;
    const char* schedule;
  } tried[] = {
      {"constant_warmup", R"({"type": "constant", "warmup_steps": 100})"},
      {"step", R"({"type": "step", "milestones": [3, 6, 9]})"},
      {"cosine", R"({"type": "cosine", "final_factor": 0.05})"},
      {"cosine_warmup", R"({"type": "cosine", "warmup_epochs": 1})"},
      {"polynomial", R"({"type": "polynomial", "power": 2})"},
      {"inverse_sqrt", R"({"type": "inverse_sqrt", "warmup_steps": 60, "warmup_epochs": 0.4})"},
  };
  for (const auto& [name, text] : tried) {
    const auto schedule =
        optim::schedules().make(parse_json(text, "test"), {.total_steps = 1000, .steps_per_epoch = 100});
    const Json& expected = golden().at("schedules").at(name);
    ASSERT_EQ(expected.size(), 77u);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(schedule->factor(static_cast<std::int64_t>(13 * i)), expected.at(i).as_number(), 1e-12)
          << name << " step " << 13 * i;
    }
  }
}

}  // namespace
}  // namespace hearth::golden_test
