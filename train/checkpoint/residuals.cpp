// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/residuals.h"

#include "core/error.h"
#include "core/io/safetensors.h"

namespace hearth::train {

void require_same_residuals(const Session& session, const std::string& path) {
  const SafetensorsFile file(path);
  for (const TensorRecord& record : file.records()) {
    if (!record.name.starts_with("compress.") || record.shape.rank() != 2) continue;
    const std::int64_t ranks = record.shape[0];
    HEARTH_CHECK(ConfigError, !session.ranks->alone() && session.ranks->size() == ranks, path, " has \"", record.name,
                 "\" of ", ranks, " ranks, what each has not sent yet, and this run has ", session.ranks->size(),
                 session.ranks->alone() ? " process alone" : "", "; resume with ", ranks, " ranks (hearth launch -n ",
                 ranks, "), or train its weights on in another --out, with weights.path");
  }
}

}  // namespace hearth::train
