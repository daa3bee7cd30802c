// SPDX-License-Identifier: Apache-2.0
// Weights of runs that keep an average: converted, and started from.
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tests/support/error_message.h"
#include "tests/train/weights_command.h"
#include "train/checkpoint/checkpoint.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::averaged_weights_test {
namespace {

using test::contains;

class AveragedWeights : public test::WeightsCommand {
 protected:
  void SetUp() override {
    put("run.json", R"({"device": "cpu", "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 4},
        "data": {"type": "digits", "workers": 0}, "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"batch_size": 8, "steps": 6, "ema": 0.9}, "log": {"report": false}})");
    ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0) << message_;
  }
  /// Of a run that starts from `weights`, before its first step.
  double loss_from(const std::string& weights) const {
    train::Session session(train::load_config(path("run.json"), {"weights.path=\"" + weights + "\""}));
    (void)session.load_start_weights();
    return train::evaluate(session, session.data.test).loss();
  }
};

TEST_F(AveragedWeights, AreThoseThatARunIsConvertedTo) {
  const auto trained = train::open_for_evaluation(path("out"));
  const double evaluated = train::evaluate(*trained, trained->data.test).loss();
  const std::string set = path("out/checkpoints/latest");
  ASSERT_EQ(run({"weights", "convert", path("out"), path("average")}), 0) << message_;
  EXPECT_PRED2(contains, message_, "note: the weights are the moving average (train.ema) of " + path("out"));
  EXPECT_PRED2(contains, message_, "--raw gives those of the last update");
  ASSERT_EQ(run({"weights", "convert", set, path("of_set")}), 0) << message_;
  EXPECT_EQ(read_text(path("of_set")), read_text(path("average")));
  ASSERT_EQ(run({"weights", "convert", set, path("raw"), "--raw"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "note: the weights are those of the last update");
  EXPECT_PRED2(contains, message_, "leave --raw out");
  ASSERT_EQ(run({"weights", "convert", set + "/model.safetensors", path("of_file")}), 0) << message_;
  EXPECT_PRED2(contains, message_, "give the folder for that");
  EXPECT_EQ(read_text(path("raw")), read_text(path("of_file")));
  EXPECT_EQ(loss_from(path("average")), evaluated);
  EXPECT_EQ(loss_from(path("out")), evaluated) << "a run starts from the same";
  EXPECT_NE(loss_from(path("raw")), evaluated);
  // A buffer is in the state by its name.
  const SafetensorsFile average(path("average")), state(set + "/state.safetensors");
  for (const TensorRecord& record : average.records()) {
    if (!record.name.ends_with("running_mean")) continue;
    EXPECT_EQ(average.read(record), state.read(state.at("ema." + record.name))) << record.name;
  }
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", "weights.path=" + path("out")}), 0) << message_;
  EXPECT_PRED2(contains, message_, path("out") + " (hearth), the moving average (train.ema) of that run");
}

TEST_F(AveragedWeights, AreNotLookedForWhereARunHasNone) {
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("plain"), "--set", "train.ema=null"}), 0) << message_;
  ASSERT_EQ(run({"weights", "convert", path("plain"), path("of_run")}), 0) << message_;
  EXPECT_FALSE(contains(message_, "moving average"));
  ASSERT_EQ(run({"weights", "convert", path("plain/checkpoints/latest/model.safetensors"), path("of_file")}), 0);
  EXPECT_FALSE(contains(message_, "moving average"));
  EXPECT_EQ(read_text(path("of_run")), read_text(path("of_file")));
}

TEST_F(AveragedWeights, LeaveTheCheckpointWhole) {
  const std::string set = path("out/checkpoints/latest");
  for (const std::string& in : {path("out"), set})
    for (const char* out : {"/model.safetensors", "/state.safetensors", "/extra"}) {
      EXPECT_EQ(run({"weights", "convert", in, set + out}), 2) << in << " " << out;
      EXPECT_PRED2(contains, message_, "a checkpoint, which has files of its own; write the result elsewhere");
    }
  EXPECT_EQ(run({"weights", "convert", set + "/model.safetensors", path("own"), "--raw"}), 2);
  EXPECT_PRED2(contains, message_, "--raw is for the folder of a run or of a checkpoint");
  EXPECT_EQ(run({"eval", path("out")}), 0) << message_;
}

}  // namespace
}  // namespace hearth::averaged_weights_test
