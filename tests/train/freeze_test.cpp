// SPDX-License-Identifier: Apache-2.0
// train.freeze: parts of a model that a run leaves as they are, statistics of norms included.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/error_message.h"
#include "tests/train/hook_run.h"

namespace hearth::train::freeze_test {
namespace {

using Values = std::map<std::string, std::vector<double>>;

Values values_of(const Session& session) {
  Values values;
  for (const State::Entry& entry : session.model_state.entries()) values[entry.name] = entry.tensor->to_doubles();
  return values;
}

/// Notes the model before the first step and after the last one.
struct Noting : Hook {
  Noting(Values& first, Values& last) : before(first), after(last) {}
  void before_step(Session& session, std::span<const data::Batch>) override {
    if (before.empty()) before = values_of(session);
  }
  void after_step(Session& session, const StepResult&) override { after = values_of(session); }
  Values& before;
  Values& after;
};

class Freeze : public testing::Test, protected test::HookRuns {
 protected:
  static std::vector<std::string> resnet(std::vector<std::string> more) {
    more.emplace_back(R"(model={"type": "resnet", "blocks": [1, 1], "stem": "small", "width": 4})");
    more.emplace_back("train.epochs=1");
    return more;
  }
};

TEST_F(Freeze, PartsStayAsTheyAreAndTheRestIsTrained) {
  for (const std::string precision : {R"({"level": "O0"})", R"({"level": "O2", "dtype": "bf16"})"}) {
    SCOPED_TRACE(precision);
    Values before, after;
    (void)run(join_text("run", precision.size()),
              resnet({R"(train.freeze=["layer1", "conv1"])", join_text("precision=", precision)}),
              [&](Session& session) { session.add_hook("noting", std::make_unique<Noting>(before, after)); });
    ASSERT_FALSE(after.empty());
    for (const auto& [tensor, values] : after) {
      const bool frozen = tensor.starts_with("layer1.") || tensor.starts_with("conv1.");
      EXPECT_EQ(values == before.at(tensor), frozen) << tensor;
    }
    EXPECT_TRUE(after.contains("layer1.0.bn1.running_mean"));
  }
}

TEST_F(Freeze, ARunGoesOnBitForBit) {
  const auto frozen = resnet({R"(train.freeze=["layer2.0"])"});
  const std::string whole = run("whole", frozen).metric("weights_sha256");
  std::vector<std::string> shorter = frozen;
  shorter.back() = "train.epochs=null";
  shorter.emplace_back("train.steps=2");
  (void)run("parts", shorter);
  EXPECT_EQ(run("parts", frozen).metric("weights_sha256"), whole);
  EXPECT_FALSE(whole.empty());
}

TEST_F(Freeze, ANameThatIsNoPartIsRefused) {
  const auto refusal = [&](const std::string& names) {
    return test::error_message<ConfigError>([&] { (void)run("run", resnet({"train.freeze=" + names})); });
  };
  for (const char* names : {R"(["layer9"])", R"(["layer1.0.conv1.weight"])", R"([""])", R"(["layer"])"}) {
    EXPECT_PRED2(test::contains, refusal(names), "/train/freeze");
    EXPECT_PRED2(test::contains, refusal(names), "its parts are conv1, bn1, layer1, layer2, fc") << names;
  }
}

}  // namespace
}  // namespace hearth::train::freeze_test
