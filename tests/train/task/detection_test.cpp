// SPDX-License-Identifier: Apache-2.0
// Runs that learn boxes on drawn images: what they reach, on one rank and on two, and what is refused.
#include "train/task/detection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <ostream>
#include <set>

#include "autograd/grad_mode.h"
#include "core/cuda/counters.h"
#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "data/loading/loader.h"
#include "dist/process_group.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/ranks.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/captured_step.h"
#include "train/step/step.h"
#include "train/task/report/training_inputs.h"
#include "train/task/report_sections.h"
#include "train/trainer.h"

namespace hearth::train::detection_test {
namespace {

constexpr int side = 64;

struct Drawing {
  int rows = side;     ///< of each image
  int area = 1;        ///< of the objects, in areas of their boxes
  bool empty = false;  ///< no image has a box with an area
};

/// A folder of images with red and green rectangles, and their boxes in COCO's format. The category ids have a hole.
/// Every fifth image has no box.
void write_drawn_boxes(const test::TempDir& folder, const std::string& part, int images, const Drawing& how = {}) {
  Json list = Json::array(), annotations = Json::array(), categories = Json::array();
  categories.push_back(Json::object().set("id", 3).set("name", "red"));
  categories.push_back(Json::object().set("id", 7).set("name", "green"));
  std::filesystem::create_directories(folder / part);
  std::int64_t id = 0;
  for (int i = 0; i < images; ++i) {
    data::Image image;
    image.reshape(how.rows, side, 3);
    for (std::size_t p = 0; p < image.pixels.size(); ++p)
      image.pixels[p] = static_cast<std::uint8_t>(90 + (p * 7 + i) % 40);
    for (int k = 0; k < (how.empty || i % 5 == 4 ? 0 : 1 + i % 2); ++k) {
      const int width = 14 + (i * 5 + k) % 18, height = 14 + (i * 3 + k) % 18,
                left = (i * 11 + 32 * k) % (side - width), top = (i * 17 + 32 * k) % (how.rows - height),
                kind = (i + k) % 2;
      for (int y = top; y < top + height; ++y)
        for (int x = left; x < left + width; ++x)
          for (int c = 0; c < 3; ++c)
            image.pixels[static_cast<std::size_t>((y * side + x) * 3 + c)] = c == kind ? 230 : 20;
      annotations.push_back(Json::object()
                                .set("id", ++id)
                                .set("image_id", i)
                                .set("category_id", kind == 0 ? 3 : 7)
                                .set("iscrowd", 0)
                                .set("area", how.area * width * height)
                                .set("bbox", Json::array_of(std::vector<int>{left, top, width, height})));
    }
    if (how.empty && i == 0)
      annotations.push_back(Json::object()
                                .set("id", ++id)
                                .set("image_id", i)
                                .set("category_id", 3)
                                .set("bbox", Json::array_of(std::vector<int>{5, 5, 0, 9})));
    const std::string name = std::to_string(i) + ".png";
    data::write_png(folder / (part + "/" + name), image);
    list.push_back(Json::object().set("id", i).set("file_name", name).set("width", side).set("height", how.rows));
  }
  std::ofstream(folder / (part + ".json"))
      << to_text(Json::object().set("images", list).set("annotations", annotations).set("categories", categories));
}

class DrawnBoxes : public testing::Test {
 protected:
  DrawnBoxes() {
    write_drawn_boxes(folder_, "train", 24);
    write_drawn_boxes(folder_, "test", 10);
    std::ofstream(path_) << R"({"seed": 1, "device": "cpu", "task": {"type": "detection"},
        "model": {"type": "fcos", "depth": 10, "width": 16, "channels": 32, "convolutions": 1, "groups": 8},
        "data": {"type": "coco", "train": {"images": ")"
                         << (folder_ / "train").string() << R"(", "labels": ")" << (folder_ / "train.json").string()
                         << R"("}, "test": {"images": ")" << (folder_ / "test").string() << R"(", "labels": ")"
                         << (folder_ / "test.json").string() << R"("}, "augment": {"image_size": 64}},
        "optimizer": {"type": "adamw", "lr": 0.01}, "schedule": {"type": "cosine"},
        "train": {"batch_size": 8, "epochs": 100, "clip_norm": 1},
        "checkpoint": {"every_epochs": 100}, "eval": {"every_epochs": 100},
        "log": {"tensorboard": false, "report": false}})";
  }

