// SPDX-License-Identifier: Apache-2.0
#include "train/step/compression.h"

#include "core/error.h"

namespace hearth::train {

dist::StrategyFactory compression_of(const RunConfig& config, Device device, std::int64_t steps_per_epoch) {
  const std::string &type = config.dist.compress.type(), &optimizer = config.optimizer.type();
  HEARTH_CHECK(ConfigError, device.is_cpu(), "/dist/compress: ", type, " runs on the CPU, this run computes on ",
               device, "; set dist.compress to null, or compress by dist.wire bf16");
  HEARTH_CHECK(ConfigError, !config.train.deterministic, "/dist/compress: ", type,
               " compresses the gradients of each rank, so that the weights depend on their number, and "
               "/train/deterministic is on, which gives the same bits on any number; leave the one or the other out");
  HEARTH_CHECK(ConfigError, type != "onebit" || optimizer == "sgd", "/dist/compress: onebit does not go with ",
               optimizer,
               ", which divides by magnitudes of gradients that signs do not keep; use sgd, or compress by int8");
  const std::optional<optim::SgdOptions> sgd = optim::sgd_options(config.optimizer);
  if (type == "dgc") {
    HEARTH_CHECK(ConfigError, sgd && sgd->momentum > 0 && sgd->dampening == 0,
                 "/dist/compress: dgc applies the momentum of sgd before the sum, and the optimizer is ", optimizer,
                 sgd ? sgd->momentum > 0 ? " with dampening" : " without momentum" : "",
                 "; use sgd with momentum above 0 and dampening 0, or compress by powersgd");
    HEARTH_CHECK(ConfigError, !config.train.clip_norm,
                 "/train/clip_norm: dgc clips gradients before it accumulates them; give dist.compress.clip_norm "
                 "instead");
  }
  return config.dist.compress.make({.seed = config.seed,
                                    .steps_per_epoch = steps_per_epoch,
                                    .momentum = sgd ? sgd->momentum : 0,
                                    .nesterov = sgd && sgd->nesterov});
}

}  // namespace hearth::train
