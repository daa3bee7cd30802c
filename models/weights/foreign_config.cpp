// SPDX-License-Identifier: Apache-2.0
#include "models/weights/foreign_config.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

#include "models/weights/weights_import.h"

namespace hearth::models {
namespace {

/// Changes no result in evaluation: rates of dropout, initial values, storage types, tokens and settings of generation,
/// losses, what is returned.
constexpr std::string_view harmless_keys[] = {"_attn_implementation",
                                              "_attn_implementation_autoset",
                                              "_commit_hash",
                                              "_name_or_path",
                                              "_num_labels",
                                              "architectures",
                                              "attention_dropout",
                                              "attention_probs_dropout_prob",
                                              "attn_pdrop",
                                              "bad_words_ids",
                                              "begin_suppress_tokens",
                                              "bos_token_id",
                                              "chunk_size_feed_forward",
                                              "classifier_dropout",
                                              "cls_token_id",
                                              "decoder_start_token_id",
                                              "directionality",
                                              "diversity_penalty",
                                              "do_sample",
                                              "dropout",
                                              "dtype",
                                              "early_stopping",
                                              "embd_pdrop",
                                              "encoder_no_repeat_ngram_size",
                                              "eos_token_id",
                                              "exponential_decay_length_penalty",
                                              "finetuning_task",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "gradient_checkpointing",
                                              "hidden_dropout_prob",
                                              "id2label",
                                              "initializer_factor",
                                              "initializer_range",
                                              "label2id",
                                              "length_penalty",
                                              "mask_token_id",
                                              "max_length",
                                              "min_length",
                                              "model_max_length",
                                              "n_ctx",
                                              "name_or_path",
                                              "no_repeat_ngram_size",
                                              "num_beam_groups",
                                              "num_beams",
                                              "num_labels",
                                              "num_return_sequences",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_past",
                                              "output_scores",
                                              "pad_token_id",
                                              "pooler_fc_size",
                                              "pooler_num_attention_heads",
                                              "pooler_num_fc_layers",
                                              "pooler_size_per_head",
                                              "pooler_type",
                                              "predict_special_tokens",
                                              "prefix",
                                              "problem_type",
                                              "qa_dropout",
                                              "remove_invalid_values",
                                              "reorder_and_upcast_attn",
                                              "repetition_penalty",
                                              "resid_pdrop",
                                              "return_dict",
                                              "return_dict_in_generate",
                                              "sentence_transformers",
                                              "sep_token_id",
                                              "seq_classif_dropout",
                                              "sinusoidal_pos_embds",
                                              "summary_activation",
                                              "summary_first_dropout",
                                              "summary_proj_to_labels",
                                              "summary_type",
                                              "summary_use_proj",
                                              "suppress_tokens",
                                              "task_specific_params",
                                              "temperature",
                                              "tf_legacy_loss",
                                              "tie_encoder_decoder",
                                              "tie_weights_",
                                              "tokenizer_class",
                                              "top_k",
                                              "top_p",
                                              "torch_dtype",
                                              "torchscript",
                                              "transformers_version",
                                              "typical_p",
                                              "use_bfloat16",
                                              "use_cache",
                                              "xla_device"};

/// A value without which a model computes something that Hearth's do not.
struct Demand {
  const char* key;
  Json value;  // null is accepted beside it
  const char* why;
};

const Demand common_demands[] = {
    {"is_encoder_decoder", false, "the model has an encoder and a decoder"},
    {"add_cross_attention", false, "cross-attention is not supported"},
    {"cross_attention_hidden_size", nullptr, "cross-attention is not supported"},
    {"quantization_config", nullptr, "quantized weights are not read; save them dequantized"},
    {"auto_map", nullptr, "the model is defined by Python code beside the weights"},
    {"n_special", 0, "additional token embeddings are not supported"},
};
const Demand bert_demands[] = {
    {"is_decoder", false, "a causal BERT is not supported"},
    {"position_embedding_type", "absolute", "relative positions are not supported"},
    {"pruned_heads", Json::object(), "pruned heads are not supported"},
};

/// A document's keys, each asked for once; what nobody asked for is a fault, and so is a value of another kind.
class Keys {
 public:
  Keys(const Json& document, std::string name) : document_(document), name_(std::move(name)) {
    HEARTH_CHECK(FileError, document.is_object(), name_, ": is ", document.describe(), "; an object was expected");
  }

