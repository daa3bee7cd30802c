// SPDX-License-Identifier: Apache-2.0
// The fields of "precision", and what they mean together.
#include <string>

#include "core/text_stream.h"
#include "train/config/run_config.h"

namespace hearth::train {

const char* name_of(PrecisionLevel level) {
  constexpr const char* names[] = {"O0", "O1", "O2", "auto"};
  return names[static_cast<std::size_t>(level)];
}

const char* name_of(ComputeType type) {
  constexpr const char* names[] = {"f32", "tf32", "bf16", "f16"};
  return names[static_cast<std::size_t>(type)];
}

DType PrecisionOptions::type() const { return dtype == ComputeType::tf32 ? DType::f32 : dtype_named(name_of(dtype)); }

Tf32 PrecisionOptions::allowed_tf32() const {
  if (dtype == ComputeType::tf32) return true;
  return {tf32.of_matmul() == Tf32Mode::on, tf32.of_conv() == Tf32Mode::on};
}

const char* name_of(Tf32Mode mode) {
  constexpr const char* names[] = {"off", "on", "auto"};
  return names[static_cast<std::size_t>(mode)];
}

void describe(Fields<Tf32Options>& f) {
  const auto mode = [&f](std::string_view key, auto member, std::string_view doc) {
    f.choice(key, member, {{"off", Tf32Mode::off}, {"on", Tf32Mode::on}, {"auto", Tf32Mode::automatic}}, doc);
  };
  mode("all", &Tf32Options::all, "Of both kinds of operations below.");
  mode("matmul", &Tf32Options::matmul, "Of matrix products and linear layers. null: as `all`.");
  mode("conv", &Tf32Options::conv, "Of convolutions. null: as `all`.");
}

namespace {

/// Why the field tf32 does not go with the rest, or empty.
std::string tf32_fault(const PrecisionOptions& o) {
  if (o.tf32 != Tf32Options{} && o.dtype == ComputeType::tf32)
    return "dtype tf32 rounds all products and convolutions; leave the field tf32 out, or use it with level O0 and "
           "dtype f32";
  if (o.level == PrecisionLevel::automatic && o.tf32.has(Tf32Mode::on))
    return "level auto may choose bf16, which leaves no f32 products for tf32 on; use tf32 auto, or name level O0";
  if (o.dtype != ComputeType::f32 && (o.tf32.has(Tf32Mode::on) || o.tf32.has(Tf32Mode::automatic)))
    return join_text("tf32 is of f32 products, which dtype ", name_of(o.dtype),
                     " does not make; leave tf32 out, or use dtype f32");
  return "";
}

}  // namespace

void describe(Fields<PrecisionOptions>& f) {
  f.choice(
      "level", &PrecisionOptions::level,
      {{"O0", PrecisionLevel::O0},
       {"O1", PrecisionLevel::O1},
       {"O2", PrecisionLevel::O2},
       {"auto", PrecisionLevel::automatic}},
      "O0: everything in `dtype` f32. O1: convolutions and matrix products in the low-precision `dtype`, the rest as "
      "each operation needs; weights, their updates, statistics and losses stay f32. O2: the model's weights have low "
      "precision too, except those of norms; updates act on f32 values, which are what is saved. With tf32 level O1 "
      "keeps all in f32. auto, without a `dtype`: O2 with bf16 where the device multiplies bf16 in hardware and the "
      "model is one that docs/precision.md shows to lose no accuracy by it, else O0; the run's config.json has what it "
      "came to.");
  f.choice(
      "dtype", &PrecisionOptions::dtype,
      {{"f32", ComputeType::f32}, {"tf32", ComputeType::tf32}, {"bf16", ComputeType::bf16}, {"f16", ComputeType::f16}},
      "The type activations are held in: f32 with O0, bf16 or f16 with O1 and O2. tf32, with O1: f32, whose "
      "products cuBLASLt and cuDNN round to 10 bits of mantissa; on a CPU it is f32.");
  f.object("tf32", &PrecisionOptions::tf32,
           "Which f32 products cuBLASLt and cuDNN may round to 10 bits of mantissa on a CUDA device; of dtype f32. A "
           "word is that of all. auto: on where the device is a CUDA device, the model is one that docs/precision.md "
           "shows to lose no accuracy with even fewer bits, and train.deterministic is off; the run's config.json has "
           "what it came to.")
      .shorthand("all");
  f.number("loss_scale", &PrecisionOptions::loss_scale, {.above = 0, .max = 1e30, .words = {{"dynamic", 0}}},
           "Factor on the loss, which keeps small gradients within f16: dynamic starts at 65536, is halved when "
           "gradients overflow, in an update that is then skipped, and doubled after `growth_steps` updates in a row "
           "that do not. null: dynamic for f16, none for the other types, which need none.");
  f.integer("growth_steps", &PrecisionOptions::growth_steps, {.min = 1, .max = 1 << 30},
            "Updates without overflow after which a dynamic loss scale doubles. null: 2000.");
  f.number("growth_factor", &PrecisionOptions::growth_factor, {.above = 1, .max = 1e6},
           "By what a dynamic loss scale grows then. null: 2.");
  f.number("backoff_factor", &PrecisionOptions::backoff_factor, {.min = 0.1, .max = 0.9},
           "By what an overflow lowers a dynamic loss scale. null: 0.5.");
  f.integer("hysteresis", &PrecisionOptions::hysteresis, {.min = 1, .max = 1000},
            "The overflow, counted since the scale last grew, from which on each lowers it; those before skip their "
            "updates alone. null: 1.");
  f.rule([](const PrecisionOptions& o) -> std::string {
    const std::string type = name_of(o.dtype);
    if (std::string fault = tf32_fault(o); !fault.empty()) return fault;
    if (o.level == PrecisionLevel::automatic)
      return o.dtype != ComputeType::f32 || o.loss_scale || o.moves_scale()
                 ? "level auto chooses the dtype; leave dtype, loss_scale and the fields of a dynamic scale out, or "
                   "name a level"
                 : "";
    if (o.level == PrecisionLevel::O0 && o.dtype != ComputeType::f32)
      return join_text("level O0 computes in f32; use level O1", o.dtype == ComputeType::tf32 ? "" : " or O2", " for ",
                       type);
    if (o.level == PrecisionLevel::O2 && o.dtype == ComputeType::tf32)
      return "tf32 is a way to multiply f32, not a type that weights are held in; use level O1, or bf16 or f16";
    if (o.level != PrecisionLevel::O0 && o.dtype == ComputeType::f32)
      return join_text("level ", name_of(o.level), " needs a low-precision dtype; use bf16 or f16");
    if (o.dtype != ComputeType::f16 && o.loss_scale)
      return type + " has the exponents of f32, so a loss scale does nothing for it; leave loss_scale out, or use f16";
    if (o.moves_scale() && (o.dtype != ComputeType::f16 || o.loss_scale.value_or(0) != 0))
      return "growth_steps, growth_factor, backoff_factor and hysteresis are of a dynamic loss scale; use them with "
             "dtype f16 and loss_scale \"dynamic\"";
    return "";
  });
}

}  // namespace hearth::train
