// SPDX-License-Identifier: Apache-2.0
// Weights that cross by command, and runs that start from them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "models/swin.h"
#include "models/transformer/bert.h"
#include "models/weights/weights.h"
#include "models/weights/weights_import.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"
#include "tests/train/weights_command.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"
#include "train/cli/cli.h"
#include "train/session.h"
#include "train/step/step.h"

namespace hearth::weights_command_test {
namespace {

using test::contains;

using test::WeightsCommand;

TEST_F(WeightsCommand, ThereAndBackIsTheSameFile) {
  put_bert(false);
  ASSERT_EQ(run({"weights", "convert", path("bert.safetensors"), path("own"), "--from", "hf-bert"}), 0) << message_;
  ASSERT_EQ(run({"weights", "convert", path("own"), path("back.safetensors"), "--to", "hf-bert"}), 0) << message_;
  EXPECT_EQ(read_text(path("back.safetensors")), read_text(path("bert.safetensors")));
  SafetensorsFile(path("own")).verify();
  EXPECT_TRUE(SafetensorsFile(path("own")).has_checksums());
}

TEST_F(WeightsCommand, PartsBecomeOneFileInAnotherType) {
  put_bert(true);
  ASSERT_EQ(run({"weights", "convert", folder_.path().string(), path("half"), "--from", "hf-bert", "--dtype", "bf16",
                 "--leave-out", "cls."}),
            0)
      << message_;
  EXPECT_EQ(run({"weights", "inspect", folder_.path().string(), "--json"}), 0) << message_;
  const SafetensorsFile file(path("half"));
  EXPECT_EQ(file.at("encoder.layer.0.attention.self.qkv.weight").shape, (Shape{24, 8}));
  EXPECT_EQ(file.find("cls.predictions.bias"), nullptr);
  for (const TensorRecord& record : file.records()) EXPECT_EQ(record.dtype, DType::bf16) << record.name;
}

TEST_F(WeightsCommand, OnlyWhatFitsIsAccepted) {
  put_bert(false);
  const std::string bert = path("bert.safetensors");
  for (const char* dtype : {"i32", "i64", "u8", "bool", "f64", "int"}) {
    EXPECT_EQ(run({"weights", "convert", bert, path("own"), "--from", "hf-bert", "--dtype", dtype}), 2);
    EXPECT_PRED2(contains, message_, std::string("--dtype ") + dtype + "; use f32, f16 or bf16");
  }
  EXPECT_EQ(run({"weights", "convert", bert, path("own"), "--json"}), 2);
  EXPECT_PRED2(contains, message_, "weights convert: --json is not for it; it takes --from, --to");
  EXPECT_FALSE(file_exists(path("own")));
  EXPECT_EQ(run({"weights", "inspect", bert, "--to", "torch"}), 2);
  EXPECT_PRED2(contains, message_, "weights inspect: --to is not for it");
  EXPECT_EQ(run({"weights", "inspect", bert, path("own")}), 2);
  EXPECT_PRED2(contains, message_, path("own") + "\" is too much");
}

TEST_F(WeightsCommand, ASwinOfTimmThereAndBackAndAsAStart) {
  const std::string timm = test::source_dir() + "/tests/golden/timm_swin.safetensors";
  ASSERT_EQ(run({"weights", "convert", timm, path("own"), "--from", "timm-swin"}), 0) << message_;
  ASSERT_EQ(run({"weights", "convert", path("own"), path("back"), "--to", "timm-swin"}), 0) << message_;
  EXPECT_EQ(read_text(path("back")), read_text(timm));
  EXPECT_PRED2(contains, message_, "note: timm computes the same from images whose sides are multiples of 8;");
  put("run.json",
      R"({"device": "cpu", "model": {"type": "swin", "depths": [2, 2], "heads": [1, 2], "width": 4, "patch": 2,
      "window": 2, "mlp_ratio": 2}, "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.001},
      "train": {"batch_size": 4, "steps": 1}, "weights": {"path": ")" +
          timm + R"(", "from": "timm-swin", "reinitialize": ["head"]}})");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "not loaded: head.weight, reinitialized");
  EXPECT_FALSE(contains(message_, "timm computes something else"));
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0) << message_;
  ASSERT_EQ(run({"weights", "convert", path("out"), path("of_run"), "--to", "timm-swin"}), 0) << message_;
  EXPECT_FALSE(contains(message_, "timm computes"));
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", "weights.from=microsoft-swin"}), 3);
  EXPECT_PRED2(contains, message_, "missing layers.0.downsample.reduction.weight");
  // A model that does not fit the data at all is the configuration's fault.
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", "model.window=5"}), 2);
  EXPECT_PRED2(contains, message_, "/model: a window of 5 x 5 tokens is larger than the 4 x 4 tokens");
}

