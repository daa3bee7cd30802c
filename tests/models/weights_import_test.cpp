// SPDX-License-Identifier: Apache-2.0
// Weights with the configuration beside them: models that transformers saved compute what it computes, and what they
// could not is refused by name.
#include "models/weights/weights_import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "autograd/grad_mode.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "models/nn/init.h"
#include "models/registry.h"
#include "models/swin.h"
#include "tests/models/weights_files.h"
#include "tests/support/error_message.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace hearth::weights_import_test {
namespace {

using models::ImportedWeights;
using models::WeightFormat;
using test::contains;

using test::message_of;

/// A model of tests/golden/make_transformers.py.
struct Golden {
  const char* name;
  WeightFormat format;
  const char* head;  ///< null for GPT
  std::int64_t pad = -1;
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) { return out << golden.name; }

std::string folder_of(const Golden& golden) {
  return join_text(test::source_dir(), "/tests/golden/transformers/", golden.name);
}

class Transformers : public testing::TestWithParam<Golden> {};

TEST_P(Transformers, ComputesWhatTransformersComputes) {
  const Golden& golden = GetParam();
  const ImportedWeights imported = models::import_weights(folder_of(golden), {.from = golden.format});
  ASSERT_EQ(imported.report.faults(""), "");
  EXPECT_TRUE(imported.notes.empty());
  Json model = imported.model;
  if (golden.head) model.set("head", golden.head).set("normalize", false);
  const auto network = models::make(model, {.classes = 3, .pad = golden.pad});
  network->to(DType::f64);
  network->eval();
  const bool embeds = golden.head && std::string(golden.head) == "embedding";
  const std::vector<std::string> unused = embeds ? std::vector<std::string>{"pooler"} : std::vector<std::string>{};
  ASSERT_EQ(models::load_weights(network->parameters(), imported.weights, {.unused = unused}).faults(""), "");

  const Json expected = read_json(folder_of(golden) + "/expected.json");
  std::vector<std::int32_t> ids;
  for (const Json& row : expected.at("ids").items())
    for (const Json& id : row.items()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  const NoGrad no_grad;
  const Tensor result = (*network)(Tensor::of<std::int32_t>({3, 6}, ids));
  const std::vector<double> found = result.to_doubles();
  std::size_t next = 0;
  const std::size_t width = found.size() / (result.rank() == 3 ? 18 : 3);
  for (std::size_t row = 0; row < found.size() / width; ++row) {
    if (result.rank() == 3 && golden.pad >= 0 && ids[row] == golden.pad) continue;
    for (std::size_t i = 0; i < width; ++i)
      ASSERT_NEAR(found[row * width + i], expected.at("result").at(next++).as_number(), 1e-11) << "row " << row;
  }
  EXPECT_EQ(next, expected.at("result").size());
}

TEST_P(Transformers, GoesBackByteForByte) {
  const Golden& golden = GetParam();
  const test::TempDir folder;
  models::NameReport report;
  const ImportedWeights imported = models::import_weights(folder_of(golden), {.from = golden.format});
  const models::WeightSet back = models::from_hearth(imported.weights, golden.format, report);
  ASSERT_EQ(report.faults(""), "");
  std::vector<SafetensorsEntry> entries;
  for (const models::Weight& weight : back.weights)
    entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                       std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
  write_plain_safetensors(folder.path() / "back", entries, back.metadata);
  EXPECT_EQ(read_file(folder.path() / "back"), read_file(folder_of(golden) + "/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Weights, Transformers,
                         testing::Values(Golden{"bert_relu", WeightFormat::hf_bert, "masked_lm", 0},
                                         Golden{"bert_classifier", WeightFormat::hf_bert, "classification", 0},
                                         Golden{"roberta", WeightFormat::hf_roberta, "masked_lm", 1},
                                         Golden{"roberta_classifier", WeightFormat::hf_roberta, "classification", 3},
                                         Golden{"roberta_encoder", WeightFormat::hf_roberta, "embedding", 1},
                                         Golden{"distilbert", WeightFormat::hf_distilbert, "masked_lm", 0},
                                         Golden{"distilbert_classifier", WeightFormat::hf_distilbert, "classification",
                                                0},
                                         Golden{"gpt2_scaled", WeightFormat::hf_gpt2, nullptr},
                                         Golden{"gpt2_unscaled", WeightFormat::hf_gpt2, nullptr},
                                         Golden{"gpt2_untied", WeightFormat::hf_gpt2, nullptr}),
                         [](const auto& instance) { return std::string(instance.param.name); });

class WeightsImport : public test::WeightsFiles {
 protected:
  /// A copy of a golden model, whose configuration may be changed.
  std::string copy(const char* name) const {
    const std::filesystem::path to = folder_.path() / "copy";
    std::filesystem::remove_all(to);
    std::filesystem::copy(folder_of({name, WeightFormat::hearth, nullptr}), to);
    return to.string();
  }
  /// The message that the model's weights give with the key set to another value; "" where they are taken.
  std::string with(const char* name, WeightFormat format, const char* key, const Json& value) const {
    const std::string path = copy(name);
    Json config = read_json(path + "/config.json");
    config.set(key, value);
    write_file_synced(path + "/config.json", to_text(config));
    return message_of<FileError>([&] {
      const ImportedWeights imported = models::import_weights(path, {.from = format});
      if (!imported.report.fits()) throw FileError(imported.report.faults(""));
    });
  }
};

TEST_F(WeightsImport, EveryKeyThatChangesTheResultIsMappedOrRefused) {
  const Json one_head = parse_json(R"({"0": [1]})", "");
  struct Case {
    const char* network;
    WeightFormat format;
    const char* key;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"bert_relu", WeightFormat::hf_bert, "hidden_act", "quick_gelu", "hidden_act is \"quick_gelu\", an activation"},
      {"bert_relu", WeightFormat::hf_bert, "hidden_act", 3, "hidden_act is"},
      {"bert_relu", WeightFormat::hf_bert, "layer_norm_eps", -1.0, "layer_norm_eps is -1.0; a number above 0"},
      {"bert_relu", WeightFormat::hf_bert, "position_embedding_type", "relative_key",
       "relative positions are not supported"},
      {"bert_relu", WeightFormat::hf_bert, "is_decoder", true, "is_decoder is true"},
      {"bert_relu", WeightFormat::hf_bert, "add_cross_attention", true, "cross-attention is not supported"},
      {"bert_relu", WeightFormat::hf_bert, "is_encoder_decoder", true, "is_encoder_decoder is true"},
      {"bert_relu", WeightFormat::hf_bert, "pruned_heads", one_head, "pruned_heads is"},
      {"bert_relu", WeightFormat::hf_bert, "quantization_config", Json::object(), "quantized weights are not read"},
      {"bert_relu", WeightFormat::hf_bert, "auto_map", Json::object(), "Python code"},
      {"bert_relu", WeightFormat::hf_bert, "num_attention_heads", 3, "a width of 8 does not divide into 3 heads"},
      {"bert_relu", WeightFormat::hf_bert, "num_attention_heads", 0, "does not divide into 0 heads"},
      {"bert_relu", WeightFormat::hf_bert, "num_hidden_layers", 3, "there are 2 layers, but by"},
      {"bert_relu", WeightFormat::hf_bert, "vocab_size", 18, "is for a vocabulary of 17, but by"},
      {"bert_relu", WeightFormat::hf_bert, "intermediate_size", 32, "is for a hidden of 12"},
      {"bert_relu", WeightFormat::hf_bert, "a_new_key", 1, "a_new_key is a key that is not known"},
      {"bert_relu", WeightFormat::hf_bert, "model_type", "roberta", "--from hf-roberta"},
      {"bert_relu", WeightFormat::hf_bert, "model_type", "deberta", "a model that is not supported"},
      {"bert_relu", WeightFormat::hf_bert, "model_type", nullptr, "has no \"model_type\""},
      {"roberta", WeightFormat::hf_bert, "hidden_act", "gelu", "--from hf-roberta"},
      {"roberta_encoder", WeightFormat::hf_bert, "hidden_act", "gelu", "--from hf-roberta"},
      {"roberta", WeightFormat::hf_roberta, "max_position_embeddings", 16, "is for a context of 10, but by"},
      {"roberta", WeightFormat::hf_roberta, "pad_token_id", 11, "leaves no position"},
      {"roberta", WeightFormat::hf_roberta, "hidden_act", "relu", "RoBERTa's head over the vocabulary has a GELU"},
      {"distilbert", WeightFormat::hf_distilbert, "hidden_size", 16, "another name of it"},
      {"distilbert", WeightFormat::hf_distilbert, "n_layers", 1, "there are 2 layers"},
      {"gpt2_scaled", WeightFormat::hf_gpt2, "add_cross_attention", true, "cross-attention is not supported"},
      {"gpt2_scaled", WeightFormat::hf_gpt2, "scale_attn_weights", "yes", "true or false was expected"},
      {"gpt2_scaled", WeightFormat::hf_gpt2, "n_positions", 16, "is for a context of 8"},
      {"gpt2_untied", WeightFormat::hf_gpt2, "tie_word_embeddings", true, "transformers would not use it"},
  };
  for (const Case& each : cases)
    EXPECT_PRED2(contains, with(each.network, each.format, each.key, each.value), each.message)
        << each.network << " " << each.key;
  // What changes nothing is let be.
  for (const char* key : {"hidden_dropout_prob", "initializer_range", "torch_dtype", "use_cache", "id2label", "top_k"})
    EXPECT_EQ(with("bert_relu", WeightFormat::hf_bert, key, 1), "") << key;
}

TEST_F(WeightsImport, AClassifierOfTokensIsNotOneOfSequences) {
  models::NameReport report;
  models::WeightSet theirs = models::read_weights(folder_of({"bert_classifier", WeightFormat::hf_bert, nullptr}));
  std::erase_if(theirs.weights, [](const models::Weight& w) { return w.name.starts_with("bert.pooler."); });
  (void)models::to_hearth(theirs, WeightFormat::hf_bert, report);
  EXPECT_PRED2(contains, report.faults(""), "is not BERT's classifier of sequences");
  // Older ones have a pooler too, which nothing uses.
  EXPECT_PRED2(contains,
               with("bert_classifier", WeightFormat::hf_bert, "architectures",
                    Json::array().push_back("BertForTokenClassification")),
               "scores each token, not the sequence");
}

TEST_F(WeightsImport, ClassesOfAClassifierAreKept) {
  const auto classes_of = [&](const char* network, WeightFormat format, const std::string& key, const Json& value) {
    const std::string path = copy(network);
    Json config = read_json(path + "/config.json");
    put("copy/config.json", to_text(config.set(key, value)));
    return models::import_weights(path, {.from = format});
  };
  using Names = std::vector<std::string>;
  const Json names = parse_json(R"({"0": "sad", "2": "angry", "1": "glad"})", "");
  for (const auto& [network, format] : {std::pair("bert_classifier", WeightFormat::hf_bert),
                                        {"roberta_classifier", WeightFormat::hf_roberta},
                                        {"distilbert_classifier", WeightFormat::hf_distilbert}}) {
    const ImportedWeights found = classes_of(network, format, "id2label", names);
    EXPECT_EQ(found.classes, (Names{"sad", "glad", "angry"}));
    EXPECT_EQ(found.class_head, "classifier.weight");
    // Hearth's own file has them too, others have not.
    models::NameReport report;
    EXPECT_EQ(found.weights.metadata.at("hearth.classes"), R"(["sad","glad","angry"])");
    EXPECT_FALSE(models::from_hearth(found.weights, format, report).metadata.contains("hearth.classes"));
    EXPECT_PRED2(contains, models::configuration_note(found, "W", format),
                 R"("id2label":{"0":"sad","1":"glad","2":"angry"})");
  }
  // Names that say nothing, and tables that do not name each row.
  for (const char* text : {R"({"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})", R"({"0": "a", "1": "b"})",
                           R"({"0": "a", "1": "b", "3": "c"})", R"([])", "null"})
    EXPECT_EQ(classes_of("bert_classifier", WeightFormat::hf_bert, "id2label", parse_json(text, "")).classes, Names{})
        << text;
  EXPECT_EQ(classes_of("bert_relu", WeightFormat::hf_bert, "id2label", names).classes, Names{}) << "no classifier";
  // Of timm.
  const std::string path =
      put("swin.safetensors", read_text(test::source_dir() + "/tests/golden/timm_swin.safetensors"));
  const std::int64_t rows = models::import_weights(path, {.from = WeightFormat::timm_swin}).report.fits()
                                ? SafetensorsFile(path).at("head.fc.weight").shape[0]
                                : 0;
  Json list = Json::array();
  for (std::int64_t i = 0; i < rows; ++i) list.push_back(join_text("class ", i));
  put("config.json",
      to_text(Json::object().set("architecture", "swin_tiny_patch4_window7_224").set("label_names", list)));
  const ImportedWeights found = models::import_weights(path, {.from = WeightFormat::timm_swin});
  EXPECT_EQ(found.classes.size(), static_cast<std::size_t>(rows));
  EXPECT_EQ(found.class_head, "head.weight");
}

TEST_F(WeightsImport, WhatNothingNeedsMayBeThere) {
  using Names = std::vector<std::string>;
  // A golden model with more tensors in it, or under other names.
  const auto imported = [&](const char* network, WeightFormat format, const Names& more, const models::LoadRules& rules,
                            const char* architecture = nullptr, const Names& absent = {}) {
    const std::string path = copy(network);
    models::WeightSet theirs = models::read_weights(path);
    std::erase_if(theirs.weights, [&](const models::Weight& weight) {
      return std::any_of(absent.begin(), absent.end(),
                         [&](const std::string& name) { return weight.name.starts_with(name); });
    });
    for (const std::string& name : more) theirs.weights.push_back({name, Tensor::full({2, 8}, 1)});
    std::vector<SafetensorsEntry> entries;
    for (const models::Weight& weight : theirs.weights)
      entries.push_back({weight.name, weight.value.dtype(), weight.value.shape(),
                         std::span<const std::byte>(weight.value.bytes(), weight.value.byte_size())});
    std::filesystem::remove(path + "/model.safetensors");
    write_plain_safetensors(path + "/model.safetensors", entries, {});
    if (architecture != nullptr)
      put("copy/config.json",
          to_text(read_json(path + "/config.json").set("architectures", Json::array().push_back(architecture))));
    return models::import_weights(path, {.from = format, .rules = rules});
  };
  // Heads that there are none of here.
  EXPECT_EQ(imported("gpt2_scaled", WeightFormat::hf_gpt2, {"score.weight"}, {}).report.faults(""),
            "unexpected score.weight [2, 8]");
  for (const models::LoadRules& rules : {models::LoadRules{.unused = {"score"}}, {.reinitialize = {"score"}}}) {
    const ImportedWeights found = imported("gpt2_scaled", WeightFormat::hf_gpt2, {"score.weight"}, rules);
    EXPECT_EQ(found.report.faults(""), "");
    EXPECT_EQ(found.unused, Names{});
    ASSERT_FALSE(found.report.left_out.empty());
    EXPECT_EQ(found.report.left_out.back(), "score.weight, unused");
  }
  EXPECT_TRUE(imported("bert_relu", WeightFormat::hf_bert, {"qa_outputs.weight"}, {.unused = {"qa_outputs", "cls."}})
                  .report.fits());
  EXPECT_FALSE(imported("bert_relu", WeightFormat::hf_bert, {"qa_outputs.weight"}, {.unused = {"cls."}}).report.fits());
  // A classifier of tokens, with the pooler of older files and without.
  for (const Names& absent : {Names{}, Names{"bert.pooler."}})
    for (const models::LoadRules& rules :
         {models::LoadRules{.unused = {"classifier"}}, {.reinitialize = {"classifier", "pooler"}}, {}})
      EXPECT_EQ(imported("bert_classifier", WeightFormat::hf_bert, {}, rules, "BertForTokenClassification", absent)
                    .report.fits(),
                !rules.unused.empty() || !rules.reinitialize.empty());
  // A pooler that RoBERTa's classifier does not use, by its name with the prefix and without. The classifier's own
  // layer is the pooler here, and stays.
  for (const char* name : {"pooler", "roberta.pooler", "roberta.pooler.dense"}) {
    const ImportedWeights found =
        imported("roberta_classifier", WeightFormat::hf_roberta,
                 {"roberta.pooler.dense.weight", "roberta.pooler.dense.bias"}, {.unused = {name}});
    EXPECT_EQ(found.report.faults(""), "");
    EXPECT_EQ(found.unused, Names{});
    EXPECT_TRUE(std::any_of(found.weights.weights.begin(), found.weights.weights.end(),
                            [](const models::Weight& weight) { return weight.name == "pooler.dense.weight"; }));
  }
  // Names of the file become those of Hearth.
  EXPECT_EQ(imported("roberta", WeightFormat::hf_roberta, {}, {.unused = {"cls."}}).unused, Names{"cls."});
  const Names head = imported("roberta", WeightFormat::hf_roberta, {}, {.unused = {"lm_head"}}).unused;
  EXPECT_EQ(head.size(), 5U);
  for (const std::string& name : head) EXPECT_TRUE(name.starts_with("cls.predictions.")) << name;
  EXPECT_EQ(imported("bert_classifier", WeightFormat::hf_bert, {}, {.unused = {"bert.pooler"}}).unused,
            Names{"pooler"});
  EXPECT_EQ(imported("bert_classifier", WeightFormat::hf_bert, {}, {.unused = {"bert.encoder.layer.1"}}).unused,
            Names{"encoder.layer.1"});
  EXPECT_EQ(imported("bert_classifier", WeightFormat::hf_bert, {}, {.unused = {"poler"}}).unused, Names{"poler"})
      << "load_weights() refuses it";
  // What is left out, too.
  const std::string path = copy("bert_classifier");
  for (const char* name : {"pooler", "bert.pooler"})
    EXPECT_PRED2(contains,
                 models::import_weights(path, {.from = WeightFormat::hf_bert, .leave_out = {name}}).report.faults(""),
                 "which without pooler.dense.weight is not BERT's classifier");
}

TEST_F(WeightsImport, AHeadOfItsOwnMayEqualTheTokenTable) {
  const std::string path = copy("gpt2_untied");
  const auto import = [&](const Json& tied) {
    put("copy/config.json", to_text(read_json(path + "/config.json").set("tie_word_embeddings", tied)));
    return models::import_weights(path, {.from = WeightFormat::hf_gpt2});
  };
  models::WeightSet theirs = models::read_weights(path);
  std::vector<SafetensorsEntry> entries;
  const auto table = std::find_if(theirs.weights.begin(), theirs.weights.end(),
                                  [](const models::Weight& weight) { return weight.name == "transformer.wte.weight"; });
  ASSERT_NE(table, theirs.weights.end());
  for (const models::Weight& weight : theirs.weights) {
    const Tensor& value = weight.name == "lm_head.weight" ? table->value : weight.value;
    entries.push_back(
        {weight.name, value.dtype(), value.shape(), std::span<const std::byte>(value.bytes(), value.byte_size())});
  }
  std::filesystem::remove(path + "/model.safetensors");
  write_plain_safetensors(path + "/model.safetensors", entries, {});
  const auto has_head = [](const models::WeightSet& set) {
    return std::any_of(set.weights.begin(), set.weights.end(),
                       [](const models::Weight& weight) { return weight.name == "lm_head.weight"; });
  };
  const ImportedWeights untied = import(false), tied = import(true);
  ASSERT_EQ(untied.report.faults("") + tied.report.faults(""), "");
  EXPECT_EQ(untied.model.at("tie_head"), Json(false));
  EXPECT_TRUE(untied.report.left_out.empty());
  EXPECT_TRUE(has_head(untied.weights));
  EXPECT_EQ(tied.model.at("tie_head"), Json(true));
  EXPECT_FALSE(has_head(tied.weights));
  models::NameReport report;
  EXPECT_TRUE(has_head(models::from_hearth(untied.weights, WeightFormat::hf_gpt2, report)));
  EXPECT_TRUE(report.fits());
}

TEST_F(WeightsImport, WithoutAConfigurationItIsSaidWhatIsAssumed) {
  for (const auto& [name, format, text] :
       {std::tuple("bert_relu", WeightFormat::hf_bert,
                   R"({"type":"bert","activation":"gelu","norm_eps":1e-12,"position_offset":0,)"),
        {"roberta", WeightFormat::hf_roberta, R"({"type":"bert","activation":"gelu","position_offset":2,)"},
        {"distilbert", WeightFormat::hf_distilbert, R"("pool_activation":"relu"})"},
        {"gpt2_scaled", WeightFormat::hf_gpt2, R"({"type":"gpt","activation":"gelu_tanh","norm_eps":1e-05,)"}}) {
    const std::string path = copy(name);
    const std::string elsewhere = put("elsewhere.json", read_text(path + "/config.json"));
    std::filesystem::remove(path + "/config.json");
    const ImportedWeights imported = models::import_weights(path, {.from = format});
    EXPECT_EQ(imported.model.find("heads"), nullptr);
    ASSERT_EQ(imported.notes.size(), 1U);
    EXPECT_PRED2(contains, imported.notes[0], text);
    EXPECT_PRED2(contains, imported.notes[0], "what a run says of heads");
    // A configuration may be named, also for a file alone.
    const ImportedWeights named =
        models::import_weights(path + "/model.safetensors", {.from = format, .config = elsewhere});
    EXPECT_TRUE(named.notes.empty());
    EXPECT_GT(named.model.at("heads").as_integer(), 1);
    EXPECT_THROW((void)models::import_weights(path, {.from = format, .config = path + "/none.json"}), FileError);
  }
  // RoBERTa's encoder has BERT's names.
  const std::string path = copy("roberta_encoder");
  std::filesystem::remove(path + "/config.json");
  const ImportedWeights imported = models::import_weights(path, {.from = WeightFormat::hf_bert});
  EXPECT_PRED2(contains, imported.report.faults(""), "has one row, as RoBERTa's has");
}

TEST_F(WeightsImport, ANoteOfAnotherProgramIsNotTaken) {
  const std::vector<float> values(4);
  write_plain_safetensors(folder_.path() / "r.safetensors",
                          {{"fc.bias", DType::f32, {4}, std::as_bytes(std::span(values))}},
                          {{models::model_note, R"({"type": "mlp", "activation": "relu"})"}});
  const std::string path = (folder_.path() / "r.safetensors").string();
  EXPECT_EQ(models::import_weights(path, {}).model.at("activation"), Json("relu"));
  const ImportedWeights imported = models::import_weights(path, {.from = WeightFormat::torch});
  EXPECT_TRUE(imported.model.is_null());
  EXPECT_FALSE(imported.weights.metadata.contains(models::model_note));
  write_plain_safetensors(folder_.path() / "r.safetensors",
                          {{"fc.bias", DType::f32, {4}, std::as_bytes(std::span(values))}},
                          {{models::model_note, "{"}});
  EXPECT_THROW((void)models::import_weights(path, {}), FileError);
}

TEST_F(WeightsImport, AConfigurationThatIsNoneIsAFileFault) {
  const std::string path = copy("bert_relu");
  for (const char* text : {"", "{", "[]", "3", "{\"model_type\": \"bert\", \"vocab_size\": \"many\"}",
                           "{\"model_type\": \"bert\", \"vocab_size\": 1e300}", "{\"model_type\": 7}"}) {
    write_file_synced(path + "/config.json", text);
    EXPECT_THROW((void)models::import_weights(path, {.from = WeightFormat::hf_bert}), FileError) << text;
  }
}

TEST_F(WeightsImport, PoolingOfSentenceTransformersIsRead) {
  const std::string path = copy("roberta_encoder");
  const auto modules = [&](const char* pooling, bool normalizes, const char* other = nullptr) {
    std::string list = R"({"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})";
    if (other) list += join_text(R"(, {"path": "2_Dense", "type": ")", other, "\"}");
    if (normalizes) list += R"(, {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})";
    put("copy/modules.json", "[" + list + "]");
    put("copy/1_Pooling/config.json", pooling);
    return models::import_weights(path, {.from = WeightFormat::hf_roberta});
  };
  ImportedWeights found = modules(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})", true);
  EXPECT_EQ(found.model.at("embedding_pool"), Json("mean"));
  EXPECT_EQ(found.model.at("normalize"), Json(true));
  EXPECT_TRUE(found.notes.empty());
  found = modules(R"({"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true})", false);
  EXPECT_EQ(found.model.at("embedding_pool"), Json("first"));
  EXPECT_EQ(found.model.at("normalize"), Json(false));
  EXPECT_EQ(modules(R"({"pooling_mode": "cls"})", true).model.at("embedding_pool"), Json("first"));
  found = modules(R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true})", false);
  EXPECT_EQ(found.model.at("embedding_pool"), Json("max_tokens+mean_tokens"));
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_PRED2(contains, found.notes[0], "\"max_tokens+mean_tokens\" is not supported");
  found = modules(R"({"pooling_mode_mean_tokens": true})", true, "sentence_transformers.models.Dense");
  EXPECT_PRED2(contains, found.notes.at(0), "the module \"sentence_transformers.models.Dense\" is not supported");
  put("copy/sentence_bert_config.json", R"({"max_seq_length": 128, "do_lower_case": true})");
  EXPECT_PRED2(contains, modules(R"({"pooling_mode": "mean"})", true).notes.at(0), "do_lower_case");
  put("copy/modules.json", R"([{"path": "../../etc", "type": "x.Pooling"}])");
  EXPECT_THROW((void)models::import_weights(path, {.from = WeightFormat::hf_roberta}), FileError);
}

