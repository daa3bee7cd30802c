// SPDX-License-Identifier: Apache-2.0
// What a checkpoint keeps of the data it was trained on: the names behind the labels, and by what images were
// normalised.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "data/loading/quarantine.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"

namespace hearth::train::saved_data_test {
namespace {

using test::contains;
using test::error_message;

class SavedData : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, {text.begin(), text.end()});
  }

  /// Files of images of one pixel, named as MNIST's: alternately `dark` and `light`, of the classes 0 and 1.
  void write_images(const std::string& folder, char dark, char light, int tests = 4) const {
    const auto number = [](int value) { return std::string{0, 0, 0, static_cast<char>(value)}; };
    for (const auto& [part, count] : {std::pair{"train", 8}, {"t10k", tests}}) {
      std::string pixels, labels;
      for (int i = 0; i < count; ++i) {
        pixels += i % 2 == 0 ? dark : light;
        labels += static_cast<char>(i % 2);
      }
      const std::string name = folder + "/" + part;
      write(name + "-images-idx3-ubyte",
            std::string("\0\0\x08\x03", 4) + number(count) + number(1) + number(1) + pixels);
      write(name + "-labels-idx1-ubyte", std::string("\0\0\x08\x01", 4) + number(count) + labels);
    }
  }
  /// Lines of a few letters with a label each, of two labels.
  void write_texts(const std::string& first, const std::string& second) const {
    std::string lines;
    for (int i = 0; i < 8; ++i) lines += (i % 2 == 0 ? first + "\tab" : second + "\tba") + "\n";
    write("texts.tsv", lines);
  }
  std::unique_ptr<Session> session(const std::string& model, const std::string& data) const {
    const std::string config = write("config.json", R"({"device": "cpu", "model": )" + model + R"(, "data": )" + data +
                                                        R"(, "optimizer": {"type": "sgd", "lr": 0.1},
                                                           "train": {"batch_size": 4, "steps": 1}})");
    return std::make_unique<Session>(load_config(config, {}));
  }
  std::unique_ptr<Session> of_images(const std::string& bad_samples = "fail") const {
    return session(R"({"type": "mlp", "hidden": [4]})", R"({"type": "idx", "workers": 0, "bad_samples": ")" +
                                                            bad_samples + R"(", "path": ")" + path("images") + R"("})");
  }
  std::unique_ptr<Session> of_texts() const {
    return session(
        R"({"type": "bert", "head": "classification", "layers": 1, "heads": 1, "width": 8})",
        R"({"type": "labelled_text", "workers": 0, "length": 8, "train": [")" + path("texts.tsv") + R"("]})");
  }

  test::TempDir folder_;
};

TEST_F(SavedData, OtherImagesAreNormalisedAsThoseOfTheTraining) {
  write_images("images", 0, 100);
  write_images("brighter", 40, 120);
  const auto trained = of_images();
  save_session(*trained, path("run/checkpoints"));
  const std::string other = "data.path=\"" + path("brighter") + "\"";
  const auto normalize = [&](const std::vector<std::string>& overrides) {
    const data::ChannelStatistics described = open_trained(path("run"), overrides)->data.image_options.normalize;
    const data::ChannelStatistics evaluated = open_for_evaluation(path("run"), overrides)->data.image_options.normalize;
    EXPECT_EQ(described.mean, evaluated.mean);
    EXPECT_EQ(described.std, evaluated.std);
    return evaluated;
  };
  const data::ChannelStatistics own = trained->data.image_options.normalize;
  EXPECT_NEAR(own.mean.at(0), 50 / 255.0, 1e-9);
  EXPECT_EQ(normalize({other}).mean, own.mean);
  EXPECT_EQ(normalize({other}).std, own.std);
  EXPECT_EQ(normalize({other, "data.normalize.mean=[0.5]"}).mean, std::vector<double>{0.5}) << "it was asked for";
  EXPECT_EQ(normalize({other, "data.normalize.mean=[0.5]"}).std, own.std);
}

