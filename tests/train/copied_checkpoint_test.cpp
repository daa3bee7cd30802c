// SPDX-License-Identifier: Apache-2.0
// A checkpoint that was copied elsewhere predicts and is evaluated without the data of its training, from any
// directory.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/build.h"
#include "core/io/file.h"
#include "core/io/json_text.h"
#include "data/images/codecs/image.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"

namespace hearth::train::copied_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::ProgramResult;

class CopiedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "origin");
    fs::create_directories(folder_ / "elsewhere");
  }
  ProgramResult hearth(std::vector<std::string> words, const std::string& directory = "elsewhere") const {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_ / directory);
  }
  void write(const std::string& name, const std::string& text) const {
    (void)folder_.write(name, {text.begin(), text.end()});
  }
  /// Trains in origin/ with the data named by relative paths.
  void train(const std::string& model, const std::string& data, const std::string& more = "") const {
    write("origin/run.json", R"({"seed": 3, "device": "cpu", "model": )" + model + R"(, "data": )" + data + more +
                                 R"(, "optimizer": {"type": "adamw", "lr": 0.01},
                                  "train": {"batch_size": 8, "epochs": 4},
                                  "log": {"report": false, "tensorboard": false}})");
    const ProgramResult result = hearth({"train", "run.json", "--out", "run"}, "origin");
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  /// Leaves nothing of the training but elsewhere/net, the checkpoint that its run is evaluated by.
  void keep_the_checkpoint_only() const {
    const fs::path best = folder_ / "origin/run/checkpoints/best", latest = folder_ / "origin/run/checkpoints/latest";
    fs::copy(fs::canonical(file_exists(best) ? best : latest), folder_ / "elsewhere/net");
    fs::remove_all(folder_ / "origin");
  }
  static std::vector<Json> lines_of(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<Json> lines;
    std::istringstream stream(result.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(parse_json(line, "a line"));
    return lines;
  }
  Json evaluated(std::vector<std::string> words, const std::string& directory = "elsewhere") const {
    words.insert(words.begin(), "eval");
    words.emplace_back("--json");
    const std::vector<Json> lines = lines_of(hearth(std::move(words), directory));
    return lines.empty() ? Json() : lines.front();
  }
  static void expect_refused(const ProgramResult& result, int exit_code, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    for (const std::string& part : parts) EXPECT_PRED2(contains, result.last_error_line(), part);
  }

  const test::TempDir folder_;
};

/// Pictures of two classes, brighter at the top or at the left, none of them a square.
void write_pictures(const fs::path& folder, int count) {
  for (const bool top : {false, true}) {
    const fs::path below = folder / (top ? "top" : "left");
    fs::create_directories(below);
    for (int i = 0; i < count; ++i) {
      data::Image image;
      image.reshape(12 + i % 3, 14, 3);
      for (int y = 0; y < image.height; ++y)
        for (int x = 0; x < image.width; ++x)
          for (int c = 0; c < 3; ++c)
            image.row(y)[3 * x + c] = static_cast<std::uint8_t>((top ? y < 6 : x < 7) ? 200 + i + c : 20 + 3 * i);
      data::write_png(below / (std::to_string(i) + ".png"), image);
    }
  }
}

TEST_F(CopiedCheckpoint, ClassifiesImagesAndFolders) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  write_pictures(folder_ / "origin/pictures", 10);
  write_pictures(folder_ / "elsewhere/others", 3);
  train(R"({"type": "resnet", "blocks": [1], "stem": "small", "width": 8})",
        R"({"type": "image_folder", "path": "pictures", "workers": 0, "valid_fraction": 0.2, "shrink_to": 10,
            "normalize": {"mean": [0.25], "std": [0.5]}, "augment": {"image_size": 8}})");
  const auto predicted = [&](const std::string& run) {
    return hearth({"predict", run, "others", "--logits", "--embedding", "--top", "1"});
  };
  const ProgramResult before = predicted("../origin/run");
  keep_the_checkpoint_only();
  const ProgramResult after = predicted("net");
  EXPECT_EQ(after.out, before.out);
  const std::vector<Json> lines = lines_of(after);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0].at("input").as_string(), "others/left/0.png");
  EXPECT_EQ(lines[5].at("input").as_string(), "others/top/2.png");
  std::int64_t right = 0;
  for (const Json& line : lines) {
    right += contains(line.at("input").as_string(), "/" + line.at("class").as_string() + "/") ? 1 : 0;
    EXPECT_EQ(line.at("top").size(), 1u);
    EXPECT_EQ(line.at("logits").size(), 2u);
    EXPECT_EQ(line.at("embedding").size(), 8u);
  }
  EXPECT_EQ(hearth({"predict", "net", "others/left/0.png", "--top", "2"}).out.find("{\"input\":\"others/left/0.png\""),
            0u);
  const Json result = evaluated({"net", "--data", "others"});
  EXPECT_EQ(result.at("samples").as_integer(), 6);
  EXPECT_NEAR(result.at("accuracy").as_number(), static_cast<double>(right) / 6, 1e-9);
}

