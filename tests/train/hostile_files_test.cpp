// SPDX-License-Identifier: Apache-2.0
// What is no file that anyone meant, wherever the program reads one: each ends it with a message and the exit code of
// a bad file or configuration, soon, and within the memory that small files take. Never a signal, never a wait.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/build.h"
#include "core/io/file.h"
#include "tests/support/error_message.h"
#include "tests/support/gzip_of_zeros.h"
#include "tests/support/places.h"
#include "tests/support/run_program.h"

namespace hearth::train::hostile_files_test {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::ProgramResult;
using Words = std::vector<std::string>;

/// Ways to be no such file.
enum class Trap { pipe, device, folder, large, bomb, zeros };

struct Attack {
  const char* reader;
  std::string name;  ///< of the file that is one
  Words words;
  std::vector<Trap> traps;
};

// A sanitizer keeps a quarter of it.
const std::int64_t max_memory = test::is_sanitized() ? std::int64_t{1} << 30 : std::int64_t{400} << 20;

class HostileFiles : public testing::Test {
 protected:
  ProgramResult hearth(Words words) {
    words.insert(words.begin(), test::hearth_program());
    return test::run_program(std::move(words), folder_.path(), 20);
  }
  std::string put(const std::string& name, const std::string& text) {
    return folder_.write(name, {text.begin(), text.end()});
  }
  /// A configuration of these data.
  std::string config_of(const std::string& name, const std::string& data, const std::string& model) {
    return put(name, R"({"model": )" + model + R"(, "data": )" + data +
                         R"(, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 2, "steps": 40}})");
  }