TEST_F(WeightsCommand, ARunSaysWhereTimmComputesSomethingElse) {
  models::Swin network({.depths = {2}, .heads = {1}, .width = 4, .patch = 2, .window = 3, .in_channels = 1});
  nn::initialize(network, 1);
  models::WeightSet ours;
  for (const NamedTensor& named : network.parameters()) ours.weights.push_back({named.name, *named.tensor});
  models::NameReport report;
  const models::WeightSet theirs = models::from_hearth(ours, models::WeightFormat::timm_swin, report);
  std::vector<SafetensorsEntry> entries;
  for (const models::Weight& weight : theirs.weights)
    entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                       std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
  write_plain_safetensors(path("timm"), entries, {});
  put("run.json", R"({"device": "cpu", "model": {"type": "swin", "depths": [2], "heads": [1], "width": 4, "patch": 2,
      "window": 3}, "data": {"type": "synthetic", "channels": 1, "height": 10, "width": 12, "train_size": 8,
      "test_size": 4}, "optimizer": {"type": "sgd", "lr": 0.001}, "train": {"batch_size": 4, "steps": 1},
      "weights": {"path": ")" +
                      path("timm") + R"(", "from": "timm-swin", "reinitialize": ["head"]}})");
  const std::string text = "from images of 10 x 12 pixels timm computes something else: of the 5 x 6 tokens of stage 1";
  ASSERT_EQ(run({"train", path("run.json"), "--out", path("out")}), 0) << message_;
  EXPECT_PRED2(contains, message_, text);
  ASSERT_EQ(run({"weights", "convert", path("out"), path("of_run"), "--to", "timm-swin"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "note: " + text);
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", "data.height=12"}), 0) << message_;
  EXPECT_FALSE(contains(message_, "timm computes"));
}

TEST_F(WeightsCommand, NonFiniteWeightsAreSaidSo) {
  put_bert(false);
  // Values of the classifier's bias and of a norm are replaced in the file.
  std::string bytes = read_text(path("bert.safetensors"));
  const SafetensorsFile file(path("bert.safetensors"));
  const auto put_value = [&](const char* name, std::uint32_t bits) {
    const std::vector<std::byte> data = file.read(file.at(name));
    const std::size_t end = bytes.size();
    const std::size_t at = end - (file.records().back().end - file.at(name).begin);
    ASSERT_GE(data.size(), sizeof bits);
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
  };
  put_value("cls.predictions.bias", 0x7fc00000);
  put_value("bert.embeddings.LayerNorm.weight", 0x7f800000);
  put("bad.safetensors", bytes);
  const std::string nan = "cls.predictions.bias: 1 NaN of 30 values";
  ASSERT_EQ(run({"weights", "convert", path("bad.safetensors"), path("own"), "--from", "hf-bert"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "warning: not finite: " + nan);
  EXPECT_PRED2(contains, message_, "not finite: embeddings.LayerNorm.weight: 1 infinite of 8 values");
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"weights", "inspect", path("own")}), 0);
  EXPECT_PRED2(contains, testing::internal::GetCapturedStdout(), "[30]  1 NaN\n");
  EXPECT_PRED2(contains, message_, "warning: 2 tensors have NaN or infinite values");
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"weights", "inspect", path("own"), "--json"}), 0);
  EXPECT_PRED2(contains, testing::internal::GetCapturedStdout(), "\"nan\": 1");
  // A run does not start from them.
  EXPECT_EQ(run({"train", config(R"({"path": ")" + path("own") + "\"}"), "--dry-run"}), 3);
  EXPECT_PRED2(contains, message_, "not finite: " + nan);
  EXPECT_EQ(
      run({"train", config(R"({"path": ")" + path("own") + R"(", "reinitialize": ["cls.", "embeddings.LayerNorm"]})"),
           "--dry-run"}),
      0)
      << message_;
}