  /// The value; null where it is absent or null.
  const Json* find(std::string_view key) {
    known_.insert(std::string(key));
    const Json* const value = document_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::string_view alias = {}) {
    const Json* value = find(key);
    if (const Json* const other = alias.empty() ? nullptr : find(alias)) {
      if (value != nullptr && *value != *other)
        fault(join_text(key, " is ", value->describe(), ", but ", alias, ", another name of it, ", other->describe()));
      value = other;
    }
    if (value == nullptr) return otherwise;
    if (value->is_integer() && value->as_integer() >= 0 && value->as_integer() <= most) return value->as_integer();
    fault(join_text(key, " is ", value->describe(), "; a whole number from 0 to ", most, " was expected"));
    return otherwise;
  }
  double eps(std::string_view key, double otherwise) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number() && value->as_number() > 0 && value->as_number() <= 1) return value->as_number();
    fault(join_text(key, " is ", value->describe(), "; a number above 0 and at most 1 was expected"));
    return otherwise;
  }
  bool boolean(std::string_view key, bool otherwise) {
    const Json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->as_boolean();
    fault(join_text(key, " is ", value->describe(), "; true or false was expected"));
    return otherwise;
  }
  std::string activation(std::string_view key, const char* otherwise) {
    static constexpr std::pair<std::string_view, const char*> known[] = {
        {"gelu", "gelu"},           {"gelu_python", "gelu"},
        {"gelu_new", "gelu_tanh"},  {"gelu_pytorch_tanh", "gelu_tanh"},
        {"gelu_fast", "gelu_tanh"}, {"gelu_python_tanh", "gelu_tanh"},
        {"relu", "relu"},           {"silu", "silu"},
        {"swish", "silu"}};
    const Json* const value = find(key);
    const std::string name = value == nullptr ? otherwise : value->is_string() ? value->as_string() : value->describe();
    for (const auto& [theirs, ours] : known)
      if (theirs == name) return ours;
    std::string names;
    for (const auto& [theirs, ours] : known) names += (names.empty() ? "" : ", ") + std::string(theirs);
    fault(join_text(key, " is \"", name, "\", an activation that is not supported; supported are ", names));
    return "gelu";
  }
  void demand(std::span<const Demand> demands) {
    for (const Demand& demand : demands)
      if (const Json* const value = find(demand.key); value != nullptr && *value != demand.value)
        fault(join_text(demand.key, " is ", to_text(*value), ": ", demand.why));
  }
  void ignore(std::span<const std::string_view> keys) { known_.insert(keys.begin(), keys.end()); }
  void fault(const std::string& text) { faults_.push_back(text); }

  /// FileError with every fault.
  void finish() {
    for (const JsonMember& member : document_.members())
      if (!known_.contains(member.key))
        fault(join_text(member.key,
                        " is a key that is not known; if it changes no result, remove it from a copy of the file and "
                        "name that as the configuration (--config, weights.config)"));
    if (faults_.empty()) return;
    std::string text;
    for (const std::string& each : faults_) text += (text.empty() ? "" : "\n") + name_ + ": " + each;
    throw FileError(text);
  }

 private:
  static constexpr std::int64_t most = 1 << 28;
  const Json& document_;
  std::string name_;
  std::set<std::string, std::less<>> known_;
  std::vector<std::string> faults_;
};

