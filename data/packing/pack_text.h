// SPDX-License-Identifier: Apache-2.0
// Packing text into token files (data/text/tokens.h), as `hearth data pack` does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/registry.h"

namespace hearth::data {

/// One token file that pack_text() wrote.
struct PackedFile {
  std::string path;
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t characters = 0;
  std::int64_t bytes_an_id = 0;
  Warnings left_out{};  ///< pairs that are in neither file of a part; `first` in that of the targets only
};

/// Tokenises the sequences of a "text" or "parallel_text" dataset into token files, train.tokens, train.source.tokens
/// and so on, with the tokenizer beside them, so that "packed" may name the folder, which is refused where this failed
/// halfway. Of pairs those that a run would not take are left out, or refused as the run would do. ConfigError for a
/// dataset of another type; FileError for files that cannot be written or removed.
HEARTH_API std::vector<PackedFile> pack_text(const Datasets::Component& data, const std::string& folder);

}  // namespace hearth::data