TEST_F(WeightsCommand, ValuesBeyondATypeAreNotMadeInfinite) {
  const std::vector<float> values{1e6F, 1.0F};
  write_plain_safetensors(path("large"), {{"w", DType::f32, {2}, std::as_bytes(std::span(values))}});
  EXPECT_EQ(run({"weights", "convert", path("large"), path("half"), "--dtype", "f16"}), 3);
  EXPECT_PRED2(contains, message_,
               "1 finite values of w are too large for f16; leave --dtype out to keep f32, or use --dtype bf16");
  EXPECT_FALSE(file_exists(path("half")));
  EXPECT_EQ(run({"weights", "convert", path("large"), path("half"), "--dtype", "bf16"}), 0) << message_;
}

TEST_F(WeightsCommand, EvalSaysThatACheckpointIsNotFinite) {
  put("run.json", R"({"device": "cpu", "model": {"type": "mlp", "hidden": [4]}, "data": {"type": "digits"},
      "optimizer": {"type": "sgd", "lr": 0.01}, "train": {"batch_size": 8, "steps": 1}})");
  train::Session session(train::load_config(path("run.json"), {}));
  // No training writes such a set; an earlier version did.
  train::save_session(session, path("whole/checkpoints"));
  session.model->parameters()[0].tensor->data<float>()[0] = std::nanf("");
  {
    CheckpointWriter writer(path("out/checkpoints"), 0);
    for (const char* name : {"config.json", "data.json", "state.safetensors"})
      std::filesystem::copy_file(path("whole/checkpoints/latest/") + name, writer.file(name));
    session.model_state.save(writer.file("model.safetensors"));
    (void)writer.commit();
  }
  EXPECT_EQ(run({"eval", path("out")}), 0) << message_;
  EXPECT_PRED2(
      contains, message_,
      "warning: the checkpoint is not finite: " + session.model->parameters()[0].name + ": 1 NaN of 256 values");
}

TEST_F(WeightsCommand, AFileOfPyTorchIsNotTakenForOnesOwn) {
  const std::string pth = test::source_dir() + "/tests/golden/state_dict.pth";
  const std::string given = R"({"path": ")" + pth + "\"}";
  EXPECT_EQ(run({"train", config(given), "--dry-run"}), 3);
  EXPECT_PRED2(contains, message_, pth + ": was written by torch.save()");
  EXPECT_PRED2(contains, message_, "weights.from=torch");
  EXPECT_EQ(run({"weights", "convert", pth, path("own")}), 3);
  EXPECT_PRED2(contains, message_, "--from torch");
  EXPECT_FALSE(file_exists(path("own")));
}

TEST_F(WeightsCommand, WeightsThatDoNotFitSayWhose) {
  put("run.json", R"({"device": "cpu", "model": {"type": "resnet", "blocks": [1], "stem": "small", "width": 4},
      "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.1}, "train": {"batch_size": 8, "steps": 1}})");
  const train::Session session(train::load_config(path("run.json"), {}));
  models::WeightSet ours;
  for (const auto& entry : session.model_state.entries()) ours.weights.push_back({entry.name, *entry.tensor});
  models::NameReport report;
  const models::WeightSet theirs = models::from_hearth(ours, models::WeightFormat::torch, report);
  const auto write = [&](const std::string& prefix) {
    std::vector<SafetensorsEntry> entries;
    for (const models::Weight& weight : theirs.weights)
      entries.push_back({prefix + weight.name, weight.value.dtype(), weight.value.shape(),
                         std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
    write_plain_safetensors(path(prefix + "weights"), entries, {});
    return "weights.path=" + path(prefix + "weights");
  };
  const std::string plain = write(""), of_ddp = write("module.");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", plain}), 3);
  EXPECT_PRED2(contains, message_, "use --set weights.from=torch");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", plain, "--set", "weights.from=torch"}), 0)
      << message_;
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", of_ddp, "--set", "weights.from=torch"}), 3);
  EXPECT_PRED2(contains, message_, "every name begins with \"module.\", as DistributedDataParallel");
  EXPECT_FALSE(contains(message_, "use --set weights.from=torch"));
  EXPECT_EQ(run({"weights", "convert", path("module.weights"), path("own"), "--from", "hf-bert"}), 3);
  EXPECT_PRED2(contains, message_, "every name begins with \"module.\"");
}

TEST_F(WeightsCommand, ARunIsNotRemindedOfWhatItHas) {
  const std::string timm = test::source_dir() + "/tests/golden/timm_swin.safetensors";
  std::filesystem::copy_file(timm, path("model.safetensors"));
  put("config.json", R"({"architecture": "swin_tiny_patch4_window7_224",
      "pretrained_cfg": {"input_size": [1, 8, 8], "mean": [0.5], "std": [0.25]}})");
  put("run.json",
      R"({"device": "cpu", "model": {"type": "swin", "depths": [2, 2], "heads": [1, 2], "width": 4, "patch": 2,
      "window": 2, "mlp_ratio": 2}, "data": {"type": "digits"}, "optimizer": {"type": "sgd", "lr": 0.001},
      "train": {"batch_size": 4, "steps": 1}, "weights": {"path": ")" +
          path("model.safetensors") + R"(", "from": "timm-swin", "reinitialize": ["head"]}})");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", R"(data.normalize={"mean": [0.5], "std": [0.3]})"}),
            0)
      << message_;
  EXPECT_PRED2(contains, message_, "images were normalised by the mean [0.5] and std [0.25]");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", R"(data.normalize={"mean": [0.5], "std": [0.25]})"}),
            0)
      << message_;
  EXPECT_FALSE(contains(message_, "images were normalised"));
}

