// SPDX-License-Identifier: Apache-2.0
#include "train/task/fitting_model.h"

#include <algorithm>

#include "train/task/task.h"

namespace hearth::train {
namespace {

constexpr const char* image_models[] = {"resnet", "swin", "vgg"};
constexpr const char* mask_models[] = {"deeplabv3", "fcn", "unet"};
constexpr const char* other_models[] = {"bert", "gpt", "mlp", "transformer"};

template <class Names>
bool is_among(const std::string& name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

void require_model_among(const ChosenComponents& chosen, std::initializer_list<const char*> fitting) {
  const std::string& type = chosen.model.type();
  if (is_among(type, fitting) ||
      !(is_among(type, image_models) || is_among(type, mask_models) || is_among(type, other_models)))
    return;
  std::string names;
  for (const char* const name : fitting) names += join_text(names.empty() ? "\"" : " or \"", name, "\"");
  throw ConfigError(join_text("/model/type: \"", type, "\" is not for /data/type \"", chosen.data.type(), "\"; use ",
                              names, ", or other data"));
}

void refuse_image_model(const ChosenComponents& chosen, const std::string& sample) {
  const std::string& type = chosen.model.type();
  HEARTH_CHECK(ConfigError, !is_among(type, image_models), "/model/type: \"", type,
               "\" is for images, [H, W, C], but samples of /data/type \"", chosen.data.type(), "\" are ", sample,
               "; use \"mlp\", or data of images");
}

}  // namespace hearth::train
