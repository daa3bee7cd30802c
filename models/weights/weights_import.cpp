// SPDX-License-Identifier: Apache-2.0
#include "models/weights/weights_import.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/io/file.h"
#include "models/weights/foreign_config.h"
#include "models/weights/named_tensors.h"
#include "models/weights/swin_weights.h"
#include "models/weights/torch_file.h"
#include "models/weights/transformers_weights.h"

namespace hearth::models {
namespace {

namespace fs = std::filesystem;

std::string beside(const std::string& weights, const char* name) {
  std::error_code ignored;
  const fs::path path(weights);
  return ((fs::is_directory(path, ignored) ? path : path.parent_path()) / name).string();
}

/// The pooling of a sentence-transformers model; a name that is no choice of "embedding_pool" where it is not
/// supported.
std::string pool_in(const std::string& path, std::vector<std::string>& notes) {
  const Json pooling = read_json(path, small_file);
  std::string chosen;
  if (const Json* const mode = pooling.find("pooling_mode"); mode != nullptr && mode->is_string())
    chosen = mode->as_string();
  constexpr std::string_view prefix = "pooling_mode_";
  if (chosen.empty() && pooling.is_object())
    for (const JsonMember& member : pooling.members())
      if (member.key.starts_with(prefix) && member.value.is_boolean() && member.value.as_boolean())
        chosen += (chosen.empty() ? "" : "+") + member.key.substr(prefix.size());
  if (chosen == "mean_tokens" || chosen == "mean") return "mean";
  if (chosen == "cls_token" || chosen == "cls") return "first";
  notes.push_back(join_text(path, ": the pooling \"", chosen,
                            "\" is not supported, so that the head \"embedding\" would give other vectors"));
  return chosen.empty() ? "none" : chosen;
}

/// What sentence-transformers does behind the encoder.
void add_modules(const std::string& weights, Json& model, std::vector<std::string>& notes) {
  const std::string path = beside(weights, "modules.json");
  if (!file_exists(path)) return;
  const Json modules = read_json(path, small_file);
  bool normalizes = false;
  for (const Json& module : modules.items()) {
    const std::string& type = module.at("type").as_string();
    const std::string at = module.at("path").as_string();
    HEARTH_CHECK(FileError, !fs::path(at).is_absolute() && at.find("..") == std::string::npos, path, ": the path \"",
                 at, "\" leads out of the folder");
    if (type.ends_with(".Pooling"))
      model.set("embedding_pool", pool_in(beside(weights, (at + "/config.json").c_str()), notes));
    else if (type.ends_with(".Normalize"))
      normalizes = true;
    else if (!type.ends_with(".Transformer")) {
      model.set("embedding_pool", type);
      notes.push_back(join_text(path, ": the module \"", type,
                                "\" is not supported, so that the head \"embedding\" would give other vectors"));
    }
  }
  model.set("normalize", normalizes);
  const std::string settings = beside(weights, "sentence_bert_config.json");
  if (!file_exists(settings)) return;
  const Json document = read_json(settings, small_file);
  if (const Json* const lower = document.find("do_lower_case"); lower && lower->is_boolean() && lower->as_boolean())
    notes.push_back(settings + ": do_lower_case: sequences are put into lower case before the tokenizer");
}

/// An extent of a tensor that a size of the model decides.
struct Size {
  const char* key;
  const char* tensor;
  int axis;
};
constexpr Size gpt_sizes[] = {{"vocabulary", "wte.weight", 0},
                              {"width", "wte.weight", 1},
                              {"context", "wpe.weight", 0},
                              {"hidden", "h.0.mlp.c_fc.weight", 0}};
constexpr Size bert_sizes[] = {{"vocabulary", "embeddings.word_embeddings.weight", 0},
                               {"width", "embeddings.word_embeddings.weight", 1},
                               {"context", "embeddings.position_embeddings.weight", 0},
                               {"segments", "embeddings.token_type_embeddings.weight", 0},
                               {"hidden", "encoder.layer.0.intermediate.dense.weight", 0}};

std::int64_t layers_of(const WeightSet& set, std::string_view before, std::string_view behind) {
  return std::count_if(set.weights.begin(), set.weights.end(), [&](const Weight& weight) {
    return weight.name.starts_with(before) && weight.name.ends_with(behind);
  });
}

/// The configuration of other weights is no word about these.
void check_sizes(const Json& model, const WeightSet& set, const std::string& config, NameReport& report) {
  const bool gpt = model.at("type").as_string() == "gpt";
  const auto compare = [&](const std::string& what, std::int64_t found, std::int64_t said) {
    if (found != said)
      report.misshaped.push_back(join_text(what, ", but by ", config, " the model has ", said,
                                           "; the configuration belongs to other weights"));
  };
  for (const Size& size : gpt ? std::span<const Size>(gpt_sizes) : std::span<const Size>(bert_sizes)) {
    const Tensor* const tensor = find_weight(set, size.tensor);
    if (tensor == nullptr) continue;
    const bool is_context = std::string_view(size.key) == "context" && !gpt;
    const std::int64_t offset = is_context ? model.at("position_offset").as_integer() : 0;
    const std::int64_t found = tensor->dim(size.axis) - offset;
    compare(join_text(size.tensor, " is for a ", size.key, " of ", found), found, model.at(size.key).as_integer());
  }
  const std::int64_t layers =
      gpt ? layers_of(set, "h.", ".ln_1.weight") : layers_of(set, "encoder.layer.", ".attention.output.dense.weight");
  compare(join_text("there are ", layers, " layers"), layers, model.at("layers").as_integer());
}

/// Whether the head of a document's model scores each token.
bool scores_tokens(const Json& document) {
  const Json* const names = document.find("architectures");
  return names != nullptr && names->is_array() &&
         std::any_of(names->items().begin(), names->items().end(), [](const Json& name) {
           return name.is_string() && name.as_string().ends_with("ForTokenClassification");
         });
}

/// A head of GPT-2 that equals the token table, of a model that trains them apart: left out as a copy, and brought
/// back.
void keep_untied(const Json& model, WeightSet& set, NameReport& report) {
  const auto copy = std::find_if(report.left_out.begin(), report.left_out.end(), [](const std::string& entry) {
    return entry.starts_with("lm_head.weight, equal to");
  });
  const Tensor* const table = find_weight(set, "wte.weight");
  if (copy == report.left_out.end() || table == nullptr || model.at("tie_head").as_boolean()) return;
  report.left_out.erase(copy);
  set.weights.push_back({"lm_head.weight", table->clone()});
}

/// What transformers would compute in other ways than the model here, of these weights.
void check_heads(Json& model, const Json& document, const WeightSet& set, WeightFormat from, NameReport& report) {
  if (find_weight(set, "classifier.weight") != nullptr && scores_tokens(document))
    report.unexpected.push_back(
        "classifier, which by \"architectures\" scores each token, not the sequence; leave it out");
  const bool has_head = find_weight(set, "lm_head.weight") != nullptr;
  if (from == WeightFormat::hf_gpt2) {
    if (has_head && model.at("tie_head").as_boolean())
      report.unexpected.push_back(
          "lm_head.weight, which is not wte.weight although tie_word_embeddings says so: transformers would not use "
          "it; leave it out");
    model.set("tie_head", !has_head);
  }
  if (from == WeightFormat::hf_roberta && find_weight(set, "cls.predictions.bias") != nullptr &&
      model.at("activation").as_string() != "gelu")
    report.unexpected.push_back(
        "lm_head: RoBERTa's head over the vocabulary has a GELU whatever the other layers have; leave it out");
}

/// BERT's and RoBERTa's encoders have the same names.
void check_without_config(const WeightSet& set, WeightFormat from, NameReport& report) {
  const Tensor* const types = find_weight(set, "embeddings.token_type_embeddings.weight");
  if (from == WeightFormat::hf_bert && types != nullptr && types->dim(0) == 1)
    report.misshaped.push_back(
        "embeddings.token_type_embeddings.weight has one row, as RoBERTa's has; use the format hf-roberta, or name "
        "BERT's configuration");
}

/// What transformers takes where a configuration says nothing, but for the sizes, and the eps of RoBERTa, whose
/// published weights have another one.
Json assumed_model(WeightFormat from) {
  Json model = model_of_transformers(Json::object(), "", from);
  std::erase_if(model.members(), [&](const JsonMember& member) {
    static constexpr std::string_view kept[] = {"type",           "activation",      "scale_attention",
                                                "scale_by_layer", "position_offset", "pool_activation",
                                                "positions",      "norm_eps"};
    const bool is_kept = std::find(std::begin(kept), std::end(kept), member.key) != std::end(kept);
    return !is_kept || (from == WeightFormat::hf_roberta && member.key == "norm_eps");
  });
  return model;
}

/// Of weights in Hearth's names: what a conversion noted, or the model of the checkpoint that they are in.
Json own_model(const WeightSet& set, const std::string& path, const std::string& config) {
  if (Json noted = config.empty() ? noted_model(set, path) : Json(); !noted.is_null()) return noted;
  const std::string file = config.empty() ? default_config_of(path) : config;
  if (config.empty() && !file_exists(file)) return {};
  const Json document = read_json(file, small_file);
  const Json* const model = document.find("model");
  const bool is_run = model != nullptr && model->is_object() && model->find("type") != nullptr;
  HEARTH_CHECK(FileError, is_run || config.empty(), config,
               ": has no \"model\" with a type, as a run's configuration has");
  return is_run ? *model : Json();
}

/// The classes of the head that scores some, if there is one with so many rows.
void add_classes(ImportedWeights& result, std::vector<std::string> names) {
  for (const char* head : {"classifier.weight", "head.weight", "fc.weight"}) {
    const Tensor* const tensor = find_weight(result.weights, head);
    if (names.empty() || tensor == nullptr || tensor->rank() != 2 ||
        tensor->dim(0) != static_cast<std::int64_t>(names.size()))
      continue;
    result.weights.metadata[classes_note] = to_text(Json::array_of(names));
    result.classes = std::move(names);
    result.class_head = head;
    return;
  }
}

/// Those that a conversion noted.
std::vector<std::string> noted_classes(const WeightSet& set, const std::string& source) {
  std::vector<std::string> names;
  const auto note = set.metadata.find(classes_note);
  if (note == set.metadata.end()) return names;
  const Json list = parse_json(note->second, source + ": " + classes_note);
  for (const Json& name : list.items()) names.push_back(name.as_string());
  return names;
}

/// What timm's configuration says of the images of the training.
std::vector<double> numbers_of(const Json& document, const char* key) {
  const Json* const pretrained = document.find("pretrained_cfg");
  const Json* const list = pretrained != nullptr && pretrained->is_object() ? pretrained->find(key) : nullptr;
  if (list == nullptr || !list->is_array()) return {};
  std::vector<double> numbers;
  for (const Json& number : list->items()) numbers.push_back(number.as_number());
  return numbers;
}

void add_configuration(ImportedWeights& result, const std::string& path, const ImportOptions& options) {
  if (options.from == WeightFormat::hearth) {
    result.model = own_model(result.weights, path, options.config);
    if (!result.model.is_null()) result.weights.metadata[model_note] = to_text(result.model);
    add_classes(result, noted_classes(result.weights, path));
    return;
  }
  const std::string file = options.config.empty() ? default_config_of(path) : options.config;
  const bool known = !options.config.empty() || file_exists(file);
  if (!is_of_transformers(options.from)) {
    if (!known) return;
    const Json document = read_json(file, small_file);
    check_timm_config(document, file, options.from, result.notes);
    add_classes(result, class_names_of(document));
    result.image_mean = numbers_of(document, "mean");
    result.image_std = numbers_of(document, "std");
    if (const auto size = timm_image_size(document); size && options.from == WeightFormat::timm_swin)
      if (std::string text = timm_difference(result.weights, size->first, size->second); !text.empty())
        result.notes.push_back(file + ": " + text);
    return;
  }
  if (!known) {
    if (result.report.fits()) check_without_config(result.weights, options.from, result.report);
    result.model = assumed_model(options.from);
    result.weights.metadata[model_note] = to_text(result.model);
    result.notes.push_back(join_text("there is no config.json beside ", path, "; assumed: ", to_text(result.model),
                                     ", and what a run says of heads and all else; name the file (--config, "
                                     "weights.config) if there is one"));
    return;
  }
  const Json document = read_json(file, small_file);
  result.model = model_of_transformers(document, file, options.from);
  if (!result.report.fits()) return;
  check_sizes(result.model, result.weights, file, result.report);
  if (options.from == WeightFormat::hf_gpt2) keep_untied(result.model, result.weights, result.report);
  check_heads(result.model, document, result.weights, options.from, result.report);
  if (options.from != WeightFormat::hf_gpt2) add_modules(path, result.model, result.notes);
  result.weights.metadata[model_note] = to_text(result.model);
  add_classes(result, class_names_of(document));
}

/// Options that shapes of tensors do not show.
struct Compared {
  const char* type;
  const char* key;
  const char* of_head = nullptr;  ///< of runs with this head only
};
constexpr Compared compared[] = {{"gpt", "heads"},
                                 {"gpt", "activation"},
                                 {"gpt", "norm_eps"},
                                 {"gpt", "positions"},
                                 {"gpt", "scale_attention"},
                                 {"gpt", "scale_by_layer"},
                                 {"bert", "heads"},
                                 {"bert", "activation"},
                                 {"bert", "norm_eps"},
                                 {"bert", "position_offset"},
                                 {"bert", "pool_activation", "classification"},
                                 {"bert", "embedding_pool", "embedding"},
                                 {"bert", "normalize", "embedding"},
                                 {"transformer", "heads"},
                                 {"mlp", "activation"}};

/// Whether the name of a tensor of the file begins so, with its prefix or without.
bool begins(const std::string& name, const std::string& beginning, std::string_view prefix) {
  if (name.starts_with(beginning)) return true;
  if (prefix.empty()) return false;
  if (name.starts_with(prefix)) return std::string_view(name).substr(prefix.size()).starts_with(beginning);
  return (std::string(prefix) + name).starts_with(beginning);
}

bool begins_with_any(const std::string& name, const std::vector<std::string>& beginnings, std::string_view prefix) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return begins(name, beginning, prefix); });
}