TEST_F(WeightsCommand, ListsAllThatDoesNotFit) {
  put_bert(false);
  EXPECT_EQ(run({"weights", "convert", path("bert.safetensors"), path("own"), "--from", "hf-gpt2"}), 3);
  EXPECT_PRED2(contains, message_, "missing wte.weight");
  EXPECT_PRED2(contains, message_, "missing ln_f.bias");
  EXPECT_PRED2(contains, message_, "unexpected bert.embeddings.LayerNorm.bias [8]");
  EXPECT_FALSE(file_exists(path("own")));
  EXPECT_EQ(run({"weights", "convert", path("bert.safetensors"), path("own"), "--from", "hf-brt"}), 2);
  EXPECT_PRED2(contains, message_, "hf-bert");
  EXPECT_EQ(run({"weights", "convert", path("bert.safetensors"), path("own"), "--leave-out", "wte"}), 2);
}

TEST_F(WeightsCommand, WhatIsReadIsNotOverwritten) {
  namespace fs = std::filesystem;
  put_bert(false);
  const std::string bert = path("bert.safetensors"), before = read_text(bert);
  fs::create_symlink("bert.safetensors", path("soft"));
  fs::create_hard_link(bert, path("hard"));
  fs::create_directory_symlink(folder_.path(), path("folder"));
  for (const std::string& out : {bert, path("soft"), path("hard"), path("folder/bert.safetensors"), path("./soft")}) {
    EXPECT_EQ(run({"weights", "convert", bert, out, "--from", "hf-bert"}), 2) << out;
    EXPECT_PRED2(contains, message_, "which is read; give the result another name");
  }
  EXPECT_EQ(run({"weights", "convert", path("soft"), bert, "--from", "hf-bert"}), 2);
  EXPECT_EQ(read_text(bert), before);
  // Nor any part behind an index, given by its folder or itself, nor the configuration.
  put_bert(true);
  put("config.json", R"({"model_type": "bert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16})");
  for (const std::string& in : {folder_.path().string(), path("model.safetensors.index.json")})
    for (const char* out : {"part0.safetensors", "part1.safetensors", "model.safetensors.index.json", "config.json"}) {
      const std::string kept = read_text(path(out));
      EXPECT_EQ(run({"weights", "convert", in, path(out), "--from", "hf-bert"}), 2) << in << " " << out;
      EXPECT_EQ(read_text(path(out)), kept);
    }
  EXPECT_EQ(run({"weights", "convert", folder_.path().string(), path("own"), "--from", "hf-bert"}), 0) << message_;
}

