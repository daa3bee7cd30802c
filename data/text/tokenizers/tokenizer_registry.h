// SPDX-License-Identifier: Apache-2.0
// Tokenizers by name, for run configurations.
#pragma once

#include "core/config/config.h"
#include "data/text/tokenizers/tokenizer.h"

namespace hearth::data {

/// What a tokenizer is made from: its node's fields and the training text.
using Tokenizers = Registry<TokenizerPointer(Corpus)>;
/// "characters", "words", "bpe", "wordpiece", "sentencepiece", and what the program adds.
HEARTH_API Tokenizers& tokenizers();

}  // namespace hearth::data
