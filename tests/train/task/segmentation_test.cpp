// SPDX-License-Identifier: Apache-2.0
// Runs that learn masks from files: what they reach, on one rank and on two, what is predicted, and what is refused.
#include "train/task/segmentation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <ostream>

#include "autograd/grad_mode.h"
#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "data/masks/mask_classes.h"
#include "data/masks/mask_dataset.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"
#include "train/task/report_sections.h"
#include "train/trainer.h"

namespace hearth::train::segmentation_test {
namespace {

constexpr int height = 24, width = 36;

/// Images of red and green rectangles on grey, and their masks. The mask's last row does not count.
void write_drawn_masks(const test::TempDir& folder, const std::string& part, int count) {
  std::filesystem::create_directories(folder / (part + "/images"));
  std::filesystem::create_directories(folder / (part + "/masks"));
  for (int i = 0; i < count; ++i) {
    data::Image image, mask;
    image.reshape(height, width, 3);
    mask.reshape(height, width, 1);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const bool first = x >= 2 + i % 7 && x < 14 + i % 5 && y >= 3 + i % 4 && y < 15 + i % 6;
        const bool second = x >= 20 + i % 4 && x < 31 && y >= 5 && y < 20 - i % 5;
        const int label = first ? 1 + i % 2 : second ? 2 - i % 2 : 0;
        mask.row(y)[x] = y == height - 1 ? data::ignored_pixel : static_cast<std::uint8_t>(label);
        for (int c = 0; c < 3; ++c)
          image.row(y)[3 * x + c] = static_cast<std::uint8_t>((label == 0       ? 100
                                                               : c == label - 1 ? 220
                                                                                : 30) +
                                                              (x * 7 + y * 5 + i * 3 + c) % 20);
      }
    data::write_png(folder / join_text(part, "/images/", i, ".png"), image);
    data::write_png(folder / join_text(part, "/masks/", i, ".png"), mask);
  }
}

class DrawnMasks : public testing::Test {
 protected:
  void SetUp() override {
    if (data::encode_png(data::Image{1, 1, 1, {0}}).empty()) GTEST_SKIP() << "no libpng";
    write_drawn_masks(folder_, "train", 16);
    write_drawn_masks(folder_, "test", 6);
    std::ofstream(path_) << R"({"seed": 1, "device": "cpu", "task": {"type": "segmentation"},
        "model": {"type": "unet", "width": 6, "levels": 3},
        "data": {"type": "masks", "path": ")"
                         << folder_.path().string() << R"(", "classes": ["ground", "red", "green"], "workers": 0,
                 "augment": {"image_size": 32, "flip": true}},
        "optimizer": {"type": "adamw", "lr": 0.02}, "schedule": {"type": "cosine"},
        "train": {"batch_size": 8, "epochs": 15},
        "checkpoint": {"every_epochs": 15}, "eval": {"every_epochs": 15},
        "log": {"tensorboard": false, "report": false}})";
  }

  void run(Session& session, const std::string& out, bool is_root = true) const {
    RunFolder run_folder(out, is_root);
    std::ostream nowhere(nullptr);
    Progress progress(nowhere, false);
    Trainer trainer(session, run_folder, progress);
    (void)trainer.run("test");
  }

  /// The metrics of the test split after a run on as many ranks, as launched.
  Json trained(int ranks, const std::vector<std::string>& overrides = {}) const {
    Json record;
    std::mutex mutex;
    const auto failures = test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
      const test::TempDir out;
      Session session(load_config(path_, overrides), &group);
      run(session, out / "run", group.rank() == 0);
      const Meter meter = evaluate(session, session.data.test);
      const std::lock_guard lock(mutex);
      if (group.rank() == 0) meter.metrics->report(record = Json::object().set("loss", meter.loss()));
    });
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
    return record;
  }

  test::TempDir folder_;
  std::string path_ = folder_ / "run.json";
};