TEST_F(SavedData, WhichSamplesWereBadIsNoPartOfAnEvaluation) {
  write_images("images", 0, 100);
  write_images("more", 0, 100, 20);
  const auto trained = of_images("skip");
  for (const auto& one : trained->data.quarantines)
    if (one) one->deliver(std::vector<data::Quarantine::Entry>{{1, "was broken"}});
  save_session(*trained, path("run/checkpoints"));
  const auto knows_none = [](const Session& opened) {
    for (const auto& one : opened.data.quarantines)
      if (one && (one->count() > 0 || one->holds(1))) return false;
    return true;
  };
  const auto other = open_for_evaluation(path("run"), {}, path("more"));
  EXPECT_EQ(other->data.test->size(), 20);
  EXPECT_TRUE(knows_none(*other)) << "its numbers mean other samples";
  EXPECT_TRUE(knows_none(*open_for_evaluation(path("run"), {"data.path=\"" + path("more") + "\""})));
  const auto own = open_for_evaluation(path("run"));
  EXPECT_TRUE(knows_none(*own)) << "they are tried again";
  own->data.quarantines[2]->after_load({});
  EXPECT_TRUE(knows_none(*own)) << "nor does the state have them";
  EXPECT_TRUE(knows_none(*open_trained(path("run"))));
  const auto resumed = of_images("skip");
  (void)restore_newest(*resumed, path("run"));
  EXPECT_FALSE(knows_none(*resumed)) << "a run that goes on passes over them";
  save_session(*of_images(), path("strict/checkpoints"));
  EXPECT_EQ(open_for_evaluation(path("strict"), {"data.bad_samples=\"skip\""})->data.test->size(), 4);
}

TEST_F(SavedData, ARunWhoseImagesChangedStopsUnlessToldToGoOn) {
  write_images("images", 0, 100);
  const auto trained = of_images();
  save_session(*trained, path("run/checkpoints"));
  EXPECT_TRUE(restore_newest(*trained, path("run")).warnings.empty());
  write_images("images", 40, 120);
  const auto resumed = of_images();
  const std::string message = error_message<DataError>([&] { (void)restore_newest(*resumed, path("run")); });
  for (const char* part : {"the train split has as many samples, 8, but not the same", "the mean of", "--changed-data"})
    EXPECT_PRED2(contains, message, part);
  const std::vector<std::string> warnings = restore_newest(*resumed, path("run"), {.changed_data = true}).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_PRED2(contains, warnings[0], "the mean of");
  save_session(*resumed, path("run/checkpoints"));
  EXPECT_TRUE(restore_newest(*of_images(), path("run")).warnings.empty()) << "that data is the run's own from here on";
}

TEST_F(SavedData, ARunGoesOnWithItsDataAtAnotherPlace) {
  write_images("images", 0, 100);
  save_session(*of_images(), path("run/checkpoints"));
  const auto at = [&](const std::string& place) {
    return session(R"({"type": "mlp", "hidden": [4]})",
                   R"({"type": "idx", "workers": 0, "path": ")" + path(place) + R"("})");
  };
  std::filesystem::rename(path("images"), path("moved"));
  EXPECT_FALSE(restore_newest(*at("moved"), path("run")).from.empty());
  write_images("others", 0, 101);
  EXPECT_PRED2(contains, error_message<DataError>([&] { (void)restore_newest(*at("others"), path("run")); }),
               "data has changed");
}

TEST_F(SavedData, ARefusedConfigurationNamesTheWayOn) {
  write_images("images", 0, 100);
  save_session(*of_images(), path("run/checkpoints"));
  const std::string config = write("other.json", R"({"device": "cpu", "model": {"type": "mlp", "hidden": [4]},
      "data": {"type": "idx", "workers": 0, "path": ")" +
                                                     path("images") + R"("},
      "optimizer": {"type": "sgd", "lr": 0.2}, "train": {"batch_size": 4, "steps": 1}})");
  Session other(load_config(config, {}));
  const std::string refusal = error_message<ConfigError>([&] { (void)restore_newest(other, path("run")); });
  EXPECT_PRED2(contains, refusal, "/optimizer/lr (0.2 against 0.1)");
  EXPECT_PRED2(contains, refusal, "use another --out, there with --set weights.path=" + path("run"));
}

TEST_F(SavedData, FilesThatComeGoOrChangeStopTheRun) {
  data::Image image;
  image.reshape(2, 2, 3);
  const auto put = [&](const std::string& name, std::uint8_t level) {
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(level * i);
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    data::write_png(path(name), image);
  };
  const auto of_folder = [&](const std::string& folder) {
    return session(
        R"({"type": "mlp", "hidden": [4]})",
        R"({"type": "image_folder", "workers": 0, "augment": {"image_size": 2}, "path": ")" + path(folder) + R"("})");
  };
  for (const char* split : {"train", "test"})
    for (const char* name : {"cat", "dog"})
      for (int i = 0; i < 4; ++i) put(join_text("images/", split, '/', name, '/', i, ".png"), 1);
  save_session(*of_folder("images"), path("run/checkpoints"));
  const auto refusal = [&] {
    const auto now = of_folder("images");
    return error_message<DataError>([&] { (void)restore_newest(*now, path("run")); });
  };
  std::filesystem::rename(path("images/train/dog/1.png"), path("images/train/dog/x.png"));
  EXPECT_PRED2(contains, refusal(), "data has changed: the train split has as many samples, 8, but not the same;");
  std::filesystem::rename(path("images/train/dog/x.png"), path("images/train/dog/1.png"));
  EXPECT_FALSE(restore_newest(*of_folder("images"), path("run")).from.empty());
  put("images/train/cat/new.png", 1);
  EXPECT_PRED2(contains, refusal(), "the train split has 9 samples, was 8; \"cat\" 5, was 4; bring");
  std::filesystem::remove(path("images/train/cat/new.png"));
  put("images/test/dog/1.png", 0);
  EXPECT_PRED2(contains, refusal(), "data has changed: the test split has as many samples, 8, but not the same;");
  std::filesystem::remove_all(path("images/test"));
  EXPECT_PRED2(contains, refusal(), "the test split has");
}