std::string without_prefix(const std::string& name, std::string_view prefix) {
  return name.size() > prefix.size() && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// Whether an unexpected entry of a report is about a tensor: it begins with its name, or with that of its layer.
bool is_about(const std::string& entry, const std::string& name) {
  const std::string subject = entry.substr(0, entry.find_first_of(" ,:"));
  return name == subject || name.starts_with(subject + ".");
}

/// Takes out of `theirs` what the format has no place for and the rules do not want, by name.
std::vector<std::string> drop_unwanted(WeightSet& theirs, const ImportOptions& options, const NameReport& report) {
  const std::string_view prefix = prefix_of(options.from);
  std::vector<std::string> dropped;
  std::erase_if(theirs.weights, [&](const Weight& weight) {
    const bool has_no_place =
        std::any_of(report.unexpected.begin(), report.unexpected.end(), [&](const std::string& entry) {
          return is_about(entry, weight.name) || is_about(entry, without_prefix(weight.name, prefix));
        });
    const bool drop = has_no_place && (begins_with_any(weight.name, options.rules.unused, prefix) ||
                                       begins_with_any(weight.name, options.rules.reinitialize, prefix));
    if (drop) dropped.push_back(weight.name);
    return drop;
  });
  return dropped;
}

/// The names here of what the file calls by a beginning: those that are not there without these tensors.
std::vector<std::string> our_names(const WeightSet& theirs, const WeightSet& ours, const ImportOptions& options,
                                   const std::string& beginning) {
  WeightSet others = theirs;
  std::erase_if(others.weights,
                [&](const Weight& weight) { return begins(weight.name, beginning, prefix_of(options.from)); });
  NameReport ignored;
  const WeightSet kept = to_hearth(others, options.from, ignored);
  std::vector<std::string> names;
  for (const Weight& weight : ours.weights)
    if (find_weight(kept, weight.name) == nullptr) names.push_back(weight.name);
  return names;
}

/// `rules.unused` in the names of `ours`, without what was dropped of `theirs`.
std::vector<std::string> unused_of(const WeightSet& theirs, const WeightSet& ours, const ImportOptions& options,
                                   const std::vector<std::string>& dropped) {
  const std::string_view prefix = prefix_of(options.from);
  std::vector<std::string> result;
  for (const std::string& beginning : options.rules.unused) {
    const std::string own = without_prefix(beginning, prefix);
    const auto is_ours = [&](const Weight& weight) { return weight.name.starts_with(own); };
    const auto is_theirs = [&](const Weight& weight) { return begins(weight.name, beginning, prefix); };
    const bool here = std::any_of(ours.weights.begin(), ours.weights.end(), is_ours);
    const bool there = std::any_of(theirs.weights.begin(), theirs.weights.end(), is_theirs);
    const bool was_dropped = std::any_of(dropped.begin(), dropped.end(),
                                         [&](const std::string& name) { return begins(name, beginning, prefix); });
    if (here ? there || !was_dropped : !there && !was_dropped) {
      result.push_back(own);
    } else if (there) {
      const std::vector<std::string> names = our_names(theirs, ours, options, beginning);
      result.insert(result.end(), names.begin(), names.end());
    }
  }
  return result;
}

/// As import_weights(), of tensors that are read.
ImportedWeights imported(const WeightSet& theirs, const std::string& path, const ImportOptions& options) {
  ImportedWeights result;
  result.weights = to_hearth(theirs, options.from, result.report);
  try {
    add_configuration(result, path, options);
  } catch (const ConfigError& error) {
    throw FileError(error.what());  // of another kind of document
  }
  return result;
}

}  // namespace

