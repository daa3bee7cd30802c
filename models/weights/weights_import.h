// SPDX-License-Identifier: Apache-2.0
// Weights together with the configuration that lies beside them: tensors alone do not tell the number of heads, the
// activation or the eps of norms, with which the same weights compute something else.
#pragma once

#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "models/weights/weights.h"

namespace hearth::models {

struct ImportOptions {
  WeightFormat from = WeightFormat::hearth;
  std::string config{};  ///< the configuration's file; empty: config.json beside the weights, if any
  /// Tensors of the file that are not taken, by beginnings of their names with or without their prefix ("bert.").
  std::vector<std::string> leave_out{};
  /// What will not be loaded into a model: such tensors may be there where the format has no place for them. Those in
  /// `unused` may be named as the file does, with or without the prefix, or as Hearth does.
  LoadRules rules{};
};

inline constexpr const char* normalize_reminder = "data.normalize is to be the same";

struct ImportedWeights {
  WeightSet weights;  ///< with Hearth's names and layout
  /// The model that they belong to, as a run's "model" describes it: models::make(model, {}) makes it. Without a
  /// configuration null, or of transformers what is usual, without sizes. It is kept in the weights' metadata, and so
  /// in a file of them.
  Json model{};
  NameReport report{};
  std::vector<std::string> notes{};  ///< what was assumed, and what is to be heeded beside the weights
  /// The classes that the rows of `class_head` score, as the configuration names them ("id2label" of transformers,
  /// "label_names" of timm); none where it does not, or by transformers' "LABEL_0", "LABEL_1" and so on. The
  /// metadata has them too.
  std::vector<std::string> classes{};
  std::string class_head{};  ///< the name of that weight; empty without classes
  /// By what images were normalised, for each channel, as a configuration of timm tells; none where it does not. The
  /// note that ends in `normalize_reminder` says so.
  std::vector<double> image_mean{}, image_std{};
  /// What load_weights() still is to be told of `rules.unused`, in Hearth's names.
  std::vector<std::string> unused{};
};

/// Reads weights, and what the model must be: of the formats of transformers from its config.json and from the
/// modules.json of sentence-transformers; of timm's from its config.json; of Hearth's own from the metadata that a
/// conversion wrote, or from the config.json in a checkpoint. FileError for a configuration with keys that cannot be
/// followed, and for a file of torch.save() as one in Hearth's layout; UsageError for a beginning in `leave_out` that
/// no name has. Tensors that do not fit the names, or the sizes of the configuration, are in the report.
HEARTH_API ImportedWeights import_weights(const std::string& path, const ImportOptions& options);

/// The model of weights in a format of transformers, with its sizes, by the configuration alone: `config`, or
/// config.json beside them. Null where there is none, and of other formats. FileError as of import_weights().
HEARTH_API Json model_of_configuration(const std::string& path, WeightFormat from, const std::string& config);

/// The faults as report.faults() has them, and behind them what they come from where the names show it: PyTorch's
/// DistributedDataParallel writes "module." before each.
HEARTH_API std::string faults_with_reason(const NameReport& report, const std::string& prefix);

/// What to say of weights in Hearth's names that are to be written in a format of transformers: the entries of
/// config.json with which it computes the same, or that they are not known; "" for other formats. FileError where the
/// format has no such model.
HEARTH_API std::string configuration_note(const ImportedWeights& weights, const std::string& source, WeightFormat to);

/// The path of the config.json beside weights, whether there is one or not.
HEARTH_API std::string default_config_of(const std::string& weights);

/// The model that a conversion noted in the metadata; null if none did. FileError, naming `source`, for a note that
/// is no JSON.
HEARTH_API Json noted_model(const WeightSet& weights, const std::string& source);

/// ConfigError with a line for each option of a run's model (with every key) that would compute something else with
/// weights of `required`. Sizes are left to the shapes of tensors. `source` names the weights.
HEARTH_API void require_same_model(const Json& model, const Json& required, const std::string& source);

}  // namespace hearth::models
