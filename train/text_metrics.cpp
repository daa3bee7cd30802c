// SPDX-License-Identifier: Apache-2.0
#include "train/text_metrics.h"

#include "data/text/error_rate.h"

namespace hearth::train {

void set_text_metrics(Json& record, const Loss& loss, const Meter& meter, const data::TokenDataset& part) {
  if (!loss.is_likelihood || part.labelled() != nullptr) return;
  record.set("perplexity", data::perplexity(meter.loss()));
  if (meter.samples == part.predicted_tokens() && part.characters() > 0)
    record.set("bits_per_character", data::bits_per_character(meter.loss(), meter.samples, part.characters()));
}

}  // namespace hearth::train