ImportedWeights import_weights(const std::string& path, const ImportOptions& options) {
  const std::string of_torch = options.from == WeightFormat::hearth ? torch_file_at(path) : std::string();
  HEARTH_CHECK(FileError, of_torch.empty(), of_torch,
               ": was written by torch.save(), with filters [K, C, R, S], which may fit as they are and would compute "
               "something else; say whose weights they are: weights.from=torch (--from torch) where the names are "
               "Hearth's, or one of the other formats");
  WeightSet theirs = read_weights(path);
  if (options.from != WeightFormat::hearth)
    for (const char* note : {model_note, classes_note}) theirs.metadata.erase(note);
  for (const std::string& beginning : options.leave_out) {
    const auto count = std::erase_if(
        theirs.weights, [&](const Weight& weight) { return begins(weight.name, beginning, prefix_of(options.from)); });
    HEARTH_CHECK(UsageError, count > 0, "weights: leave out ", beginning, ": no tensor's name begins so");
  }
  ImportedWeights result = imported(theirs, path, options);
  std::vector<std::string> dropped;
  while (!result.report.fits()) {
    const std::vector<std::string> more = drop_unwanted(theirs, options, result.report);
    if (more.empty()) break;
    dropped.insert(dropped.end(), more.begin(), more.end());
    result = imported(theirs, path, options);
  }
  for (const std::string& name : dropped) result.report.left_out.push_back(name + ", unused");
  result.unused = unused_of(theirs, result.weights, options, dropped);
  result.notes.insert(result.notes.begin(), theirs.notes.begin(), theirs.notes.end());
  return result;
}

