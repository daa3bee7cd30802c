// SPDX-License-Identifier: Apache-2.0
// The folder of a run: config.json, metrics.jsonl, checkpoints/, event files, report.html and run.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hearth/core/json_text.h"
#include "hearth/train/metrics_log.h"
#include "hearth/train/tensorboard.h"

namespace hearth::train {

class RunFolder {
 public:
  /// Makes the folder if need be. FileError if it cannot be written.
  explicit RunFolder(std::string path);

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Deletes what an earlier run left: only the files and checkpoints that a run writes.
  void clear();
  /// Opens the metrics for writing, cut to `metrics_bytes`, and the event file if wanted; `first_step` is the first
  /// that will be added. Writes config.json.
  void open(const Json& resolved_config, std::int64_t metrics_bytes, bool tensorboard, std::int64_t first_step = 0);
  /// One line of metrics.jsonl, and its numbers as TensorBoard scalars "<split>/<key>".
  void add(const Json& record);
  /// Bytes of metrics.jsonl so far.
  std::int64_t metrics_bytes() const;

 private:
  std::string path_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorBoardWriter> events_;
};

}  // namespace hearth::train
