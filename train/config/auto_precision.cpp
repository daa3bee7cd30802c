// SPDX-License-Identifier: Apache-2.0
#include "train/config/auto_precision.h"

#include <algorithm>

#include "core/cpu/amx.h"
#include "ops/onednn/onednn.h"

namespace hearth::train {
namespace {

/// Types of models whose accuracy over three seeds stands in docs/precision.md, in f32 and in bf16.
constexpr const char* accurate_in_bf16[] = {"resnet", "swin", "gpt", "bert", "transformer"};

bool is_accurate_in_bf16(const std::string& model) {
  return std::find(std::begin(accurate_in_bf16), std::end(accurate_in_bf16), model) != std::end(accurate_in_bf16);
}

/// Why f32 is taken, or empty.
std::string why_f32(const std::string& model, Device device) {
  if (!device.is_cuda() && !cpu::dnn::has_hardware_bf16() && !cpu::amx::unsupported().empty())
    return "nothing here multiplies bf16 in hardware";
  if (!is_accurate_in_bf16(model)) return "nobody has measured the accuracy of model \"" + model + "\" in bf16";
  return "";
}

/// Why f32 products stay f32, or empty; after the level was settled.
std::string why_no_tf32(const RunConfig& config, Device device) {
  if (config.precision.dtype != ComputeType::f32) return "there are no f32 products";
  if (!device.is_cuda()) return "it is of CUDA devices";
  if (config.train.deterministic) return "train.deterministic";
  const std::string model = config.model.type();
  return is_accurate_in_bf16(model) ? ""
                                    : "nobody has measured the accuracy of model \"" + model + "\" with fewer bits";
}

std::string settle_level(LoadedConfig& loaded, Device device) {
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

std::string settle_tf32(LoadedConfig& loaded, Device device) {
  PrecisionOptions& precision = loaded.config.precision;
  if (!precision.tf32.has(Tf32Mode::automatic)) return "";
  const std::string reason = why_no_tf32(loaded.config, device);
  const Tf32Mode chosen = reason.empty() ? Tf32Mode::on : Tf32Mode::off;
  const auto settled = [&](Tf32Mode mode) { return mode == Tf32Mode::automatic ? chosen : mode; };
  Tf32Options& tf32 = precision.tf32;
  tf32.all = settled(tf32.all);
  for (std::optional<Tf32Mode>* const mode : {&tf32.matmul, &tf32.conv})
    if (*mode) *mode = settled(**mode);
  const auto word = [](const std::optional<Tf32Mode>& mode) { return mode ? Json(name_of(*mode)) : Json(); };
  Json document = loaded.resolved.at("precision");
  document.set(
      "tf32",
      Json::object().set("all", name_of(tf32.all)).set("matmul", word(tf32.matmul)).set("conv", word(tf32.conv)));
  loaded.resolved.set("precision", std::move(document));
  return reason.empty() ? "TF32 on, with more bits than bf16, which loses no accuracy here" : "TF32 off: " + reason;
}

}  // namespace

std::string settle_precision(LoadedConfig& loaded, Device device) {
  const std::string level = settle_level(loaded, device), tf32 = settle_tf32(loaded, device);
  return level.empty() || tf32.empty() ? level + tf32 : join_text(level, "; ", tf32);
}

}  // namespace hearth::train