Json model_of_configuration(const std::string& path, WeightFormat from, const std::string& config) {
  const std::string file = config.empty() ? default_config_of(path) : config;
  if (!is_of_transformers(from) || (config.empty() && !file_exists(file))) return {};
  return model_of_transformers(read_json(file, small_file), file, from);
}

std::string faults_with_reason(const NameReport& report, const std::string& prefix) {
  std::string text = report.faults(prefix);
  const bool of_ddp = !report.missing.empty() && !report.unexpected.empty() &&
                      std::all_of(report.unexpected.begin(), report.unexpected.end(),
                                  [](const std::string& entry) { return entry.starts_with("module."); });
  if (of_ddp)
    text +=
        join_text("\n", prefix,
                  "every name begins with \"module.\", as DistributedDataParallel and DataParallel have it; save "
                  "model.module.state_dict(), or take the beginning off: {k.removeprefix(\"module.\"): v for k, v in "
                  "state.items()}");
  return text;
}

std::string configuration_note(const ImportedWeights& weights, const std::string& source, WeightFormat to) {
  if (!is_of_transformers(to)) return "";
  if (weights.model.is_null())
    return "the model of these weights is not known; config.json has to give transformers its heads, activation and "
           "eps";
  Json config = config_for_transformers(weights.model, source, to);
  if (!weights.classes.empty()) {
    Json names = Json::object();
    for (std::size_t i = 0; i < weights.classes.size(); ++i) names.set(std::to_string(i), weights.classes[i]);
    config.set("id2label", std::move(names));
  }
  return "config.json for transformers has to have " + to_text(config);
}

