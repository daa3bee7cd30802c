// SPDX-License-Identifier: Apache-2.0
// Weights as other programs name and lay them out: PyTorch's filters, GPT-2 and BERT as HuggingFace's transformers save
// them, Swin as timm and its authors have it.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/parameters.h"
#include "core/io/safetensors.h"
#include "core/tensor.h"

namespace hearth::models {

enum class WeightFormat {
  hearth,   ///< as checkpoints of this library are
  torch,    ///< names as here, filters [K, C, R, S]; Swin's "relative_position_index"; may have batch norms' counters
  hf_gpt2,  ///< linear weights as [inputs, outputs]; names with or without "transformer."; a tied "lm_head.weight"
            ///< and the buffers "attn.bias" may be there
  hf_bert,  ///< query, key and value apart; names with or without "bert."; "gamma" and "beta" for weight and bias of
            ///< norms; the buffer "position_ids", tied decoders and the head for the next sentence may be there
  hf_roberta,      ///< RoBERTa: BERT's encoder, the heads "lm_head" and "classifier"; names with or without "roberta."
  hf_distilbert,   ///< DistilBERT: "transformer.layer.0.attention.q_lin"; names with or without "distilbert."
  timm_swin,       ///< Swin of timm: "layers.0.blocks.0.mlp.fc1.weight", merging first in a stage, "head.fc"
  microsoft_swin,  ///< Swin of its authors: merging last in a stage, "head"; so is it in timm before 0.9. In both the
                   ///< buffers "relative_position_index" and "attn_mask" may be there
};

/// What configurations and commands call them.
inline const std::initializer_list<std::pair<std::string_view, WeightFormat>> weight_formats = {
    {"hearth", WeightFormat::hearth},         {"torch", WeightFormat::torch},
    {"hf-gpt2", WeightFormat::hf_gpt2},       {"hf-bert", WeightFormat::hf_bert},
    {"hf-roberta", WeightFormat::hf_roberta}, {"hf-distilbert", WeightFormat::hf_distilbert},
    {"timm-swin", WeightFormat::timm_swin},   {"microsoft-swin", WeightFormat::microsoft_swin}};
/// The format of that name; UsageError for others.
HEARTH_API WeightFormat weight_format_named(const std::string& name);
HEARTH_API std::string_view name_of(WeightFormat format);

/// The entry of the metadata with the model that weights belong to (models/weights/weights_import.h).
inline constexpr const char* model_note = "hearth.model";

struct Weight {
  std::string name;
  Tensor value;
};

/// Tensors in host memory, and the free text beside them.
struct WeightSet {
  std::vector<Weight> weights{};
  SafetensorsMetadata metadata{};
  std::vector<std::string> notes{};  ///< what of the file was not read
};

/// What does not fit. Each entry names a tensor, and its shape where that matters.
struct HEARTH_API NameReport {
  std::vector<std::string> missing{};
  std::vector<std::string> unexpected{};
  std::vector<std::string> misshaped{};
  std::vector<std::string> mistyped{};    ///< integers or booleans where floating values belong, or the reverse
  std::vector<std::string> non_finite{};  ///< with NaN or infinite values; only of what is loaded into a model
  std::vector<std::string> left_out{};    ///< what needs not be kept: buffers, copies of tied weights; not a fault
  bool fits() const {
    return missing.empty() && unexpected.empty() && misshaped.empty() && mistyped.empty() && non_finite.empty();
  }
  /// The faults, each on a line that begins with `prefix`, without a line's end at the end.
  std::string faults(const std::string& prefix) const;
};

/// A .safetensors file, an index of several, or a folder, as SafetensorsSet takes them; also a file of torch.save(), or
/// the folder of a pytorch_model.bin (models/weights/torch_file.h). Checksums are compared. FileError.
HEARTH_API WeightSet read_weights(const std::string& path);
/// Whether it is PyTorch's count of how often a batch norm moved its running statistics ("bn.num_batches_tracked").
/// With a fixed momentum nothing depends on it, and PyTorch loads weights without it.
HEARTH_API bool counts_batches(const Weight& weight);
/// The files that read_weights() reads.
HEARTH_API std::vector<std::filesystem::path> weight_files(const std::string& path);

/// Names and layout as Hearth's own models have them. What was left out but is to be there again in the other
/// direction is noted in the metadata, so that from_hearth() gives back equal weights. Types stay as they are. The
/// result has what fits, and `report` tells the rest.
HEARTH_API WeightSet to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report);
/// The inverse. Without notes in the metadata the weights of GPT-2 have no prefix, those of BERT "bert." where there is
/// a head for masked sequences or classes.
HEARTH_API WeightSet from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report);

/// Which of a model's tensors need not come from a file, by beginnings of their names.
struct LoadRules {
  std::vector<std::string> reinitialize{};  ///< of the model: keep their initial values, whatever the file has
  std::vector<std::string> unused{};        ///< of the file: the model has no use for them
};

/// Copies `weights` into the parameters and buffers of a model, if the report, which it returns, has no faults;
/// otherwise nothing is changed. Floating types are converted to the model's. Entries of `left_out` are those that
/// the rules name. ConfigError for a rule that names none.
HEARTH_API NameReport load_weights(const std::vector<NamedTensor>& tensors, const WeightSet& ours,
                                   const LoadRules& rules = {});

/// A line for each tensor with NaN or infinite values: its name and how many there are.
HEARTH_API std::vector<std::string> non_finite_tensors(const std::vector<NamedTensor>& tensors);
HEARTH_API std::vector<std::string> non_finite_tensors(const WeightSet& set);

}  // namespace hearth::models