TEST_F(DrawnMasks, AreLearnedAndPredictedFromACopiedCheckpoint) {
  const test::TempDir out;
  {
    Session session(load_config(path_, {"eval.monitor=mean_iou"}));
    EXPECT_EQ(session.task->describe(), "images, 3 classes of pixels, input 32x32x3");
    run(session, out / "run");
    const Meter meter = evaluate(session, session.data.test);
    Json record = Json::object();
    meter.metrics->report(record);
    EXPECT_GT(record.at("mean_iou").as_number(), 0.85);
    EXPECT_GT(record.at("iou").at("green").as_number(), 0.8);
    ReportSections sections;
    session.model->eval();
    session.task->report(
        session, session.data.test,
        [&](const auto& use) {
          const NoGrad no_grad;
          data::Loader loader = session.data.eval_loader(session.data.test, 3);
          for (int i = 0; i < 2; ++i) use(loader.next());
        },
        sections);
    EXPECT_PRED2(test::contains, sections.html(), "Worst masks");
    EXPECT_PRED2(test::contains, sections.html(), ">0.png: 9");
  }
  const std::string picture = out / "in.png", truth = folder_ / "test/masks/3.png";
  std::filesystem::copy_file(folder_ / "test/images/3.png", picture);
  data::Image wanted;
  {
    const auto set = load_config(path_, {}).config.data;
    const data::DataSplits data = data::make_data(set);
    data::Image image;
    data.test->masks()->read(3, image, wanted);
  }
  // The data of the training are gone.
  for (const char* const part : {"train", "test"}) std::filesystem::remove_all(folder_ / part);
  const auto opened = open_trained(out / "run", {});
  opened->model->eval();
  const Json line = opened->task->predict(*opened, picture, out / "found");
  EXPECT_EQ(line.at("file").as_string(), picture);
  EXPECT_EQ(line.at("mask").as_string(), (out / "found/in.mask.png").string());
  EXPECT_TRUE(std::filesystem::exists(out / "found/in.overlay.png"));
  std::ifstream file(out / "found/in.mask.png", std::ios::binary);
  const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  const data::Image mask =
      data::MaskClasses({.classes = {"ground", "red", "green"}}).decode(bytes, "in.mask.png", 1 << 24);
  ASSERT_EQ(mask.height, height);
  ASSERT_EQ(mask.width, width);
  int right = 0, all = 0, red = 0;
  for (std::size_t i = 0; i < mask.pixels.size(); ++i) {
    red += mask.pixels[i] == 1;
    if (wanted.pixels[i] == data::ignored_pixel) continue;
    ++all, right += mask.pixels[i] == wanted.pixels[i];
  }
  EXPECT_GT(right, all * 93 / 100);
  EXPECT_DOUBLE_EQ(line.at("shares").at("red").as_number(), red / double{height * width});
}

TEST_F(DrawnMasks, AreEvaluatedOnAnotherFolder) {
  const test::TempDir out, other;
  Session session(load_config(path_, {"train.epochs=1"}));
  run(session, out / "run");
  write_drawn_masks(other, ".", 4);
  const auto opened = open_for_evaluation(out / "run", {}, other.path());
  ASSERT_NE(opened->data.test, nullptr);
  EXPECT_EQ(opened->data.test->size(), 4);
  EXPECT_EQ(opened->data.valid, nullptr);
  EXPECT_TRUE(std::isfinite(evaluate(*opened, opened->data.test).loss()));
}

TEST_F(DrawnMasks, OnTwoRanksHaveTheFiguresOfOne) {
  const std::vector<std::string> overrides{"train.epochs=2", "train.deterministic=true", "dist.shards=2"};
  const Json two = trained(2, overrides);
  EXPECT_EQ(to_text(two), to_text(trained(1, overrides)));
  EXPECT_TRUE(std::isfinite(two.at("loss").as_number()));
}

TEST_F(DrawnMasks, RefuseWhatIsNotOfSegmentation) {
  const auto refused = [&](const std::vector<std::string>& overrides, const char* part) {
    const std::string message =
        test::error_message<ConfigError>([&] { Session session(load_config(path_, overrides)); });
    EXPECT_PRED2(test::contains, message, part);
  };
  refused({R"(model={"type": "resnet", "depth": 10})"}, "use \"deeplabv3\" or \"fcn\" or \"unet\"");
  refused({R"(data={"type": "digits"})"}, "images with masks");
  refused({R"(data.classes=["one"])"}, "2 to 255");
  refused({R"(data.classes=[])"}, "/data/classes");
  refused({R"(data.augment.fit="crop")"}, "fit");
  refused({R"(data.augment.mixup=0.5)"}, "mixup");
  refused({"model.classes=4"}, "leave it out");
}

}  // namespace
}  // namespace hearth::train::segmentation_test
