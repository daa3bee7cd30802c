// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/trained_weights.h"

#include <algorithm>

#include "core/io/file.h"
#include "core/io/json_text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_set.h"

namespace hearth::train {
namespace {

/// Whether the run of a checkpoint keeps an average. An earlier version wrote its decay as a number.
bool keeps_average(const std::string& checkpoint) {
  const Json config = read_json(checkpoint + "/config.json", small_file);
  const Json* const train = config.find("train");
  const Json* const average = train != nullptr ? train->find("ema") : nullptr;
  if (average == nullptr || !average->is_object()) return average != nullptr && average->is_number();
  const Json* const decay = average->find("decay");
  return decay != nullptr && decay->is_number();
}

}  // namespace

std::optional<TrainedWeights> find_trained_weights(const std::string& wanted) {
  const std::string path = set_behind(wanted).string();
  const auto has = [&](const char* name) { return file_exists(path + "/" + name); };
  const bool is_checkpoint = has("manifest.json") && has("state.safetensors");
  const bool is_run = has("checkpoints") && !has("model.safetensors") && !has("model.safetensors.index.json");
  if (!is_checkpoint && !is_run) return std::nullopt;
  const std::string checkpoint = checkpoint_at(wanted);
  return TrainedWeights{checkpoint, keeps_average(checkpoint)};
}

models::ImportedWeights import_trained_weights(const TrainedWeights& trained, const models::ImportOptions& options) {
  models::ImportedWeights imported = models::import_weights(trained.checkpoint + "/model.safetensors", options);
  if (!trained.averaged) return imported;
  const auto session = open_trained(trained.checkpoint, {"device=\"cpu\""});
  session->use_averaged_weights();
  for (models::Weight& weight : imported.weights.weights) {
    const auto& entries = session->model_state.entries();
    const auto average =
        std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == weight.name; });
    HEARTH_CHECK(FileError, average != entries.end(), trained.checkpoint, ": the model of its config.json has no \"",
                 weight.name, "\", so that the average of it is not known");
    weight.value = average->tensor->clone();
  }
  return imported;
}

}  // namespace hearth::train