TEST_F(CopiedCheckpoint, NamesEachImageThatCannotBeRead) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  train(R"({"type": "mlp", "hidden": [8]})", R"({"type": "digits", "workers": 0, "test_size": 1780})");
  keep_the_checkpoint_only();
  write_pictures(folder_ / "elsewhere/others", 1);
  write("elsewhere/others/a.png", "none");
  write("elsewhere/others/z.png", "");
  write("elsewhere/others/scan.tif", "none");
  fs::create_symlink("nowhere.png", folder_ / "elsewhere/others/link.png");
  const ProgramResult result = hearth({"predict", "net", "others", "absent.png"});
  expect_refused(result, 3, {"others/link.png", "4 of 6 inputs cannot be read"});
  for (const char* name : {"a.png", "z.png", "absent.png"})
    EXPECT_PRED2(contains, result.err, std::string(name) + ": ");
  EXPECT_PRED2(contains, result.err, "link.png: a link to nothing");
  EXPECT_PRED2(contains, result.err, "scan.tif: tif files are not read; convert it to PNG or JPEG");
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << "the readable ones";
  fs::create_directories(folder_ / "elsewhere/empty");
  expect_refused(hearth({"predict", "net", "empty"}), 3, {"empty: has no image file"});
}

TEST_F(CopiedCheckpoint, EvaluatesOnFilesOfItsOwnForm) {
  const auto write_idx = [&](const std::string& part, int count) {
    const auto number = [](int value) { return std::string{0, 0, 0, static_cast<char>(value)}; };
    std::string pixels, labels;
    for (int i = 0; i < count; ++i) {
      pixels += std::string(4, i % 2 == 0 ? '\x05' : '\x60');
      labels += static_cast<char>(i % 2);
    }
    write(part + "-images-idx3-ubyte", std::string("\0\0\x08\x03", 4) + number(count) + number(2) + number(2) + pixels);
    write(part + "-labels-idx1-ubyte", std::string("\0\0\x08\x01", 4) + number(count) + labels);
  };
  write_idx("origin/images/train", 40);
  write_idx("origin/images/t10k", 12);
  write_idx("elsewhere/other/t10k", 10);
  train(R"({"type": "mlp", "hidden": [8]})", R"({"type": "idx", "workers": 0, "path": "images"})");
  const Json before = evaluated({"run", "--data", "../elsewhere/other"}, "origin");
  EXPECT_EQ(evaluated({"run"}, "origin").at("samples").as_integer(), 12);
  keep_the_checkpoint_only();
  const Json after = evaluated({"net", "--data", "other"});
  EXPECT_EQ(after, before);
  EXPECT_EQ(after.at("samples").as_integer(), 10);
  EXPECT_EQ(after.at("accuracy").as_number(), 1);
  expect_refused(hearth({"eval", "net"}), 3, {"images", "relative paths from", "elsewhere", "--data"});
  expect_refused(hearth({"eval", "net", "--data", "absent"}), 3, {"absent"});
  expect_refused(hearth({"eval", "net", "--data", "other", "--split", "train"}), 3, {"no train split"});
}