Json gpt_of(Keys& keys) {
  const std::int64_t width = keys.integer("n_embd", 768, "hidden_size");
  Json model = Json::object();
  model.set("type", "gpt")
      .set("vocabulary", keys.integer("vocab_size", 50257))
      .set("context", keys.integer("n_positions", 1024, "max_position_embeddings"))
      .set("layers", keys.integer("n_layer", 12, "num_hidden_layers"))
      .set("heads", keys.integer("n_head", 12, "num_attention_heads"))
      .set("width", width)
      .set("hidden", keys.integer("n_inner", 4 * width))
      .set("activation", keys.activation("activation_function", "gelu_new"))
      .set("norm_eps", keys.eps("layer_norm_epsilon", 1e-5))
      .set("scale_attention", keys.boolean("scale_attn_weights", true))
      .set("scale_by_layer", keys.boolean("scale_attn_by_inverse_layer_idx", false))
      .set("positions", "learned")
      .set("tie_head", keys.boolean("tie_word_embeddings", true));
  return model;
}

/// Of BERT, RoBERTa and DistilBERT, which calls some things otherwise.
Json bert_of(Keys& keys, WeightFormat format) {
  const bool roberta = format == WeightFormat::hf_roberta, distilled = format == WeightFormat::hf_distilbert;
  keys.demand(bert_demands);
  (void)keys.find("tie_word_embeddings");  // heads that are not tied are not taken, see transformers_weights.cpp
  const std::int64_t offset = roberta ? keys.integer("pad_token_id", 1) + 1 : 0;
  const std::int64_t rows = keys.integer("max_position_embeddings", 512);
  if (rows <= offset)
    keys.fault(join_text("max_position_embeddings is ", rows, ", of which the padding leaves no position"));
  Json model = Json::object();
  model.set("type", "bert")
      .set("vocabulary", keys.integer("vocab_size", roberta ? 50265 : 30522))
      .set("context", rows - offset)
      .set("segments", distilled ? 0 : keys.integer("type_vocab_size", 2))
      .set("layers",
           distilled ? keys.integer("n_layers", 6, "num_hidden_layers") : keys.integer("num_hidden_layers", 12))
      .set("heads",
           distilled ? keys.integer("n_heads", 12, "num_attention_heads") : keys.integer("num_attention_heads", 12))
      .set("width", distilled ? keys.integer("dim", 768, "hidden_size") : keys.integer("hidden_size", 768))
      .set("hidden", keys.integer(distilled ? "hidden_dim" : "intermediate_size", 3072))
      .set("activation", keys.activation(distilled ? "activation" : "hidden_act", "gelu"))
      .set("norm_eps", distilled ? 1e-12 : keys.eps("layer_norm_eps", 1e-12))
      .set("position_offset", offset)
      .set("pool_activation", distilled ? "relu" : "tanh");
  return model;
}

/// A model's "model_type" and the format in whose names its weights are.
constexpr std::pair<std::string_view, WeightFormat> formats[] = {
    {"gpt2", WeightFormat::hf_gpt2},           {"bert", WeightFormat::hf_bert},
    {"roberta", WeightFormat::hf_roberta},     {"camembert", WeightFormat::hf_roberta},
    {"xlm-roberta", WeightFormat::hf_roberta}, {"distilbert", WeightFormat::hf_distilbert}};

/// A document that is of another model than the format says.
void check_model_type(Keys& keys, const std::string& name, WeightFormat format, bool required) {
  const Json* const type = keys.find("model_type");
  const std::string text = type != nullptr && type->is_string() ? type->as_string() : "";
  if (text.empty() && !required) return;
  HEARTH_CHECK(FileError, !text.empty(), name,
               ": has no \"model_type\", so that it is not known what the weights are; add it (gpt2, bert, roberta, "
               "distilbert)");
  const auto own = std::find_if(std::begin(formats), std::end(formats), [&](const auto& f) { return f.first == text; });
  HEARTH_CHECK(FileError, own != std::end(formats), name, ": model_type is \"", text,
               "\", a model that is not supported; supported are gpt2, bert, roberta, camembert, xlm-roberta and "
               "distilbert");
  HEARTH_CHECK(FileError, own->second == format, name, ": model_type is \"", text,
               "\"; such weights are read by the format ", name_of(own->second), " (--from ", name_of(own->second),
               ", weights.from)");
}

constexpr std::string_view swin_sizes[] = {"tiny", "small", "base", "large"};