std::string default_config_of(const std::string& weights) { return beside(weights, "config.json"); }

Json noted_model(const WeightSet& weights, const std::string& source) {
  const auto note = weights.metadata.find(model_note);
  if (note == weights.metadata.end()) return {};
  try {
    return parse_json(note->second, source + ": " + model_note);
  } catch (const ConfigError& error) {
    throw FileError(error.what());
  }
}

void require_same_model(const Json& model, const Json& required, const std::string& source) {
  const std::string& type = model.at("type").as_string();
  if (const Json* const other = required.find("type"); other == nullptr || *other != model.at("type")) return;
  const Json* const head = model.find("head");
  std::string faults;
  for (const Compared& each : compared) {
    if (each.type != type || (each.of_head != nullptr && (head == nullptr || head->as_string() != each.of_head)))
      continue;
    const Json* const here = model.find(each.key);
    const Json* const there = required.find(each.key);
    if (here == nullptr || there == nullptr || *here == *there) continue;
    faults += (faults.empty() ? "" : "\n") +
              fault_text(here->position(), child_pointer("/model", each.key),
                         join_text(to_text(*here), ", but the weights of ", source, " are of a model with ",
                                   to_text(*there), ", and compute something else in this one; use --set model.",
                                   each.key, "=", to_text(*there)));
  }
  HEARTH_CHECK(ConfigError, faults.empty(), faults);
}

}  // namespace hearth::models