TEST_F(WeightsCommand, ARunMustBeTheNetworkOfTheWeights) {
  put_bert(false);
  const std::string bert = path("bert.safetensors");
  ASSERT_EQ(run({"weights", "convert", bert, path("unknown"), "--from", "hf-bert"}), 0) << message_;
  EXPECT_PRED2(contains, message_,
               "warning: there is no config.json beside " + bert + "; assumed: {\"type\":\"bert\",");
  const std::string started = R"({"path": ")" + bert + R"(", "from": "hf-bert"})";
  EXPECT_EQ(run({"train", config(started), "--dry-run"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "warning: there is no config.json beside");
  put("config.json", R"({"model_type": "bert", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 4, "intermediate_size": 32, "max_position_embeddings": 16, "layer_norm_eps": 1e-5})");
  ASSERT_EQ(run({"weights", "convert", bert, path("own"), "--from", "hf-bert"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "the model: {\"type\":\"bert\"");
  // From the original, whose eps is taken where the run says none, and from what was converted: the same shapes,
  // another number of heads and another eps.
  for (const std::string& weights : {started, R"({"path": ")" + path("own") + "\"}"}) {
    EXPECT_EQ(run({"train", config(weights), "--dry-run"}), 2);
    EXPECT_PRED2(contains, message_, "/model/heads: 2, but the weights of");
    EXPECT_PRED2(contains, message_, "use --set model.heads=4");
    EXPECT_EQ(contains(message_, "use --set model.norm_eps=1e-05"), weights != started);
    EXPECT_EQ(run({"train", config(weights), "--dry-run", "--set", "model.heads=4", "--set", "model.norm_eps=1e-5"}), 0)
        << message_;
  }
  // The way back forgets what only Hearth notes.
  ASSERT_EQ(run({"weights", "convert", path("own"), path("back"), "--to", "hf-bert"}), 0) << message_;
  EXPECT_EQ(read_text(path("back")), read_text(bert));
  EXPECT_EQ(run({"weights", "convert", bert, path("again"), "--from", "hf-bert", "--config", path("absent.json")}), 3);
  EXPECT_FALSE(file_exists(path("again")));
}

TEST_F(WeightsCommand, ACheckpointTellsItsNetwork) {
  put_bert(false);
  const std::string run_json = config("{}");
  ASSERT_EQ(run({"train", run_json, "--out", path("out")}), 0) << message_;
  const std::string set = path("out/checkpoints/latest"), weights = "weights.path=" + set;
  // Transformers has to compute the same; RoBERTa's positions begin elsewhere.
  ASSERT_EQ(run({"weights", "convert", set, path("theirs"), "--to", "hf-bert"}), 0) << message_;
  EXPECT_PRED2(contains, message_, R"(config.json for transformers has to have {"model_type":"bert",)");
  EXPECT_PRED2(contains, message_, R"("num_attention_heads":2,"hidden_act":"gelu","layer_norm_eps":1e-12})");
  EXPECT_EQ(run({"weights", "convert", set, path("wrong"), "--to", "hf-roberta"}), 3);
  EXPECT_PRED2(contains, message_, "position_offset 0, but RoBERTa's positions begin");
  EXPECT_EQ(run({"train", run_json, "--dry-run", "--set", weights}), 0) << message_;
  EXPECT_EQ(run({"train", run_json, "--dry-run", "--set", weights, "--set", "model.heads=4"}), 2);
  EXPECT_PRED2(contains, message_, "/model/heads: 4, but the weights of");
}

TEST_F(WeightsCommand, AnotherTokenizerThanThatOfTheWeightsIsSaidSo) {
  put_bert(false);
  const std::string run_json = config(R"({"path": ")" + path("bert.safetensors") + R"(", "from": "hf-bert"})");
  ASSERT_EQ(run({"train", run_json, "--out", path("out")}), 0) << message_;
  EXPECT_FALSE(contains(message_, "tokenizer is not"));
  const std::string own = read_text(path("out/checkpoints/latest/tokenizer.json"));
  put("tokenizer.json", own);
  EXPECT_EQ(run({"train", run_json, "--dry-run"}), 0) << message_;
  EXPECT_FALSE(contains(message_, "tokenizer is not"));
  // Two characters change places.
  std::string other = own;
  const std::size_t b = other.find("\"b\""), c = other.find("\"c\"");
  ASSERT_TRUE(b != std::string::npos && c != std::string::npos);
  std::swap(other[b + 1], other[c + 1]);
  put("tokenizer.json", other);
  EXPECT_EQ(run({"train", run_json, "--dry-run"}), 0) << message_;
  EXPECT_PRED2(contains, message_, "warning: the run's tokenizer is not " + path("tokenizer.json"));
  EXPECT_PRED2(contains, message_, "is \"b\" and was \"c\"");
}

TEST_F(WeightsCommand, ARunStartsFromThem) {
  put_bert(false);
  train::Session session(
      train::load_config(config(R"({"path": ")" + path("bert.safetensors") + R"(", "from": "hf-bert"})"), {}));
  const std::string drawn = session.model_state.hash();
  EXPECT_TRUE(session.load_start_weights().left_out.empty());
  models::Bert twin({.vocabulary = 30, .context = 16, .layers = 1, .heads = 2, .width = 8});
  nn::initialize(twin, 7);
  const auto expected = twin.parameters();
  const auto found = session.parameters->masters();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i].tensor->to_doubles(), expected[i].tensor->to_doubles()) << found[i].name;
  EXPECT_NE(session.model_state.hash(), drawn);
  const std::string start = session.model_state.hash();
  session.use_averaged_weights();
  EXPECT_EQ(session.model_state.hash(), start) << "the average begins there too";
  // By the command; a resumed run does without the file.
  const std::string run_json = path("run.json");
  ASSERT_EQ(run({"train", run_json, "--out", path("out")}), 0) << message_;
  EXPECT_PRED2(contains, message_, "weights   " + path("bert.safetensors"));
  std::filesystem::remove(path("bert.safetensors"));
  ASSERT_EQ(run({"train", run_json, "--out", path("out"), "--set", "train.steps=2"}), 0) << message_;
  EXPECT_EQ(run({"train", run_json, "--out", path("other")}), 3);
}

/// A run that keeps an average, of weights and of the statistics of batch norms, is trained into "out".
TEST_F(WeightsCommand, ClassesOfAClassifierHaveItsOrder) {
  const std::string golden = test::source_dir() + "/tests/golden/transformers/bert_classifier/";
  std::filesystem::copy_file(golden + "model.safetensors", path("model.safetensors"));
  const auto name_classes = [&](const std::string& names) {
    put("config.json", to_text(read_json(golden + "config.json").set("id2label", parse_json(names, ""))));
  };
  put("lines.tsv", "sad\ta\nglad\tb\nangry\tab\nsad\tbb\n");
  put("numbers.tsv", "0\ta\n1\tb\n2\tab\n");
  put("run.json", R"({"device": "cpu", "model": {"type": "bert", "head": "classification", "layers": 2, "heads": 2,
      "width": 8, "hidden": 12, "context": 8, "vocabulary": 17, "activation": "gelu_tanh"},
      "data": {"type": "labelled_text", "length": 8, "tokenizer": {"type": "characters"}, "train": [")" +
                      path("lines.tsv") + R"("]}, "optimizer": {"type": "sgd", "lr": 0.01},
      "train": {"batch_size": 2, "steps": 1}, "weights": {"path": ")" +
                      path("model.safetensors") + R"(", "from": "hf-bert"}})");
  const auto dry_run = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words{"train", path("run.json"), "--dry-run"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run(words);
  };
  name_classes(R"({"0": "SAD", "1": "glad", "2": "angry"})");
  EXPECT_EQ(dry_run({}), 2);
  EXPECT_PRED2(contains, message_,
               R"(/data/classes: label 0 is "angry" of 3 classes, and "SAD" of 3 in the classifier)");
  EXPECT_PRED2(contains, message_, R"(use --set 'data.classes=["sad","glad","angry"]')");
  EXPECT_PRED2(contains, message_, R"(--set 'weights.reinitialize=["classifier"]')");
  EXPECT_EQ(dry_run({R"(data.classes=["sad","glad","angry"])"}), 0) << message_;
  EXPECT_EQ(dry_run({R"(weights.reinitialize=["classifier"])"}), 0) << message_;
  // From Hearth's own file too.
  ASSERT_EQ(run({"weights", "convert", path("model.safetensors"), path("own"), "--from", "hf-bert"}), 0) << message_;
  EXPECT_EQ(dry_run({"weights.from=hearth", "weights.path=" + path("own")}), 2);
  EXPECT_PRED2(contains, message_, R"(use --set 'data.classes=["sad","glad","angry"]')");
  // Of classes that the data lack; of others, of none that are named, and of numbers.
  put("lines.tsv", "sad\ta\nglad\tb\n");
  EXPECT_EQ(dry_run({}), 2);
  EXPECT_PRED2(contains, message_, R"(use --set 'data.classes=["sad","glad","angry"]')");
  put("lines.tsv", "sad\ta\nglad\tb\nfurious\tb\n");
  EXPECT_EQ(dry_run({}), 2);
  EXPECT_PRED2(contains, message_, "where the data only call the same classes otherwise");
  name_classes(R"({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})");
  EXPECT_EQ(dry_run({}), 0) << message_;
  name_classes(R"({"0": "0", "1": "1", "2": "2"})");
  EXPECT_EQ(dry_run({}), 0) << message_;
  name_classes(R"({"0": "sad", "1": "glad", "2": "angry"})");
  EXPECT_EQ(dry_run({"data.train=[\"" + path("numbers.tsv") + "\"]"}), 0) << message_;
  EXPECT_PRED2(contains, message_, R"(is of the classes ["sad","glad","angry"], and those of the data are numbers)");
}

