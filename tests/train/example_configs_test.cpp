// SPDX-License-Identifier: Apache-2.0
// Every configuration in examples/configs takes 20 steps on stand-ins for its data. Layers keep their types and their
// order; what is smaller than in the file is said for each.
#include <gtest/gtest.h>

#include <map>

#include "core/build.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "tests/support/stand_in_data.h"

namespace hearth::example_configs_test {
namespace {

using Options = std::vector<std::string>;

const std::string configs = test::source_dir() + "/examples/configs/";

/// What is changed for the stand-ins, for each file.
const std::map<std::string, Options>& reductions() {
  // Batches, images, blocks and channels.
  static const Options swin{"train.batch_size=4", "model.width=12", "model.heads=[1,1,1]", "model.depths=[1,2,1]"};
  // Batches, vocabularies, layers and channels.
  static const Options gpt{"train.batch_size=4", "data.length=32", "model.layers=2", "model.width=32"};
  static const Options pairs{"data.tokens_per_batch=128", "model.layers=1", "model.decoder_layers=1", "model.width=32",
                             "model.hidden=64"};
  static const auto with = [](Options options, const Options& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  };
  static const Options bytes{"data.tokenizer.vocabulary=320"};
  static const std::map<std::string, Options> table{
      {"austen_gpt_bpe.json", with(gpt, bytes)},
      {"austen_gpt_char.json", gpt},
      {"bert_mlm.json", with(gpt, bytes)},
      {"cifar_resnet.json", {"train.batch_size=8", "model.width=8"}},
      {"cifar_swin.json", swin},
      {"clipart_fcos.json",
       {"train.batch_size=4", "model.depth=10", "model.width=8", "model.channels=16", "model.groups=4",
        "data.augment.image_size=64"}},
      {"clipart_swin.json", swin},
      {"coco_retinanet_r50.json",
       {"train.batch_size=2", "train.accumulate=2", "model.depth=10", "model.width=8", "model.channels=8",
        "model.convolutions=1", "data.augment.image_size=64", "data.workers=1"}},
      {"coco_ssd300.json",
       {"train.batch_size=2", "model.depth=10", "model.width=4", "data.augment.image_size=257", "data.workers=1"}},
      {"coco_yolox_s.json",
       {"data.augment.image_size=64", "data.augment.close_mosaic=0", "data.workers=1", "model.size=yolox_nano",
        "model.width=0.125", "train.batch_size=4", "train.accumulate=2"}},
      {"digits_mlp.json", {}},
      {"digits_resnet.json", {}},
      {"digits_unet.json", {"train.batch_size=4", "model.width=4"}},
      {"fashion_resnet.json", {"data.path=data-sets/fashion-mnist", "train.batch_size=8", "model.width=8"}},
      {"fashion_swin.json",
       {"data.path=data-sets/fashion-mnist", "train.batch_size=4", "model.width=12", "model.heads=[1,2]"}},
      {"g2p_transformer.json", pairs},
      {"gpt2_124m.json", with(gpt, {"model.layers=12", "model.width=48", "train.accumulate=2"})},
      {"help_en_de.json", with(pairs, bytes)},
      {"imagenet_resnet50.json",
       {"train.batch_size=2", "train.accumulate=2", "data.augment.image_size=32", "model.width=8", "data.workers=1"}},
      {"imagenet_swin_t.json",
       {"train.batch_size=2", "train.accumulate=2", "data.augment.image_size=64", "model.width=12",
        "model.heads=[1,1,2,2]", "model.depths=[1,1,2,1]", "data.workers=1"}},
      {"minilm_finetune.json", {"train.batch_size=4", "model.width=48"}},
      {"trees_fcos.json",
       {"train.batch_size=4", "model.channels=16", "model.groups=4", "model.width=8", "data.augment.image_size=64"}},
      {"transformer_big_wmt.json", with(pairs, with(bytes, {"model.layers=2", "model.decoder_layers=2", "model.heads=4",
                                                            "train.accumulate=2", "data.workers=1"}))},
  };
  return table;
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const std::string& name : list_directory(configs))
    if (name.ends_with(".json")) names.push_back(name);
  return names;
}

class ExampleConfigs : public testing::TestWithParam<std::string> {
 protected:
  test::ProgramResult hearth(Options words) const {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(words, folder_.path());
  }
  const test::TempDir folder_;
};

TEST_P(ExampleConfigs, TakesTwentySteps) {
  const auto reduction = reductions().find(GetParam());
  ASSERT_NE(reduction, reductions().end()) << "a new configuration: say above what is smaller in its test";
  test::write_stand_in_data(folder_ / "data-sets");
  const Json given = read_json(configs + GetParam());
  const std::string& data = given.at("data").at("type").as_string();
  if ((data == "image_folder" || data == "masks") && !HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  if (given.at("data").find("packed") != nullptr) {
    folder_.write("pack.json", [] {
      const std::string text = R"({"model": {"type": "gpt"}, "optimizer": {"type": "adamw"}, "train": {"steps": 1},
        "data": {"type": "text", "train": ["data-sets/web_text.txt"], "test": ["data-sets/jane_austen/emma.txt"],
                 "tokenizer": {"type": "bpe", "vocabulary": 320}}})";
      return std::vector<std::uint8_t>(text.begin(), text.end());
    }());
    const test::ProgramResult pack = hearth({"data", "pack", "pack.json", "data-sets/web_text"});
    ASSERT_EQ(pack.exit_code, 0) << pack.err;
  }
  Options words{"train", configs + GetParam(), "--out", "run", "--device", "cpu"};
  Options changes = reduction->second;
  for (const char* change : {"train.epochs=null", "train.steps=20", "log.every_steps=5", "checkpoint.every_steps=null"})
    changes.emplace_back(change);
  for (const char* key : {"warmup_steps", "warmup_epochs"})
    if (given.find("schedule") != nullptr && given.at("schedule").find(key) != nullptr)
      changes.push_back("schedule." + std::string(key) + (std::string(key) == "warmup_steps" ? "=4" : "=0"));
  for (const std::string& change : changes) {
    words.emplace_back("--set");
    words.push_back(change);
  }
  const test::ProgramResult result = hearth(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json run = read_json(folder_ / "run/run.json");
  EXPECT_EQ(run.at("status").as_string(), "finished");
  EXPECT_PRED2(test::contains, read_text(folder_ / "run/metrics.jsonl"), "\"step\":20");
}

INSTANTIATE_TEST_SUITE_P(All, ExampleConfigs, testing::ValuesIn(files()),
                         [](const auto& file) { return file.param.substr(0, file.param.find('.')); });

}  // namespace
}  // namespace hearth::example_configs_test