  /// The metrics of the test split after a run on as many ranks, as launched.
  Json trained(int ranks, const std::vector<std::string>& overrides = {}) const {
    Json record;
    std::mutex mutex;
    const auto failures = test::failures_of_ranks(dist::loopback_groups(ranks), [&](Collective& group) {
      const test::TempDir out;
      Session session(load_config(path_, overrides), &group);
      RunFolder run_folder(out / "run", group.rank() == 0);
      std::ostream nowhere(nullptr);
      Progress progress(nowhere, false);
      Trainer trainer(session, run_folder, progress);
      (void)trainer.run("test");
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

TEST_F(DrawnBoxes, AreLearned) {
  const Json record = trained(1);
  EXPECT_GT(record.at("ap_50").as_number(), 0.85);
  EXPECT_GT(record.at("ap").as_number(), 0.5);
  EXPECT_GT(record.at("ap_by_class").at("green").as_number(), 0.4);
}

/// Images that are no squares: what is found is measured in their pixels, whatever became of their sides.
TEST_F(DrawnBoxes, AreLearnedWithTransformsAndMeasuredOnTheImage) {
  write_drawn_boxes(folder_, "train", 24, {.rows = 40, .area = 16});
  write_drawn_boxes(folder_, "test", 10, {.rows = 40, .area = 16});
  for (const char* fit : {"pad", "stretch"}) {
    const Json record =
        trained(1, {"train.epochs=80", std::string("data.augment.fit=") + fit, "data.augment.flip=true",
                    "data.augment.iou_crop=true", "data.augment.expand=1.5", "data.augment.mosaic=0.5",
                    "data.augment.mixup=0.2", "data.augment.affine={\"rotation\": 3, \"scale\": [0.8, 1.2]}",
                    "data.augment.close_mosaic=20"});
    EXPECT_GT(record.at("ap_50").as_number(), 0.7) << fit;
    EXPECT_GT(record.at("ap").as_number(), 0.35) << fit;
    EXPECT_EQ(record.at("ap_small").as_number(), -1) << "the areas of the labels count, and none is small";
    EXPECT_GT(record.at("ap_medium").as_number(), 0.3) << fit;
  }
}

TEST_F(DrawnBoxes, MayBeAbsent) {
  write_drawn_boxes(folder_, "train", 8, {.empty = true});
  Session session(
      load_config(path_, {"train.batch_size=4", "train.steps=4", "train.epochs=null", "data.augment.flip=true",
                          "data.augment.mosaic=0.5", "data.augment.mixup=1", "data.augment.iou_crop=true"}));
  data::Loader loader = session.make_train_loader();
  for (int i = 0; i < 4; ++i, ++session.position.step) {
    const std::vector<data::Batch> batches{loader.next()};
    ASSERT_EQ(batches[0]["boxes"].dim(0), 0);
    EXPECT_GT(session.task->loss(session, batches[0], {}).item(), 0);
    (void)training_step(session, batches);
    for (const double value : session.parameters->grads().to_doubles()) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_F(DrawnBoxes, TheLastEpochsAreWithoutMosaic) {
  const std::vector<std::string> mosaic{"data.augment.mosaic=1", "train.epochs=5", "train.accumulate=2"};
  std::vector<std::string> closing = mosaic;
  closing.push_back("data.augment.close_mosaic=2");
  Session session(load_config(path_, closing)), all(load_config(path_, mosaic));
  EXPECT_EQ(session.plan.batches_per_epoch, 3);
  EXPECT_EQ(session.plan.mixed_batches, session.plan.total_steps * 2 - 6);
  const auto pixels = [](const Session& of, std::int64_t first) {
    data::Loader loader = of.make_train_loader(first);
    return loader.next()["images"].to_doubles();
  };
  const std::int64_t last = session.plan.mixed_batches - 1;
  EXPECT_EQ(pixels(session, last), pixels(all, last));
  EXPECT_NE(pixels(session, last + 1), pixels(all, last + 1));
  closing.back() = "data.augment.close_mosaic=5";
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { Session refused(load_config(path_, closing)); }),
               "close_mosaic: the last 5 epochs");
}

TEST_F(DrawnBoxes, AreLearnedByRetinaNet) {
  const Json record = trained(
      1,
      {R"(model={"type": "retinanet", "depth": 10, "width": 16, "channels": 32, "convolutions": 1, "anchor_scale": 2})",
       "optimizer.lr=0.003", "train.epochs=60"});
  EXPECT_GT(record.at("ap_50").as_number(), 0.85);
}

TEST_F(DrawnBoxes, AreLearnedBySsd) {
  const Json record = trained(1, {R"(model={"type": "ssd", "depth": 10, "width": 8, "stem": "small"})",
                                  "data.augment.image_size=65", "optimizer.lr=0.003", "train.epochs=30"});
  EXPECT_GT(record.at("ap_50").as_number(), 0.85);
}

TEST_F(DrawnBoxes, AreLearnedByYolox) {
  const Json record =
      trained(1, {R"(model={"type": "yolox", "size": "yolox_nano", "width": 0.125})", "train.epochs=60"});
  EXPECT_GT(record.at("ap_50").as_number(), 0.7);
  EXPECT_GT(record.at("ap_by_class").at("green").as_number(), 0.3);
}

TEST_F(DrawnBoxes, AreFoundOnFilesAndShownInTheReport) {
  const test::TempDir out;
  Session session(load_config(path_, {"train.epochs=60", "eval.monitor=ap"}));
  RunFolder run_folder(out / "run", true);
  std::ostream nowhere(nullptr);
  Progress progress(nowhere, false);
  Trainer trainer(session, run_folder, progress);
  (void)trainer.run("test");
  session.model->eval();
  const std::string path = folder_ / "test/1.png";
  const Json record = session.task->predict(session, path, out / "pictures");
  EXPECT_EQ(record.at("file").as_string(), path);
  EXPECT_TRUE(std::filesystem::exists(record.at("picture").as_string()));
  ASSERT_GE(record.at("boxes").size(), 1U);
  const Json& best = record.at("boxes").at(0);
  EXPECT_TRUE((best.at("class").as_string() == "red" && best.at("category_id").as_integer() == 3) ||
              (best.at("class").as_string() == "green" && best.at("category_id").as_integer() == 7));
  EXPECT_GE(best.at("bbox").at(0).as_number(), 0);
  EXPECT_LE(best.at("bbox").at(0).as_number() + best.at("bbox").at(2).as_number(), side);
  ReportSections sections;
  session.task->report(
      session, session.data.test,
      [&](const auto& use) {
        const NoGrad no_grad;
        data::Loader loader(session.data.test, session.data.eval_transforms,
                            {.batch_size = 4, .workers = 0, .dtype = DType::u8});
        for (int i = 0; i < 3; ++i) use(loader.next());
      },
      sections);
  EXPECT_PRED2(test::contains, sections.html(), "Average precision");
  EXPECT_PRED2(test::contains, sections.html(), "green");
  EXPECT_PRED2(test::contains, sections.html(), "1.png");
  EXPECT_PRED2(test::contains, sections.html(), "<h2>Precision by recall</h2>");
  EXPECT_PRED2(test::contains, sections.html(), "aria-label=\"precision at IoU 0.75\"");
  EXPECT_PRED2(test::contains, sections.html(), "<th>background</th>");
  EXPECT_PRED2(test::contains, sections.html(), "<h2>Errors by kind</h2>");
  // Two boxes on each odd image and one on each even one, but for every fifth.
  EXPECT_PRED2(test::contains, sections.html(), "as a share of 12.");
  ReportSections shown;
  add_training_inputs(session.data, 1, shown);
  EXPECT_PRED2(test::contains, shown.html(), "What the model is shown");
  EXPECT_PRED2(test::contains, shown.html(), "2 boxes");
}

TEST_F(DrawnBoxes, NeedADetector) {
  const std::string message = test::error_message<ConfigError>(
      [&] { Session refused(load_config(path_, {R"(model={"type": "resnet", "depth": 18, "width": 8})"})); });
  for (const char* type : {"\"fcos\"", "\"retinanet\"", "\"ssd\"", "\"yolox\""})
    EXPECT_PRED2(test::contains, message, type);
}

TEST_F(DrawnBoxes, ArePredictedByTheRunAlone) {
  const auto hearth = [&](std::vector<std::string> words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(words, folder_.path());
  };
  const test::ProgramResult run = hearth({"train", "run.json", "--out", "run", "--set", "train.epochs=null", "--set",
                                          "train.steps=2", "--set", "checkpoint.every_epochs=1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::filesystem::rename(folder_ / "test", folder_ / "pictures");
  for (const char* name : {"train", "train.json", "test.json"}) std::filesystem::remove_all(folder_ / name);
  std::ofstream(folder_ / "pictures/99.png") << "no image";

  const std::vector<std::string> words{
      "predict", "run", "pictures", "--out", "out", "--set", R"(task={"type": "detection", "score_threshold": 0})"};
  const test::ProgramResult result = hearth(words);
  EXPECT_EQ(result.exit_code, 3) << "99.png is none";
  EXPECT_PRED2(test::contains, result.err, "99.png");
  EXPECT_PRED2(test::contains, result.err, "10 images, ");
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 10);
  const Json boxes = read_json(folder_ / "out/detections.json", {std::uint64_t{1} << 24, "boxes"});
  std::set<std::int64_t> images;
  for (const Json& box : boxes.items()) {
    images.insert(box.at("image_id").as_integer());
    EXPECT_TRUE(box.at("category_id").as_integer() == 3 || box.at("category_id").as_integer() == 7);
    EXPECT_EQ(box.at("bbox").size(), 4U);
  }
  EXPECT_EQ(images, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(std::filesystem::exists(folder_ / join_text("out/", i, ".boxes.png"))) << i;

  std::filesystem::create_directories(folder_ / "more");
  std::filesystem::copy(folder_ / "pictures/3.png", folder_ / "more/3.png");
  const test::ProgramResult twice = hearth({"predict", "run", "pictures/3.png", "more"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_PRED2(test::contains, twice.err, "have the same name");
}

TEST_F(DrawnBoxes, MayStartFromTheTrunkOfAClassifier) {
  std::ofstream(folder_ / "classes.json") << R"({"seed": 5, "device": "cpu",
      "model": {"type": "resnet", "depth": 10, "width": 16}, "data": {"type": "synthetic", "channels": 3, "height": 32,
      "width": 32, "train_size": 8, "test_size": 4}, "optimizer": {"type": "sgd", "lr": 0.1},
      "train": {"batch_size": 4, "steps": 2}, "log": {"tensorboard": false, "report": false}})";
  const test::ProgramResult run =
      test::run_program({test::hearth_program(), "train", "classes.json", "--out", "classes"}, folder_.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto weights = [&](const std::string& more) {
    return join_text(R"(weights={"path": ")", (folder_ / "classes").string(), "\"", more, "}");
  };
  const auto loaded = [&](const std::string& more) {
    Session session(load_config(path_, {weights(more)}));
    (void)session.load_start_weights();
  };
  const auto classifier = open_trained(folder_ / "classes", {});
  Session session(load_config(path_, {weights(R"(, "into": "backbone.body", "unused": ["fc"])")})),
      drawn(load_config(path_, {}));
  const LoadedWeights report = session.load_start_weights();
  EXPECT_PRED2(test::contains, report.left_out.back(), "outside of backbone.body");
  const auto values = [](const Session& of, const std::string& name) -> std::vector<double> {
    for (const State::Entry& entry : of.model_state.entries())
      if (entry.name == name) return entry.tensor->to_doubles();
    ADD_FAILURE() << "no tensor " << name;
    return {};
  };
  for (const std::string name : {"conv1.weight", "bn1.running_mean", "layer4.0.conv2.weight"}) {
    EXPECT_EQ(values(session, "backbone.body." + name), values(*classifier, name)) << name;
    EXPECT_NE(values(session, "backbone.body." + name), values(drawn, "backbone.body." + name)) << name;
  }
  for (const std::string name : {"head.classification_head.cls_logits.weight", "backbone.fpn.inner_blocks.0.0.weight"})
    EXPECT_EQ(values(session, name), values(drawn, name)) << name;
  EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { loaded(R"(, "into": "backbone.body")"); }),
               "unexpected fc.weight");
  EXPECT_PRED2(test::contains, test::error_message<ConfigError>([&] { loaded(R"(, "into": "trunk")"); }),
               R"(no part "trunk" with weights; name one of, or a part of one of, ["backbone","head"])");
}

TEST_F(DrawnBoxes, OnTwoRanksHaveTheFiguresOfOne) {
  const std::vector<std::string> overrides{"train.epochs=3", "train.deterministic=true", "dist.shards=2"};
  const Json two = trained(2, overrides);
  EXPECT_EQ(to_text(two), to_text(trained(1, overrides)));
  EXPECT_TRUE(std::isfinite(two.at("loss").as_number()));
}

struct Trained {
  std::string weights, state;
  double loss = 0;
  bool operator==(const Trained&) const = default;
};

template <class Step>
Trained after_steps(Session& session, int steps, const Step& step) {
  data::Loader loader = session.make_train_loader();
  for (int i = 0; i < steps; ++i) {
    const data::Batch batch = loader.next();
    session.position.interval.samples += step(std::span(&batch, 1)).samples;
    ++session.position.step;
  }
  session.read_interval();
  return {session.model_state.hash(), session.training_state.hash(), session.position.interval.loss_sum};
}

TEST_F(DrawnBoxes, ReplayedStepsGiveTheBitsOfEagerOnes) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  struct Case {
    const char *model, *precision;
  };
  for (const auto& [model, precision] :
       {Case{R"({"type": "fcos", "depth": 10, "width": 8, "channels": 8, "convolutions": 1, "groups": 4})",
             R"({"level": "O2", "dtype": "bf16"})"},
        Case{R"({"type": "retinanet", "depth": 10, "width": 4, "channels": 8, "convolutions": 1})",
             R"({"level": "O0"})"},
        Case{R"({"type": "ssd", "depth": 10, "width": 2, "stem": "small"})", R"({"level": "O0"})"},
        Case{R"({"type": "yolox", "size": "yolox_nano", "width": 0.0625})", R"({"level": "O1", "dtype": "bf16"})"}}) {
    SCOPED_TRACE(model);
    const bool is_ssd = std::string(model).find("ssd") != std::string::npos;
    const std::vector<std::string> overrides{"device=\"cuda\"", "train.batch_size=2",
                                             join_text("precision=", precision), join_text("model=", model),
                                             is_ssd ? "data.augment.image_size=65" : "data.augment.image_size=32"};
    constexpr int recorded_after = 3, steps = 5;
    Session eager(load_config(path_, overrides)), replayed(load_config(path_, overrides));
    const Trained wanted = after_steps(eager, steps, [&](auto batches) { return training_step(eager, batches); });
    const auto captured = make_captured_step(replayed);
    cuda::Counters before{}, spent{};
    int step = 0;
    const Trained result = after_steps(replayed, steps, [&](auto batches) {
      if (step++ == recorded_after) before = cuda::counters();
      const StepResult done = captured->run(batches);
      spent = cuda::counters() - before;
      return done;
    });
    EXPECT_EQ(captured->unsupported_reason(), "");
    EXPECT_EQ(captured->graphs(), 1) << "batches of any number of boxes have the shape of a few";
    EXPECT_EQ(result, wanted);
    EXPECT_EQ(spent.graph_launches, steps - recorded_after);
    EXPECT_EQ(spent.launches, 0);
    EXPECT_EQ(spent.waits, 0);
    EXPECT_EQ(spent.allocations, 0);
  }
}

TEST_F(DrawnBoxes, RefuseWhatIsNotOfDetection) {
  const auto refused = [&](const std::vector<std::string>& overrides, const char* part) {
    const std::string message =
        test::error_message<ConfigError>([&] { Session session(load_config(path_, overrides)); });
    EXPECT_PRED2(test::contains, message, part);
  };
  refused({R"(loss={"type": "cross_entropy"})"}, "leave \"loss\" out");
  refused({R"(model={"type": "resnet", "depth": 10})"}, "is no detector");
  refused({R"(data={"type": "digits"})"}, "images with boxes");
  refused({R"(model={"type": "yolox"})", "data.augment.image_size=80"}, "rows and columns 32 divides");
  refused({R"(model={"type": "yolox", "width": 0.01})"}, "leaves no channels");
  refused({R"(model.groups=5)"}, "do not divide");
  refused({R"(model.blocks=[1, 1])"}, "of four");
  refused({R"(model={"type": "ssd"})"}, "at least 257 x 257 pixels");
  refused({R"(model={"type": "ssd", "stem": "small"})"}, "at least 65 x 65 pixels");
  refused({R"(model={"type": "ssd", "blocks": [1, 1]})"}, "of the first three");
  refused({R"(model={"type": "retinanet", "anchor_scale": 0})"}, "anchor_scale");
  refused({R"(task={"type": "detection", "score_threshold": 2})"}, "score_threshold");
}

}  // namespace
}  // namespace hearth::train::detection_test