TEST_F(CopiedCheckpoint, ImagesOfClassesThatItDoesNotKnowAreRefused) {
  if (!HEARTH_HAS_PNG) GTEST_SKIP() << "this build lacks libpng";
  write_pictures(folder_ / "origin/pictures", 10);
  train(R"({"type": "mlp", "hidden": [8]})",
        R"({"type": "image_folder", "path": "pictures", "workers": 0, "augment": {"image_size": 4}})");
  keep_the_checkpoint_only();
  write_pictures(folder_ / "elsewhere/parts/val", 2);
  write_pictures(folder_ / "elsewhere/parts/test", 3);
  EXPECT_EQ(evaluated({"net", "--data", "parts"}).at("samples").as_integer(), 6);
  EXPECT_EQ(evaluated({"net", "--data", "parts", "--split", "valid"}).at("samples").as_integer(), 4);
  fs::remove_all(folder_ / "elsewhere/parts/test/top");
  EXPECT_EQ(evaluated({"net", "--data", "parts"}).at("samples").as_integer(), 3) << "one class is missing";
  fs::rename(folder_ / "elsewhere/parts/test/left", folder_ / "elsewhere/parts/test/right");
  expect_refused(hearth({"eval", "net", "--data", "parts"}), 3, {"right", "not a class"});
}

// Which of two letters a text has more of.
std::string labelled_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += i % 2 == 0 ? "more-a\taab\n" : "more-b\tbba\n";
  return lines;
}

TEST_F(CopiedCheckpoint, ClassifiesTexts) {
  write("origin/texts.tsv", labelled_lines(40));
  write("elsewhere/moved/texts.tsv", labelled_lines(6));
  train(R"({"type": "bert", "head": "classification", "layers": 1, "heads": 2, "width": 8, "dropout": 0})",
        R"({"type": "labelled_text", "train": ["texts.tsv"], "test": ["texts.tsv"], "length": 8, "workers": 0})");
  const ProgramResult before = hearth({"predict", "run", "--text", "aaab", "--text", "bb", "--logits"}, "origin");
  const Json on_moved = evaluated({"run", "--data", "../elsewhere/moved"}, "origin");
  keep_the_checkpoint_only();
  EXPECT_EQ(hearth({"predict", "net", "--text", "aaab", "--text", "bb", "--logits"}).out, before.out);
  write("elsewhere/lines.txt", "aaab\nbb\n");
  EXPECT_EQ(hearth({"predict", "net", "lines.txt", "--logits"}).out, before.out);
  EXPECT_EQ(lines_of(hearth({"predict", "net", "--text", "b", "--embedding"})).at(0).at("embedding").size(), 8u);
  const auto piped = [&](const std::string& source, const std::string& rest) {
    return test::run_program(
        {"/bin/sh", "-c", source + " | timeout 60 " + test::hearth_program() + " predict net - --logits" + rest},
        folder_ / "elsewhere");
  };
  EXPECT_EQ(piped("cat lines.txt", "").out, before.out);
  // Lines of a stream that does not end come as it is read.
  const ProgramResult endless = piped("yes aaab", " | head -n 70");
  EXPECT_EQ(std::count(endless.out.begin(), endless.out.end(), '\n'), 70);
  // Products of more rows may be summed in another order.
  const Json of_many = lines_of(endless).at(0), of_two = lines_of(before).at(0);
  EXPECT_EQ(of_many.at("class").as_string(), of_two.at("class").as_string());
  for (const std::size_t i : {0U, 1U})
    EXPECT_NEAR(of_many.at("logits").at(i).as_number(), of_two.at("logits").at(i).as_number(), 1e-6);
  EXPECT_PRED2(contains, piped("tr '\\0' a </dev/zero", "").err, "the input, line 1: has more than");
  for (const char* data : {"moved", "moved/texts.tsv"}) {
    EXPECT_EQ(evaluated({"net", "--data", data}), on_moved) << data;
    EXPECT_EQ(on_moved.at("samples").as_integer(), 6);
  }
  write("elsewhere/strange.tsv", "more-c\taab\n");
  expect_refused(hearth({"eval", "net", "--data", "strange.tsv"}), 3, {"strange.tsv:1", "more-c"});
  expect_refused(hearth({"eval", "net", "--data", "."}), 3, {"has none of the files texts.tsv"});
}