TEST_F(SavedData, LinesThatComeOrGetAnotherLabelStopTheRun) {
  write_texts("yes", "no");
  save_session(*of_texts(), path("run/checkpoints"));
  EXPECT_FALSE(restore_newest(*of_texts(), path("run")).from.empty());
  const auto refusal = [&](const std::string& lines) {
    write("texts.tsv", lines);
    const auto now = of_texts();
    return error_message<DataError>([&] { (void)restore_newest(*now, path("run")); });
  };
  const std::string same = "yes\tab\nno\tba\nyes\tab\nno\tba\nyes\tab\nno\tba\n";
  EXPECT_PRED2(contains, refusal(same + "yes\tab\nno\tba\nno\tba\n"), "the train split has 9 samples, was 8; bring");
  EXPECT_PRED2(contains, refusal(same + "no\tab\nno\tba\n"),
               "the train split has as many samples, 8, but not the same");
}

TEST_F(SavedData, LabelsThatMeanSomethingElseAreRefused) {
  write_texts("cat", "dog");
  const auto trained = of_texts();
  save_session(*trained, path("run/checkpoints"));
  EXPECT_NO_THROW((void)open_for_evaluation(path("run")));
  write_texts("cow", "cat");
  const auto changed = of_texts();
  for (const std::string& message : {error_message<DataError>([&] { (void)open_for_evaluation(path("run")); }),
                                     error_message<DataError>([&] { (void)restore_newest(*changed, path("run")); })})
    for (const char* part : {"label 1 was \"dog\" of 2 classes", "is \"cow\" of 2", "bring back"})
      EXPECT_PRED2(contains, message, part);
  EXPECT_EQ(open_trained(path("run"))->data.train->class_names(), (std::vector<std::string>{"cat", "dog"}))
      << "the sequences are not opened";
}

TEST_F(SavedData, NumbersAreNoNames) {
  write_texts("cat", "dog");
  save_session(*of_texts(), path("named/checkpoints"));
  write_texts("0", "1");
  EXPECT_NO_THROW((void)open_for_evaluation(path("named")));
  save_session(*of_texts(), path("numbered/checkpoints"));
  write_texts("cat", "dog");
  EXPECT_NO_THROW((void)open_for_evaluation(path("numbered")));
}

TEST_F(SavedData, SetsOfEarlierVersionsAreRead) {
  write_images("images", 0, 100);
  const auto trained = of_images();
  save_session(*trained, path("run/checkpoints"));
  const std::filesystem::path set = path("run/checkpoints/latest");
  {
    CheckpointWriter old(path("old/checkpoints"), 0);
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(set / name, old.file(name));
    // As they kept it: the length of metrics.jsonl with the tensors, and no evaluation of the test split.
    State state;
    for (const State::Entry& entry : trained->training_state.entries()) {
      if (entry.name.starts_with("position.test_")) continue;
      if (entry.tensor != nullptr)
        state.add(entry.name, entry.tensor);
      else if (entry.dtype == DType::f64)
        state.add(entry.name, reinterpret_cast<double*>(entry.scalar));
      else
        state.add(entry.name, reinterpret_cast<std::int64_t*>(entry.scalar));
    }
    state.save(old.file("state.safetensors"), {{"hearth.metrics_bytes", "77"}});
    point_to(path("old/checkpoints"), "latest", old.commit());
  }
  EXPECT_NE(restore_newest(*trained, path("old")).from, "");
  EXPECT_EQ(trained->position.metrics_bytes, 77);
  EXPECT_EQ(open_trained(path("old"), {})->data.image_options.normalize.mean,
            trained->data.image_options.normalize.mean);
}

}  // namespace
}  // namespace hearth::train::saved_data_test
