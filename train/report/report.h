// SPDX-License-Identifier: Apache-2.0
// report.html: one self-contained page of a run, readable offline and printable, without script.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace hearth::train {

/// The page for a run: its run.json (may be empty), resolved config and metrics records.
std::string report_html(const Json& run_info, const Json& config, const std::vector<Json>& records);

/// Reads run.json, config.json and metrics.jsonl of a run's folder and writes report.html beside them. `best_step` is
/// that of the best evaluation so far, or -1: run.json tells it at the end only. Without a valid split there is none.
void write_report(const std::string& folder, std::int64_t best_step = -1);

}  // namespace hearth::train
