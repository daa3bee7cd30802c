// SPDX-License-Identifier: Apache-2.0
#include "train/plan/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "hearth.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace hearth::train::audit_test {
namespace {

using test::contains;

const char* const run_of_digits = R"({"device": "cpu", "model": {"type": "mlp", "hidden": [40]},
  "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 32, "steps": 3}})";

std::vector<AuditFinding> audit(const std::vector<std::string>& overrides, Device wanted = {}) {
  const test::TempDir folder;
  std::ofstream(folder / "run.json") << run_of_digits;
  Session session(load_config((folder / "run.json").string(), overrides));
  return audit_of(session, wanted);
}

std::vector<AuditFinding> of_kind(const std::vector<AuditFinding>& all, const std::string& kind) {
  std::vector<AuditFinding> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some), [&](const auto& one) { return one.kind == kind; });
  return some;
}

TEST(Audit, NamesLayersWhoseSizesDoNotFillVectors) {
  const std::vector<AuditFinding> found = of_kind(audit({}), "sizes");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].what, "40 output features: no multiple of 16");
  EXPECT_EQ(found[0].remedy, "pad to 48 output features");
  EXPECT_EQ(found[1].what, "40 input features, 10 output features: no multiple of 16");
  EXPECT_EQ(found[1].op, "linear");
  // Forward's part of 64 x 40 twice and 40 x 10 three times.
  EXPECT_NEAR(found[0].share, 2560.0 / (2 * 2560 + 3 * 400), 1e-9);
  const char* const sixteen = R"(data={"type": "synthetic", "classes": 16, "height": 8, "width": 8, "channels": 1,
                                  "train_size": 64, "test_size": 8})";
  EXPECT_TRUE(of_kind(audit({"model.hidden=[48]", sixteen}), "sizes").empty());
}

TEST(Audit, AsksOfAGpuWhatItsTensorCoresTake) {
  EXPECT_EQ(aligned_features(DeviceType::cuda, ComputeType::bf16), 8);
  EXPECT_EQ(aligned_features(DeviceType::cuda, ComputeType::tf32), 4);
  EXPECT_EQ(aligned_features(DeviceType::cuda, ComputeType::f32), 1);
  const std::vector<AuditFinding> found =
      of_kind(audit({R"(precision={"level": "O1", "dtype": "bf16"})"}, Device("cuda")), "sizes");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].what, "10 output features: no multiple of 8");
}

TEST(Audit, NamesCastsByTheOpThatNeedsThem) {
  EXPECT_TRUE(of_kind(audit({}), "cast").empty());
  const std::vector<AuditFinding> found = of_kind(audit({R"(precision={"level": "O1", "dtype": "bf16"})"}), "cast");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].op, "linear");
  EXPECT_EQ(found[0].what, "f32 to bf16 of an input");
}

TEST(Audit, NamesPortableImplementationsAndWhyOthersDidNotRun) {
  // Cross entropy in f32 has a portable implementation only.
  const std::vector<AuditFinding> found = of_kind(audit({}), "portable");
  ASSERT_FALSE(found.empty());
  EXPECT_PRED2(contains, found[0].what, "cross_entropy:portable ran: avx512_bf16: ");
}

TEST(Audit, PutsWhatLayersHaveInCommonOnOneLine) {
  const std::vector<AuditFinding> found{
      {.kind = "cast", .layer = "a", .op = "linear", .what = "x", .remedy = "y", .calls = 2, .share = 0.1},
      {.kind = "sizes", .layer = "b", .op = "linear", .what = "x", .remedy = "y"},
      {.kind = "cast", .layer = "c", .op = "linear", .what = "x", .remedy = "y", .calls = 1, .share = 0.05}};
  EXPECT_EQ(to_text(found),
            "cast      linear: x\n          in a and 1 more, 3 calls, 15.0 % of the step\n          -> y\n"
            "sizes     linear: x\n          in b, 1 call, 0.0 % of the step\n          -> y\n");
  EXPECT_EQ(to_text(std::vector<AuditFinding>()), "nothing found\n");
  EXPECT_TRUE(unexpected(found, findings_of(to_json(found))).empty());
}

TEST(Audit, ExpectsNoMoreLaunchesThanThereWere) {
  std::vector<AuditFinding> found{{.kind = "launches", .layer = "", .op = "forward", .what = "x", .remedy = "y"}};
  const std::vector<AuditFinding> expected = findings_of(to_json(found));
  EXPECT_EQ(to_text(found), "launches  forward: 1 x\n");
  EXPECT_TRUE(unexpected(found, expected).empty());
  found[0].calls = 2;
  EXPECT_EQ(unexpected(found, expected).size(), 1U);
  EXPECT_TRUE(unexpected(expected, found).empty()) << "fewer";
}

struct FaultyOptions {
  std::string fault;
};

void describe(Fields<FaultyOptions>& f) { f.text("fault", &FaultyOptions::fault, "What is wrong."); }

/// A linear layer with a fault planted before it.
struct Faulty : nn::Module {
  std::string fault;
  nn::Linear first, out;

