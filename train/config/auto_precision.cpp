// SPDX-License-Identifier: Apache-2.0
#include "train/config/auto_precision.h"

#include <algorithm>

#include "core/cpu/amx.h"
#include "ops/onednn/onednn.h"

namespace hearth::train {
namespace {

/// Types of models whose accuracy over three seeds stands in docs/precision.md, in f32 and in bf16.
constexpr const char* accurate_in_bf16[] = {"resnet", "swin", "gpt", "bert", "transformer"};

/// Why f32 is taken, or empty.
std::string why_f32(const std::string& model, Device device) {
  if (!device.is_cuda() && !cpu::dnn::has_hardware_bf16() && !cpu::amx::unsupported().empty())
    return "nothing here multiplies bf16 in hardware";
  if (std::find(std::begin(accurate_in_bf16), std::end(accurate_in_bf16), model) == std::end(accurate_in_bf16))
    return "nobody has measured the accuracy of model \"" + model + "\" in bf16";
  return "";
}

}  // namespace

std::string settle_precision(LoadedConfig& loaded, Device device) {
  PrecisionOptions& precision = loaded.config.precision;
  if (precision.level != PrecisionLevel::automatic) return "";
  const std::string reason = why_f32(loaded.config.model.type(), device);
  precision.level = reason.empty() ? PrecisionLevel::O2 : PrecisionLevel::O0;
  precision.dtype = reason.empty() ? ComputeType::bf16 : ComputeType::f32;
  Json document = loaded.resolved.at("precision");
  document.set("level", name_of(precision.level)).set("dtype", name_of(precision.dtype));
  loaded.resolved.set("precision", std::move(document));
  return reason.empty() ? "bf16 is multiplied in hardware" : reason;
}

}  // namespace hearth::train