TEST_F(WeightsCommand, AFaultEndsADryRun) {
  put_bert(false);
  put("lines.tsv", "x\ta\ny\tb\nx\tab\ny\tbb\n");
  const std::string lines = R"(data={"type": "labelled_text", "length": 16, "train": [")" + path("lines.tsv") + "\"]}";
  const auto dry_run = [&](const std::string& weights) {
    return run({"train", config(weights), "--dry-run", "--set", lines, "--set", "model.head=classification"});
  };
  const std::string given =
      R"("path": ")" + path("bert.safetensors") + R"(", "from": "hf-bert", "reinitialize": ["classifier", "pooler"])";
  EXPECT_EQ(dry_run("{" + given + "}"), 3);
  EXPECT_PRED2(contains, message_, "unexpected cls.predictions.bias [30]");
  EXPECT_EQ(dry_run("{" + given + R"(, "unused": ["cls."]})"), 0) << message_;
  EXPECT_PRED2(contains, message_, "not loaded: cls.predictions.bias, unused");
  EXPECT_EQ(run({"train", config(R"({"reinitialize": ["cls"]})"), "--dry-run"}), 2);
}

TEST_F(WeightsCommand, ARunNamesWhatItDoesNotUseAsTheFileDoes) {
  const std::string golden = test::source_dir() + "/tests/golden/transformers/roberta_classifier/";
  std::filesystem::copy_file(golden + "config.json", path("config.json"));
  const models::WeightSet theirs = models::read_weights(golden + "model.safetensors");
  std::vector<SafetensorsEntry> entries;
  for (const models::Weight& weight : theirs.weights)
    entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                       std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
  const std::vector<float> zeros(64);
  entries.push_back({"roberta.pooler.dense.weight", DType::f32, {8, 8}, std::as_bytes(std::span(zeros))});
  write_plain_safetensors(path("model.safetensors"), entries, {});
  const models::ImportedWeights known = models::import_weights(golden, {.from = models::WeightFormat::hf_roberta});
  put("lines.tsv", "x\ta\ny\tb\nz\tab\n");
  Json model = known.model;
  model.set("head", "classification");
  put("run.json", R"({"device": "cpu", "model": )" + to_text(model) + R"(, "data": {"type": "labelled_text",
      "length": 8, "tokenizer": {"type": "characters"}, "train": [")" +
                      path("lines.tsv") + R"("]}, "optimizer": {"type": "sgd", "lr": 0.01},
      "train": {"batch_size": 2, "steps": 1}, "weights": {"path": ")" +
                      path("model.safetensors") + R"(", "from": "hf-roberta"}})");
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run"}), 3);
  EXPECT_PRED2(contains, message_, "unexpected pooler.dense.weight [8, 8]");
  for (const char* name : {"pooler", "roberta.pooler"}) {
    EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", join_text("weights.unused=[\"", name, "\"]")}), 0)
        << message_;
    EXPECT_PRED2(contains, message_, "not loaded: roberta.pooler.dense.weight, unused");
  }
  EXPECT_EQ(run({"train", path("run.json"), "--dry-run", "--set", R"(weights.unused=["poler"])"}), 3);
}

}  // namespace
}  // namespace hearth::weights_command_test
