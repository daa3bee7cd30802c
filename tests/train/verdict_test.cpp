// SPDX-License-Identifier: Apache-2.0
// Verdicts on runs that differ, and on runs that do not.
#include "train/report/compare/verdict.h"

#include <gtest/gtest.h>

#include "tests/support/error_message.h"
#include "tests/train/cli_program.h"

namespace hearth::train {
namespace {

// Critical values of Student's distribution (Abramowitz and Stegun, table 26.10), and the integral of its density.
TEST(Verdict, StudentsDistribution) {
  EXPECT_NEAR(two_sided_p(12.706, 1), 0.05, 1e-5);
  EXPECT_NEAR(two_sided_p(4.303, 2), 0.05, 1e-5);
  EXPECT_NEAR(two_sided_p(2.228, 10), 0.05, 1e-4);
  EXPECT_NEAR(two_sided_p(-2.750, 30), 0.01, 1e-4);
  EXPECT_NEAR(two_sided_p(1.959964, 1e7), 0.05, 1e-6);
  EXPECT_NEAR(two_sided_p(1, 1), 0.5, 1e-12);
  EXPECT_NEAR(two_sided_p(0.5, 4.5), 0.6405495, 1e-7);
  EXPECT_EQ(two_sided_p(0, 3), 1);
  EXPECT_LT(two_sided_p(50, 20), 1e-20);
}

/// A run of two lines of training and two evaluations.
NamedRun made_up(const std::string& name, int seed, double accuracy, double lr = 0.1, double first_loss = 2,
                 const std::string& weights = "w") {
  NamedRun run{.name = name, .records = {}};
  run.records.config =
      Json::object().set("name", name).set("seed", seed).set("optimizer", Json::object().set("lr", lr));
  run.records.info = Json::object().set("metrics", Json::object().set("weights_sha256", weights));
  const auto train = [&](int step, double loss) {
    run.records.metrics.push_back(Json::object()
                                      .set("step", step)
                                      .set("split", "train")
                                      .set("loss", loss)
                                      .set("device_energy", 10)
                                      .set("phase_seconds", Json::object().set("forward", 1.5).set("backward", 2.5)));
  };
  const auto valid = [&](int step, double value) {
    run.records.metrics.push_back(
        Json::object().set("step", step).set("split", "valid").set("loss", 1 - value).set("accuracy", value));
  };
  train(10, first_loss);
  valid(10, accuracy / 2);
  train(20, 1.5);
  valid(20, accuracy);
  return run;
}

const MetricVerdict& of_accuracy(const Verdict& verdict) {
  for (const MetricVerdict& metric : verdict.metrics)
    if (metric.metric == "accuracy") return metric;
  throw UsageError("no verdict on accuracy");
}

TEST(Verdict, GroupsRunsByWhatTheyLearn) {
  const std::vector<NamedRun> runs{made_up("a", 1, 0.9), made_up("b", 1, 0.9, 0.2), made_up("c", 2, 0.91)};
  const Verdict verdict = verdict_on(runs);
  ASSERT_EQ(verdict.groups.size(), 2U);
  EXPECT_EQ(verdict.groups[0].runs, (std::vector<std::size_t>{0, 2}));
  ASSERT_EQ(verdict.differences.size(), 2U);
  EXPECT_EQ(verdict.differences[0], (std::vector<std::string>{"optimizer.lr", "0.1", "0.2", "0.1"}));
}

TEST(Verdict, TellsWhatIsMoreThanTheSeeds) {
  std::vector<NamedRun> runs{made_up("a1", 1, 0.900), made_up("a2", 2, 0.904), made_up("a3", 3, 0.902)};
  for (const double accuracy : {0.901, 0.905, 0.902}) runs.push_back(made_up("b", 1, accuracy, 0.2));
  Verdict verdict = verdict_on(runs);
  EXPECT_FALSE(of_accuracy(verdict).differs);
  // t = 0.4 at 3.9936 degrees of freedom; the integral of the density gives p.
  EXPECT_NEAR(*of_accuracy(verdict).p, 0.70963, 1e-5);
  EXPECT_PRED2(contains, of_accuracy(verdict).text, "equal within the band of seeds (Welch's t-test, p = 0.");
  runs.resize(3);
  for (const double accuracy : {0.880, 0.882, 0.884}) runs.push_back(made_up("c", 1, accuracy, 0.3));
  verdict = verdict_on(runs);
  EXPECT_TRUE(of_accuracy(verdict).differs) << of_accuracy(verdict).text;
  EXPECT_PRED2(contains, of_accuracy(verdict).text, "different (Welch's t-test");
  // One run beside three.
  runs.resize(4);
  EXPECT_TRUE(of_accuracy(verdict_on(runs)).differs);
  EXPECT_PRED2(contains, of_accuracy(verdict_on(runs)).text, "t-test of one run");
  const Verdict alone = verdict_on({runs[0], runs[3]});
  EXPECT_FALSE(of_accuracy(alone).p.has_value());
  EXPECT_PRED2(contains, of_accuracy(alone).text, "one run each has no band of seeds");
}

TEST(Verdict, NamesTheFirstStepThatDiffers) {
  Verdict verdict = verdict_on({made_up("a", 1, 0.9), made_up("b", 1, 0.9, 0.1, 2.0000001)});
  ASSERT_EQ(verdict.bits.size(), 1U);
  EXPECT_EQ(verdict.bits[0].step, 10);
  EXPECT_PRED2(contains, verdict.bits[0].text, "differ first at step 10: loss 2 and 2.0000001");
  verdict = verdict_on({made_up("a", 1, 0.9), made_up("b", 1, 0.9)});
  EXPECT_EQ(verdict.bits[0].text, "the same bits to the end");
  verdict = verdict_on({made_up("a", 1, 0.9), made_up("b", 1, 0.9, 0.1, 2, "other")});
  EXPECT_EQ(verdict.bits[0].text, "no line of metrics differs, and the last weights do");
  EXPECT_TRUE(verdict_on({made_up("a", 1, 0.9), made_up("b", 2, 0.9)}).bits.empty()) << "other seeds";
}

TEST(Verdict, CountsTimeAndEnergyToATarget) {
  const std::vector<NamedRun> runs{made_up("a", 1, 0.9), made_up("b", 2, 0.4, 0.2)};
  Verdict verdict = verdict_on(runs);
  ASSERT_TRUE(verdict.target.has_value());
  EXPECT_EQ(verdict.target->value, 0.4) << "what both reach";
  EXPECT_EQ(verdict.times[0].step, 10);
  EXPECT_EQ(verdict.times[0].seconds, 4);
  EXPECT_EQ(verdict.times[0].joules, 10);
  EXPECT_EQ(verdict.times[1].step, 20);
  EXPECT_EQ(verdict.times[1].seconds, 8);
  verdict = verdict_on(runs, Target{.metric = "loss", .value = 0.1, .lower_is_better = true});
  EXPECT_EQ(verdict.times[0].step, 20);
  EXPECT_FALSE(verdict.times[1].step.has_value());
  EXPECT_PRED2(contains, test::error_message<UsageError>([&] { (void)verdict_on(runs, Target{.metric = "bleu"}); }),
               "no evaluation of these runs has the metric \"bleu\"");
}

class Compare : public Cli {};

TEST_F(Compare, RealRunsOfTwoPrecisionsAndOfOneSeedTwice) {
  write("run.json", R"({"name": "run", "seed": 3, "device": "cpu", "model": {"type": "mlp", "hidden": [16]},
    "data": {"type": "digits", "valid_fraction": 0.1}, "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"batch_size": 64, "epochs": 2, "deterministic": true},
    "log": {"every_steps": 5, "report": false, "tensorboard": false}})");
  const auto train = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "run.json", "--out", out});
    EXPECT_EQ(hearth(more).exit_code, 0);
  };
  train("a", {});
  train("again", {});
  train("seed4", {"--seed", "4"});
  train("slow", {"--lr", "0.001"});
  const ProgramResult text = hearth({"compare", "a", "again", "seed4", "slow"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* part :
       {"a and again: the same bits to the end", "a and slow: differ first at step 5: loss", "t-test of one run",
        "to accuracy", " s of training", "optimizer.lr: 0.1 | 0.1 | 0.1 | 0.001"})
    EXPECT_PRED2(contains, text.out, part);
  const Json verdict = parse_json(hearth({"compare", "a", "slow", "--target", "accuracy=2", "--json"}).out, "verdict");
  EXPECT_TRUE(verdict.at("target").at("runs").at(0).at("step").is_null());
  EXPECT_EQ(verdict.at("groups").size(), 2U);
  ASSERT_EQ(hearth({"report", "a", "slow"}).exit_code, 0);
  const std::string page = read_text(path("report.html"));
  EXPECT_PRED2(contains, page, "<h2>Verdict</h2>");
  EXPECT_PRED2(contains, page, "differ first at step 5");
  expect_failure(hearth({"compare", "a"}), 2, "usage", {"compare"});
  expect_failure(hearth({"compare", "a", "slow", "--target", "accuracy"}), 2, "usage", {"METRIC=VALUE"});
  expect_failure(hearth({"compare", "a", "none"}), 3, "file", {"none"});
}

}  // namespace
}  // namespace hearth::train
