// SPDX-License-Identifier: Apache-2.0
// The configuration fields of the ways to compress gradients.
#include "dist/strategy/registry.h"

#include <cmath>

#include "dist/strategy/dgc.h"
#include "dist/strategy/powersgd.h"
#include "dist/strategy/quantized.h"

namespace hearth::dist {
namespace {

/// Options of the codes of blocks, as a configuration spells them.
struct BlockConfig {
  std::int64_t block = QuantizedOptions().block;
};
struct OneBitConfig : BlockConfig {};
struct Int8Config : BlockConfig {};
struct DgcConfig {
  double sparsity = DgcOptions().sparsity;
  double warmup_epochs = 4;
  std::optional<double> clip_norm;
};
struct PowerSgdConfig {
  std::int64_t rank = PowerSgdOptions().rank;
};

template <class Config>
void describe_block(Fields<Config>& f) {
  f.integer("block", &Config::block, {.min = 64, .max = 4096},
            "Gradients of one parameter that share a scale; a multiple of 64.");
  f.rule([](const Config& o) { return o.block % 64 != 0 ? "block is a multiple of 64" : ""; });
}
void describe(Fields<OneBitConfig>& f) { describe_block(f); }
void describe(Fields<Int8Config>& f) { describe_block(f); }

void describe(Fields<DgcConfig>& f) {
  f.number("sparsity", &DgcConfig::sparsity, {.above = 0, .below = 1},
           "Part of each parameter's accumulated gradient that a step does not send.");
  f.number("warmup_epochs", &DgcConfig::warmup_epochs, {.min = 0},
           "Epochs in which the sparsity rises to that, from 0.75 in four stages.");
  f.number("clip_norm", &DgcConfig::clip_norm, {.above = 0},
           "Largest norm of the whole gradient, in place of train.clip_norm: each rank clips its gradient before it "
           "accumulates, to this over the root of the ranks. null: no limit.");
}

void describe(Fields<PowerSgdConfig>& f) {
  f.integer("rank", &PowerSgdConfig::rank, {.min = 1, .max = 64}, "Rank of what stands for a matrix of gradients.");
}

StrategyFactory quantized(std::unique_ptr<Codec> (*codec)(), const QuantizedOptions& options) {
  return [=](const StrategyContext& context) { return std::make_unique<Quantized>(context, codec(), options); };
}

StrategyFactory make_onebit(const OneBitConfig& o, const CompressionInfo& info) {
  return quantized(sign_codec, {.block = o.block, .seed = info.seed, .error_feedback = true});
}

StrategyFactory make_int8(const Int8Config& o, const CompressionInfo& info) {
  return quantized(int8_codec, {.block = o.block, .seed = info.seed});
}

StrategyFactory make_dgc(const DgcConfig& o, const CompressionInfo& info) {
  const DgcOptions options{.sparsity = o.sparsity,
                           .warmup_steps = std::llround(o.warmup_epochs * static_cast<double>(info.steps_per_epoch)),
                           .momentum = info.momentum,
                           .nesterov = info.nesterov,
                           .clip_norm = o.clip_norm};
  return [=](const StrategyContext& context) { return std::make_unique<Dgc>(context, options); };
}

StrategyFactory make_powersgd(const PowerSgdConfig& o, const CompressionInfo& info) {
  const PowerSgdOptions options{.rank = o.rank, .seed = info.seed};
  return [=](const StrategyContext& context) { return std::make_unique<PowerSgd>(context, options); };
}

}  // namespace

Compressions& compressions() {
  static Compressions registry(
      "compress", "How gradients are compressed on their way between ranks.", [](Compressions& r) {
        r.add<OneBitConfig>("onebit", "The signs, with error feedback on both ways. With sgd only.", make_onebit);
        r.add<Int8Config>("int8", "8 bits a gradient, rounded at random.", make_int8);
        r.add<DgcConfig>("dgc",
                         "Deep Gradient Compression: the largest of what has accumulated, with momentum before the "
                         "sum. With sgd and momentum only.",
                         make_dgc);
        r.add<PowerSgdConfig>("powersgd", "Products of thin matrices in place of matrices, with error feedback.",
                              make_powersgd);
      });
  return registry;
}

}  // namespace hearth::dist
