// SPDX-License-Identifier: Apache-2.0
// What can be told about a set of sequences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "data/text/token_set.h"

namespace hearth::data {

struct TextInspection {
  std::string source;
  std::int64_t samples = 0;  ///< rows of an epoch in order
  std::int64_t vocabulary = 0;
  std::int64_t source_vocabulary = 0;  ///< 0 where there is no source
  std::int64_t classes = 0;            ///< of labelled sequences
  std::int64_t predicted_tokens = 0;
  std::int64_t characters = 0;
  std::int64_t batches = 0;
  Padding padding;
  std::vector<TokenDataset::Share> shares{};  ///< of what a mixture is made of
  Warnings warnings;
};

/// Of the batches that a loader with this batch size makes. Reads every id: DataError if they are damaged.
TextInspection inspect_text(const TokenDataset& set, std::int64_t batch_size);
Json to_json(const TextInspection& inspection);
std::string to_text(const TextInspection& inspection);

}  // namespace hearth::data
