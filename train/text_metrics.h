// SPDX-License-Identifier: Apache-2.0
// What an evaluation of texts tells beside loss and accuracy.
#pragma once

#include "core/io/json_text.h"
#include "data/text/token_set.h"
#include "train/session.h"

namespace hearth::train {

/// Sets `perplexity` and, where every id of the part was predicted, `bits_per_character`.
void set_text_metrics(Json& record, const Loss& loss, const Meter& meter, const data::TokenDataset& part);

}  // namespace hearth::train