  Faulty(const FaultyOptions& options, std::int64_t pixels, std::int64_t classes)
      : fault(options.fault), first(pixels, 32), out(32, classes) {
    register_module("first", first);
    register_module("out", out);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(first(flatten(images)));
    if (fault == "transpose") x = transpose(transpose(x, {1, 0}).contiguous(), {1, 0});
    if (fault == "gaps") x = slice(concat({x, x}, 1), 1, 0, 32).contiguous();
    if (fault == "repeat") x = add(x, expand(Tensor::zeros({1, 32}), x.shape()).contiguous());
    if (fault == "copy") x = add(x, x.clone());
    if (fault == "cast") x = add(x, x.to(DType::f64).to(DType::f32));
    if (fault == "fill") x = add(x, Tensor::zeros(x.shape()));
    if (fault == "wait" && sum(x).item() < 0) x = relu(x);
    return out(x);
  }
};

/// What a fault adds to the findings of the model without it.
std::vector<AuditFinding> added_by(const std::string& fault, Device wanted = {}) {
  static const bool is_there = [] {
    models::add<FaultyOptions>("faulty", [](const FaultyOptions& options, const models::InputInfo& input) {
      return std::make_unique<Faulty>(options, 64, input.classes);
    });
    return true;
  }();
  EXPECT_TRUE(is_there);
  const auto with = [&](const std::string& name) {
    return audit({join_text(R"(model={"type": "faulty", "fault": ")", name, "\"}")}, wanted);
  };
  return unexpected(with(fault), with("none"));
}

TEST(Audit, NamesPlantedCopiesAndFills) {
  const std::vector<std::array<std::string, 3>> planted{
      {"transpose", "transpose", "copies an operand, axes 1, 0 in memory"},
      {"gaps", "copy", "copies an operand, with gaps"},
      {"repeat", "copy", "copies an operand, axis 0 repeated"},
      {"copy", "copy", "copies an operand"},
      {"cast", "cast", "f32 to f64 of an operand"},
      {"fill", "fill", "fills memory"}};
  for (const auto& [fault, kind, what] : planted) {
    const std::vector<AuditFinding> found = of_kind(added_by(fault), kind);
    ASSERT_FALSE(found.empty()) << fault;
    EXPECT_EQ(found[0].what, what) << fault;
    EXPECT_GT(found[0].share, 0) << fault;
    EXPECT_TRUE(of_kind(added_by("none"), kind).empty()) << fault;
  }
}

TEST(Audit, NamesWhatAGpuWouldWaitFor) {
  EXPECT_TRUE(of_kind(added_by("wait"), "wait").empty()) << "a CPU has done it";
  const std::vector<AuditFinding> found = added_by("wait", Device("cuda"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, "wait");
  EXPECT_EQ(found[0].what, "the host reads values");
}

TEST(Audit, NamesChannelsOfConvolutionsAndClasses) {
  const std::vector<AuditFinding> found =
      of_kind(audit({R"(model={"type": "resnet", "blocks": [1], "width": 20, "stem": "small"})",
                     R"(data={"type": "synthetic", "classes": 1001, "height": 8, "width": 8, "channels": 16,
                     "train_size": 64, "test_size": 8})",
                     R"(precision={"level": "O1", "dtype": "bf16"})"},
                    Device("cuda")),
              "sizes");
  const auto has = [&](const std::string& op, const std::string& what) {
    return std::any_of(found.begin(), found.end(),
                       [&](const AuditFinding& one) { return one.op == op && one.what.find(what) != what.npos; });
  };
  EXPECT_TRUE(has("conv2d", "20 output channels: no multiple of 8"));
  EXPECT_TRUE(has("linear", "1001 output features: no multiple of 8"));
}

class AuditCommand : public testing::Test {
 protected:
  AuditCommand() { std::ofstream(folder_ / "run.json") << run_of_digits; }
  test::ProgramResult run(std::vector<std::string> more) const {
    more.insert(more.begin(), {test::hearth_program(), "plan", "run.json", "--audit"});
    return test::run_program(more, folder_.path());
  }
  test::TempDir folder_;
};

TEST_F(AuditCommand, RefusesWhatAnEarlierOneDidNotFind) {
  std::ofstream(folder_ / "expected.json") << run({"--json"}).out;
  EXPECT_EQ(run({"--expect", "expected.json"}).exit_code, 0);
  const test::ProgramResult other = run({"--expect", "expected.json", "--set", "model.hidden=[41]"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_PRED2(contains, other.err, "plan --audit: expected.json does not expect");
  EXPECT_PRED2(contains, other.err, "41 output features: no multiple of 16");
  EXPECT_EQ(run({"--expect", "expected.json", "--set", "model.hidden=[48]"}).exit_code, 2) << "its other layer";
  EXPECT_EQ(run({"--ranks", "2"}).exit_code, 2);
  std::ofstream(folder_ / "odd.json") << "{}";
  EXPECT_EQ(run({"--expect", "odd.json"}).exit_code, 2);
}

}  // namespace
}  // namespace hearth::train::audit_test