/// "swin_tiny_patch4_window7_224": the paper's, not those of version 2 or of searched shapes.
bool is_plain_swin(std::string_view architecture) {
  return std::any_of(std::begin(swin_sizes), std::end(swin_sizes), [&](std::string_view size) {
    return architecture.starts_with(join_text("swin_", size, "_patch4_window"));
  });
}

bool is_plain_resnet(std::string_view architecture) {
  static constexpr std::string_view depths[] = {"18", "34", "50", "101", "152"};
  return std::any_of(std::begin(depths), std::end(depths), [&](std::string_view depth) {
    return architecture == join_text("resnet", depth) || architecture == join_text("tv_resnet", depth) ||
           architecture == join_text("gluon_resnet", depth, "_v1b");
  });
}

constexpr std::string_view timm_keys[] = {"num_classes", "num_features", "labels", "label_names", "label_descriptions"};
/// Sizes, which tensors show, and rates of training.
constexpr std::string_view timm_arguments[] = {
    "attn_drop_rate", "depths",      "drop_path_rate", "drop_rate",  "embed_dim",     "img_size",       "in_chans",
    "mlp_ratio",      "num_classes", "num_heads",      "patch_size", "pos_drop_rate", "proj_drop_rate", "window_size"};

}  // namespace

Json model_of_transformers(const Json& document, const std::string& name, WeightFormat format) {
  Keys keys(document, name);
  check_model_type(keys, name, format, document.size() > 0);
  keys.demand(common_demands);
  keys.ignore(harmless_keys);
  Json model = format == WeightFormat::hf_gpt2 ? gpt_of(keys) : bert_of(keys, format);
  const std::int64_t width = model.at("width").as_integer(), heads = model.at("heads").as_integer();
  if (heads < 1 || width % heads != 0)
    keys.fault(join_text("a width of ", width, " does not divide into ", heads, " heads"));
  keys.finish();
  return model;
}

Json config_for_transformers(const Json& model, const std::string& source, WeightFormat format) {
  const auto value = [&](const char* key, Json otherwise) {
    const Json* const found = model.find(key);
    return found == nullptr || found->is_null() ? std::move(otherwise) : *found;
  };
  const auto require = [&](const char* key, const Json& wanted, const Json& otherwise) {
    HEARTH_CHECK(FileError, value(key, otherwise) == wanted, source, ": the model has ", key, " ",
                 to_text(value(key, otherwise)), ", but in the format that is asked for it is always ",
                 to_text(wanted));
  };
  const bool gpt = format == WeightFormat::hf_gpt2, distilbert = format == WeightFormat::hf_distilbert;
  require("type", gpt ? "gpt" : "bert", "");
  const std::string activation = value("activation", gpt ? "gelu_tanh" : "gelu").as_string();
  Json config = Json::object();
  config.set("model_type", gpt          ? "gpt2"
                           : distilbert ? "distilbert"
                                        : "bert")
      .set(gpt          ? "n_head"
           : distilbert ? "n_heads"
                        : "num_attention_heads",
           value("heads", 12))
      .set(gpt          ? "activation_function"
           : distilbert ? "activation"
                        : "hidden_act",
           activation == "gelu_tanh" ? "gelu_new" : activation);
  if (gpt) {
    require("positions", "learned", "learned");
    return config.set("layer_norm_epsilon", value("norm_eps", 1e-5))
        .set("scale_attn_weights", value("scale_attention", true))
        .set("scale_attn_by_inverse_layer_idx", value("scale_by_layer", false))
        .set("tie_word_embeddings", value("tie_head", true));
  }
  if (distilbert) require("norm_eps", 1e-12, 1e-12);
  if (const Json* const head = model.find("head"); head != nullptr && *head == Json("classification"))
    require("pool_activation", distilbert ? "relu" : "tanh", "tanh");
  if (!distilbert) config.set("layer_norm_eps", value("norm_eps", 1e-12));
  if (format != WeightFormat::hf_roberta) {
    require("position_offset", 0, 0);
    return config;
  }
  const std::int64_t offset = value("position_offset", 0).as_integer();
  HEARTH_CHECK(FileError, offset >= 1, source, ": the model has position_offset ", offset,
               ", but RoBERTa's positions begin behind the id of its padding, at 1 or later");
  if (value("head", "") == Json("masked_lm")) require("activation", "gelu", "gelu");
  return config.set("model_type", "roberta").set("pad_token_id", offset - 1);
}

