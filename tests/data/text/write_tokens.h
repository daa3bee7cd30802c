// SPDX-License-Identifier: Apache-2.0
// Tokens in memory as a token file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text/token_writer.h"

namespace hearth::data {

inline void write_tokens(const Tokens& tokens, const std::string& path) {
  const Tokens::Meaning& meaning = tokens.meaning();
  TokenWriter writer(path, meaning.vocabulary, meaning.digest);
  writer.add_characters(meaning.characters);
  std::vector<std::int32_t> ids;
  for (std::int64_t sequence = 0; sequence < tokens.sequences(); ++sequence) {
    ids.resize(static_cast<std::size_t>(tokens.length(sequence)));
    tokens.copy(tokens.begin(sequence), tokens.length(sequence), ids.data());
    writer.append(ids);
    writer.end_sequence();
  }
  writer.finish();
}

}  // namespace hearth::data
