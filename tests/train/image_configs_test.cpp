// SPDX-License-Identifier: Apache-2.0
// The example configurations of Swin, with fewer blocks and channels, on a few images in the form of the real data.
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "core/build.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::image_configs_test {
namespace {

struct Example {
  const char* config;
  const char* data;  // "cifar" for the files of CIFAR-10, else the name of the held-out folder
  std::vector<std::string> options;
  std::vector<std::pair<const char*, const char*>> recipe;  // places in the resolved configuration, and what is there
  int test_images;                                          // of 10 for training
};

void PrintTo(const Example& example, std::ostream* out) { *out << example.config; }

class ImageConfigs : public testing::TestWithParam<Example> {
 protected:
  void write_cifar() const {
    for (const std::string name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      std::vector<std::uint8_t> records;
      for (std::uint8_t label : {3, 7}) {
        records.push_back(label);
        for (int p = 0; p < 3072; ++p) records.push_back(static_cast<std::uint8_t>(p * label % 251));
      }
      folder_.write("data/" + name + ".bin", records);
    }
  }
  // Two classes of pictures with transparent parts, none of them a square.
  void write_folders(const std::string& held_out) const {
    for (const std::string& part : {std::string("train"), held_out}) {
      for (int i = 0; i < (part == "train" ? 5 : 2); ++i) {
        for (const std::string name : {"round", "square"}) {
          data::Image image;
          image.reshape(70 + 9 * i, 100 - 4 * i, 4);
          for (std::size_t p = 0; p < image.pixels.size(); ++p)
            image.pixels[p] = static_cast<std::uint8_t>(p * (name.size() + 1) % 253);
          const std::filesystem::path path = folder_ / ("data/" + part + "/" + name);
          std::filesystem::create_directories(path);
          data::write_png(path / (std::to_string(i) + ".png"), image);
        }
      }
    }
  }
  test::ProgramResult hearth(std::vector<std::string> options) const {
    std::vector<std::string> words{test::hearth_program(), "train",
                                   test::source_dir() + "/examples/configs/" + GetParam().config, "--out", "run"};
    for (const std::string& option : GetParam().options) options.push_back(option);
    for (const std::string& option : options) {
      if (!option.starts_with("--")) words.emplace_back("--set");
      words.push_back(option);
    }
    return test::run_program(words, folder_.path());
  }

  const test::TempDir folder_;
};

TEST_P(ImageConfigs, TrainOnAFewImages) {
  const std::string kind = GetParam().data;
  if (kind == "cifar") {
    write_cifar();
  } else {
    if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
    write_folders(kind);
  }
  const test::ProgramResult plan = hearth({"data.path=data", "data.valid_fraction=0", "--dry-run"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_NE(plan.err.find(", 10 training images, "), std::string::npos) << plan.err;
  const test::ProgramResult result = hearth({"data.path=data", "data.valid_fraction=0", "train.epochs=2",
                                             "eval.every_epochs=1", "schedule.warmup_epochs=1", "log.every_steps=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json run = read_json(folder_ / "run/run.json"), resolved = read_json(folder_ / "run/config.json");
  EXPECT_EQ(run.at("status").as_string(), "finished");
  for (const auto& [place, value] : GetParam().recipe) {
    const Json* found = &resolved;
    std::istringstream keys(place);
    for (std::string key; std::getline(keys, key, '.');)
      found = std::isdigit(static_cast<unsigned char>(key[0])) ? &found->at(std::stoul(key)) : &found->at(key);
    // 1 and 1.0 are one number.
    const Json expected = parse_json(value, place);
    EXPECT_TRUE(expected.is_number() ? found->as_number() == expected.as_number() : to_text(*found) == value)
        << place << ": " << to_text(*found);
  }
  const test::ProgramResult eval = test::run_program({test::hearth_program(), "eval", "run", "--json"}, folder_.path());
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_EQ(parse_json(eval.out, "eval").at("samples").as_integer(), GetParam().test_images);
}

INSTANTIATE_TEST_SUITE_P(
    Swin, ImageConfigs,
    testing::Values(Example{"cifar_swin.json",
                            "cifar",
                            {"train.batch_size=4", "model.width=24", "model.depths=[1,1,1]"},
                            {{"data.augment.mixup", "0.8"},
                             {"data.augment.cutmix", "1"},
                             {"data.augment.erasing", "0.25"},
                             {"data.augment.rand_augment.ops", "2"},
                             {"model.drop_path", "0.1"},
                             {"train.ema.decay", "0.9995"}},
                            2},
                    Example{"clipart_swin.json",
                            "test",
                            {"train.batch_size=4", "model.width=24", "model.depths=[1,1,1]"},
                            {{"data.augment.fit", "\"pad\""}, {"data.augment.fill", "1"}, {"data.shrink_to", "48"}},
                            4},
                    Example{"imagenet_swin_t.json",
                            "val",
                            {"train.batch_size=2", "train.accumulate=2", "model.width=24", "model.depths=[1,1,1,1]",
                             "data.augment.image_size=64", "data.workers=2"},
                            {{"data.augment.random_resized_crop", "true"},
                             {"data.augment.fit", "\"crop\""},
                             {"data.augment.mixup", "0.8"},
                             {"model.drop_path", "0.2"},
                             {"optimizer.groups.0.match.0", "\"*relative_position_bias_table\""},
                             {"optimizer.groups.0.weight_decay", "0"},
                             {"train.lr_scaling.rule", "\"linear\""}},
                            4}),
    [](const auto& example) {
      const std::string name = example.param.config;
      return name.substr(0, name.rfind('.'));
    });

}  // namespace
}  // namespace hearth::image_configs_test
