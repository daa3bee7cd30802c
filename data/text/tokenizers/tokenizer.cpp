// SPDX-License-Identifier: Apache-2.0
#include "data/text/tokenizers/tokenizer.h"

#include "core/io/checksum.h"

namespace hearth::data {

std::string Tokenizer::digest() const { return sha256(to_text(to_json())); }

}  // namespace hearth::data
