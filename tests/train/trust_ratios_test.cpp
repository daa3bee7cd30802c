// SPDX-License-Identifier: Apache-2.0
// Trust ratios of LARS and LAMB in the metrics of a run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/io/json_text.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "train/report/metrics_log.h"

namespace hearth::train::trust_ratios_test {
namespace {

TEST(TrustRatios, AreInTrainingLinesByGroup) {
  const test::TempDir folder;
  const auto lines = [&](const std::string& optimizer, const std::vector<std::string>& stops = {}) {
    std::ofstream(folder / "run.json") << R"({"model": {"type": "mlp", "hidden": [16, 16]}, "data": {"type": "digits"},
      "optimizer": )" << optimizer << R"(, "train": {"steps": 4, "batch_size": 16},
      "log": {"every_steps": 2, "report": false}})";
    for (const std::string& steps : stops)
      EXPECT_EQ(test::run_program({test::hearth_program(), "train", "run.json", "--set", "train.steps=" + steps},
                                  folder.path())
                    .exit_code,
                0);
    EXPECT_EQ(test::run_program({test::hearth_program(), "train", "run.json"}, folder.path()).exit_code, 0);
    std::vector<Json> of_training;
    for (const Json& record : read_metrics(folder / "runs/run/metrics.jsonl"))
      if (record.at("split").as_string() == "train") of_training.push_back(record);
    std::filesystem::remove_all(folder / "runs");
    return of_training;
  };
  const std::string optimizer = R"({"type": "lamb", "adapt": "all", "trust_clip": true,
    "groups": [{"type": "by_name", "match": ["*.bias"]}]})";
  const std::vector<Json> lamb = lines(optimizer), resumed = lines(optimizer, {"3"});
  ASSERT_EQ(lamb.size(), 2u);
  ASSERT_EQ(resumed.size(), 3u);
  EXPECT_EQ(to_text(resumed.back().at("trust_ratio")), to_text(lamb.back().at("trust_ratio")));
  for (const Json& record : lamb)
    for (const char* group : {"*.bias", "*"}) {
      const Json& of = record.at("trust_ratio").at(group);
      const double min = of.at("min").as_number(), median = of.at("median").as_number(), max = of.at("max").as_number();
      EXPECT_TRUE(0 < min && min <= median && median <= max && max <= 1) << to_text(record);
    }
  for (const Json& record : lines(R"({"type": "sgd", "lr": 0.1})")) EXPECT_EQ(record.find("trust_ratio"), nullptr);
}

}  // namespace
}  // namespace hearth::train::trust_ratios_test