TEST(WeightsImportModel, OptionsThatShapesDoNotShowAreCompared) {
  const Json weights = parse_json(R"({"type": "bert", "heads": 12, "norm_eps": 1e-5, "activation": "gelu", "layers": 6,
      "position_offset": 2, "pool_activation": "relu", "embedding_pool": "first", "normalize": false})",
                                  "");
  Json run = Json::object();
  run.set("type", "bert").set("heads", 6).set("norm_eps", 1e-12).set("activation", "relu").set("layers", 3);
  run.set("position_offset", 0).set("pool_activation", "tanh").set("embedding_pool", "mean").set("normalize", true);
  run.set("head", "masked_lm");
  const auto message = [&] { return message_of<ConfigError>([&] { models::require_same_model(run, weights, "W"); }); };
  EXPECT_EQ(message(),
            "/model/heads: 6, but the weights of W are of a model with 12, and compute something else in this one; "
            "use --set model.heads=12\n"
            "/model/activation: \"relu\", but the weights of W are of a model with \"gelu\", and compute something "
            "else in this one; use --set model.activation=\"gelu\"\n"
            "/model/norm_eps: 1e-12, but the weights of W are of a model with 1e-05, and compute something else in "
            "this one; use --set model.norm_eps=1e-05\n"
            "/model/position_offset: 0, but the weights of W are of a model with 2, and compute something else in "
            "this one; use --set model.position_offset=2");
  run.set("heads", 12).set("activation", "gelu").set("norm_eps", 1e-5).set("position_offset", 2);
  EXPECT_EQ(message(), "");
  run.set("head", "classification");
  EXPECT_PRED2(contains, message(), "/model/pool_activation: \"tanh\"");
  run.set("head", "embedding");
  EXPECT_PRED2(contains, message(), "/model/normalize: true");
  EXPECT_PRED2(contains, message(), "/model/embedding_pool: \"mean\"");
  // Another model of the program's own is its own affair.
  run.set("type", "mine");
  EXPECT_EQ(message(), "");
}

}  // namespace
}  // namespace hearth::weights_import_test