std::vector<std::string> class_names_of(const Json& document) {
  std::vector<std::string> names;
  const auto text_of = [](const Json& name) { return name.is_string() ? name.as_string() : to_text(name); };
  if (const Json* const list = document.find("label_names"); list != nullptr && list->is_array())
    for (const Json& name : list->items()) names.push_back(text_of(name));
  else if (const Json* const table = document.find("id2label"); table != nullptr && table->is_object())
    for (std::size_t i = 0; i < table->size(); ++i) {
      const Json* const name = table->find(std::to_string(i));
      if (name == nullptr) return {};
      names.push_back(text_of(*name));
    }
  std::size_t number = 0;
  const bool says_nothing = std::all_of(names.begin(), names.end(),
                                        [&](const std::string& name) { return name == join_text("LABEL_", number++); });
  return says_nothing ? std::vector<std::string>{} : names;
}

std::optional<std::pair<std::int64_t, std::int64_t>> timm_image_size(const Json& document) {
  const auto value_of = [&](const char* part, const char* key) {
    const Json* const inner = document.find(part);
    return inner != nullptr && inner->is_object() ? inner->find(key) : nullptr;
  };
  const auto side = [](const Json& value) { return value.is_integer() ? value.as_integer() : 0; };
  std::int64_t height = 0, width = 0;
  if (const Json* const given = value_of("model_args", "img_size"); given != nullptr) {
    const bool is_pair = given->is_array() && given->size() == 2;
    height = side(is_pair ? given->at(0) : *given);
    width = side(is_pair ? given->at(1) : *given);
  } else if (const Json* const shape = value_of("pretrained_cfg", "input_size");
             shape != nullptr && shape->is_array() && shape->size() == 3) {
    height = side(shape->at(1));
    width = side(shape->at(2));
  } else if (const Json* const name = document.find("architecture"); name != nullptr && name->is_string()) {
    // "swin_tiny_patch4_window7_224"
    const std::string& text = name->as_string();
    const std::size_t digits = text.size() - (text.find_last_not_of("0123456789") + 1);
    if (digits >= 2 && digits <= 5) height = width = std::stoll(text.substr(text.size() - digits));
  }
  if (height < 1 || width < 1) return std::nullopt;
  return std::pair(height, width);
}

void check_timm_config(const Json& document, const std::string& name, WeightFormat format,
                       std::vector<std::string>& notes) {
  Keys keys(document, name);
  check_model_type(keys, name, format, false);
  const Json* const architecture = keys.find("architecture");
  if (architecture == nullptr) {
    notes.push_back(name + ": is no configuration of transformers or timm; it was not read");
    return;
  }
  const std::string& text = architecture->as_string();
  if (!(format == WeightFormat::torch ? is_plain_resnet(text) || is_plain_swin(text) : is_plain_swin(text)))
    keys.fault(join_text("architecture is \"", text,
                         "\", which is not known to compute what the model here does with weights of such names"));
  const Demand demands[] = {{"global_pool", "avg", "only the mean of all positions is known here"}};
  keys.demand(demands);
  keys.ignore(timm_keys);
  if (const Json* const arguments = keys.find("model_args")) {
    Keys inner(*arguments, name + ": model_args");
    inner.ignore(timm_arguments);
    inner.demand(demands);
    inner.finish();
  }
  if (const Json* const pretrained = keys.find("pretrained_cfg"))
    if (pretrained->find("mean") && pretrained->find("std"))
      notes.push_back(join_text(name, ": images were normalised by the mean ", to_text(pretrained->at("mean")),
                                " and std ", to_text(pretrained->at("std")), "; ", normalize_reminder));
  keys.finish();
}

}  // namespace hearth::models