  void set(Trap trap, const std::string& name) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    fs::remove_all(path);
    switch (trap) {
      case Trap::pipe:
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
        return;
      case Trap::device:
        fs::create_symlink("/dev/zero", path);
        return;
      case Trap::folder:
        fs::create_directories(path);
        return;
      case Trap::large:  // without a byte on the disk
        put(name, "");
        fs::resize_file(path, std::uintmax_t{4} << 30);
        return;
      case Trap::bomb:
        folder_.write(name, test::gzip_of_zeros(std::uint64_t{1} << 29));
        return;
      case Trap::zeros:
        put(name, std::string(10'000, '\0'));
    }
  }

  /// Every trap of an attack ends the program as it should.
  void expect_refused(const Attack& attack) {
    for (const Trap trap : attack.traps) {
      SCOPED_TRACE(testing::Message() << attack.reader << ", trap " << static_cast<int>(trap));
      set(trap, attack.name);
      const ProgramResult result = hearth(attack.words);
      EXPECT_TRUE(result.exit_code == 2 || result.exit_code == 3) << result.exit_code << ": " << result.err;
      EXPECT_PRED2(contains, result.last_error_line(), "hearth: error: ");
      EXPECT_PRED2(contains, result.err + result.out, fs::path(attack.name).filename().string());
      EXPECT_LT(result.peak_bytes, max_memory);
    }
    fs::remove_all(folder_ / attack.name);
  }

  test::TempDir folder_;
  const std::vector<Trap> all_{Trap::pipe, Trap::device, Trap::folder, Trap::large, Trap::zeros};
};

constexpr const char* small_mlp = R"({"type": "mlp", "hidden": [2]})";
constexpr const char* small_gpt = R"({"type": "gpt", "layers": 1, "heads": 1, "width": 8})";

TEST_F(HostileFiles, ConfigurationsAndWeights) {
  expect_refused({"config", "run.json", {"config", "run.json"}, all_});
  expect_refused({"weights", "w.safetensors", {"weights", "inspect", "w.safetensors"}, all_});
  expect_refused({"index", "w.safetensors.index.json", {"weights", "inspect", "w.safetensors.index.json"}, all_});
  expect_refused({"file of torch.save", "w.pth", {"weights", "inspect", "w.pth"}, all_});
  config_of("good.json", R"({"type": "digits"})", small_mlp);
  expect_refused({"weights.path",
                  "w.safetensors",
                  {"train", "good.json", "--set", "weights.path=w.safetensors", "--set", "weights.from=hearth"},
                  all_});
}

TEST_F(HostileFiles, TextsAndTokenizers) {
  config_of("run.json", R"({"type": "text", "train": ["a.txt"], "length": 4})", small_gpt);
  expect_refused({"text", "a.txt", {"data", "verify", "run.json"}, all_});
#if HEARTH_HAS_ZLIB
  expect_refused({"text", "a.txt", {"data", "verify", "run.json"}, {Trap::bomb}});
#endif
  put("a.txt", "a text");
  for (const std::string name : {"t.json", "vocab.txt", "vocab.json", "merges.txt", "t.model"}) {
    const bool of_words = name == "vocab.txt" || name == "t.json";
    put("vocab.json", R"({"a": 0})");
    put("merges.txt", "");
    const std::string path = name == "merges.txt" ? "vocab.json" : name;
    config_of("run.json",
              R"({"type": "text", "train": ["a.txt"], "length": 4, "tokenizer": {"type": ")" +
                  std::string(name == "t.model" ? "sentencepiece"
                              : of_words        ? "wordpiece"
                                                : "bpe") +
                  R"(", "path": ")" + path + "\"}}",
              small_gpt);
    std::vector<Trap> traps = all_;
    std::erase(traps, Trap::folder);  // means a folder that has such files
    expect_refused({"tokenizer", name, {"data", "verify", "run.json"}, traps});
  }
}

TEST_F(HostileFiles, PackedTexts) {
  put("a.txt", std::string(1000, 'a'));
  config_of("run.json", R"({"type": "text", "train": ["a.txt"]})", small_gpt);
  ASSERT_EQ(hearth({"data", "pack", "run.json", "packed"}).exit_code, 0);
  config_of("run.json", R"({"type": "text", "packed": "packed", "length": 4})", small_gpt);
  const std::string whole = read_text(folder_ / "packed/train.tokens");
  expect_refused({"tokens", "packed/train.tokens", {"train", "run.json"}, all_});
  put("packed/train.tokens", whole);
  expect_refused({"tokenizer", "packed/tokenizer.json", {"train", "run.json"}, all_});
}

// Each byte of the ids is trained on somewhere in 40 steps.
TEST_F(HostileFiles, NoFlippedBitOfPackedTextsIsTrainedOn) {
  put("a.txt", "hello worlds");
  config_of("text.json", R"({"type": "text", "train": ["a.txt"]})", small_gpt);
  ASSERT_EQ(hearth({"data", "pack", "text.json", "packed"}).exit_code, 0);
  config_of("run.json", R"({"type": "text", "packed": "packed", "length": 2})", small_gpt);
  EXPECT_EQ(hearth({"train", "run.json", "--out", "good"}).exit_code, 0);
  const std::string whole = read_text(folder_ / "packed/train.tokens");
  for (const std::size_t at : {0, 20, 60, 128, 134, 140, 150, 158, 160, 170}) {
    std::string damaged = whole;
    damaged.at(at) = static_cast<char>(damaged[at] ^ 1);
    put("packed/train.tokens", damaged);
    const ProgramResult result = hearth({"train", "run.json", "--out", "out" + std::to_string(at)});
    EXPECT_EQ(result.exit_code, 3) << at << ": " << result.err;
    EXPECT_PRED2(contains, result.last_error_line(), "packed/train.tokens: ");
  }
}

TEST_F(HostileFiles, Images) {
  config_of("idx.json", R"({"type": "idx", "path": "idx"})", small_mlp);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"}) {
    for (const char* stem : {"train", "t10k"}) {
      put("idx/" + std::string(stem) + "-images-idx3-ubyte",
          std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01\x05", 17));
      put("idx/" + std::string(stem) + "-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x01\0", 9));
    }
    expect_refused({"idx", "idx/" + std::string(name), {"data", "verify", "idx.json"}, all_});
#if HEARTH_HAS_ZLIB
    expect_refused({"idx", "idx/" + std::string(name), {"data", "verify", "idx.json"}, {Trap::bomb}});
#endif
  }
  config_of("cifar.json", R"({"type": "cifar10", "path": "cifar"})", small_mlp);
  expect_refused({"cifar", "cifar/data_batch_1.bin", {"data", "verify", "cifar.json"}, all_});
#if HEARTH_HAS_ZLIB
  expect_refused({"cifar", "cifar/data_batch_1.bin", {"data", "verify", "cifar.json"}, {Trap::bomb}});
#endif
  config_of("folder.json", R"({"type": "image_folder", "path": "images", "valid_fraction": 0, "test_fraction": 0})",
            small_mlp);
  fs::create_directories(folder_ / "images/b");
  fs::copy_file(test::source_dir() + "/tests/golden/images/rgb.bmp", folder_ / "images/b/1.bmp");
  put("images/a/1.png", "no image");
  expect_refused({"image", "images/a/1.png", {"data", "verify", "folder.json"}, {Trap::large, Trap::zeros}});
}

TEST_F(HostileFiles, RunsAndTheirCheckpoints) {
  config_of("run.json", R"({"type": "digits"})", small_mlp);
  ASSERT_EQ(hearth({"train", "run.json", "--out", "run"}).exit_code, 0);
  expect_refused({"predict", "photo.png", {"predict", "run", "photo.png"}, all_});
  const std::string set = "run/checkpoints/step-00000040/";
  for (const char* name : {"model.safetensors", "state.safetensors", "config.json", "data.json", "manifest.json"}) {
    const std::string whole = read_text(folder_ / (set + name));
    expect_refused({"checkpoint", set + name, {"eval", "run/checkpoints/step-00000040"}, all_});
    put(set + name, whole);
  }
  EXPECT_EQ(hearth({"eval", "run"}).exit_code, 0);
  expect_refused({"metrics",
                  "run/metrics.jsonl",
                  {"train", "run.json", "--out", "run", "--set", "train.steps=50"},
                  {Trap::pipe, Trap::folder}});
}

}  // namespace
}  // namespace hearth::train::hostile_files_test