TEST_F(CopiedCheckpoint, WritesTextsOnAndTranslates) {
  std::string text, pairs;
  for (int i = 0; i < 100; ++i) text += "abcde";
  for (int i = 0; i < 24; ++i) pairs += i % 2 == 0 ? "ab\tA B\n" : "ba\tB A\n";
  write("origin/train.txt", text);
  write("origin/test.txt", text.substr(0, 50));
  write("elsewhere/moved/test.txt", text.substr(0, 40));
  train(R"({"type": "gpt", "layers": 1, "heads": 2, "width": 16, "dropout": 0})",
        R"({"type": "text", "train": ["train.txt"], "test": ["test.txt"], "length": 16, "workers": 0})");
  const std::vector<std::string> prompt{"--prompt", "cde", "--greedy", "--max-tokens", "8"};
  const auto written = [&](const std::string& run, const std::string& directory) {
    std::vector<std::string> words{"predict", run};
    words.insert(words.end(), prompt.begin(), prompt.end());
    return hearth(words, directory).out;
  };
  const std::string before = written("run", "origin");
  ASSERT_EQ(hearth({"data", "pack", "run.json", "../elsewhere/packed"}, "origin").exit_code, 0);
  fs::remove(folder_ / "elsewhere/packed/train.tokens");
  const Json configured = evaluated({"run"}, "origin");
  keep_the_checkpoint_only();
  EXPECT_NE(before, "");
  EXPECT_EQ(written("net", "elsewhere"), before);
  EXPECT_EQ(evaluated({"net", "--data", "packed"}), configured);
  const Json moved = evaluated({"net", "--data", "moved"});
  EXPECT_EQ(moved.at("tokens").as_integer(), 40) << "with its end";
  EXPECT_TRUE(moved.find("bits_per_character"));
  EXPECT_EQ(evaluated({"net", "--data", "moved/test.txt"}), moved);

  fs::create_directories(folder_ / "origin");
  fs::remove_all(folder_ / "elsewhere/net");
  write("origin/pairs.tsv", pairs);
  write("elsewhere/pairs.tsv", pairs);
  write("elsewhere/lines.txt", "ab\nba\n");
  train(
      R"({"type": "transformer", "layers": 1, "decoder_layers": 1, "heads": 2, "width": 16, "dropout": 0})",
      R"({"type": "parallel_text", "train": ["pairs.tsv"], "workers": 0, "longest": 16, "tokenizer": {"type": "words"},
            "source_tokenizer": {"type": "characters"}})");
  const std::string translated = hearth({"predict", "run", "../elsewhere/lines.txt"}, "origin").out;
  keep_the_checkpoint_only();
  EXPECT_NE(translated, "");
  EXPECT_EQ(hearth({"predict", "net", "lines.txt"}).out, translated);
  EXPECT_EQ(evaluated({"net", "--data", "pairs.tsv"}).at("decoded").as_integer(), 24);
}

TEST_F(CopiedCheckpoint, OneOfAnEarlierVersionOpensTheDataThatItsConfigurationNames) {
  write("origin/texts.tsv", labelled_lines(16));
  train(R"({"type": "bert", "head": "classification", "layers": 1, "heads": 1, "width": 8})",
        R"({"type": "labelled_text", "train": ["texts.tsv"], "length": 8, "workers": 0})");
  const fs::path set = folder_ / "origin/run/checkpoints/latest";
  {
    CheckpointWriter old(folder_ / "old/checkpoints", 8);
    for (const char* name : {"config.json", "model.safetensors", "state.safetensors", "tokenizer.json"})
      fs::copy_file(set / name, old.file(name));
    write_file_synced(old.file("data.json"), R"({"classes": ["more-a", "more-b"]})");
    (void)old.commit();
  }
  const std::string net = folder_ / "old/checkpoints/step-00000008";
  EXPECT_EQ(hearth({"predict", net, "--text", "aab"}, "origin").exit_code, 0);
  expect_refused(hearth({"predict", net, "--text", "aab"}), 3, {"texts.tsv", "the run's configuration names"});
  expect_refused(hearth({"eval", net, "--data", "x"}), 3, {"an earlier version wrote it"});
}

}  // namespace
}  // namespace hearth::train::copied_checkpoint_test
