// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a line, each reaching the system before the call returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "core/io/json_text.h"

namespace hearth::train {

class MetricsLog {
 public:
  /// Opens `path` and cuts it to `keep_bytes`, so that a resumed run rewrites what it logged after its checkpoint. It
  /// is cut before the first line among these that is not whole or no record.
  MetricsLog(const std::string& path, std::int64_t keep_bytes);

  void add(const Json& record);
  /// Makes what was added durable.
  void sync() { writer_.sync(); }
  /// Bytes in the file.
  std::int64_t bytes() const { return static_cast<std::int64_t>(writer_.size()); }
  /// What was lost of `keep_bytes`, and why; "" if nothing was.
  const std::string& lost() const { return lost_; }

 private:
  std::string lost_;
  FileWriter writer_;
};

/// The records of a metrics file; of more than 2000 of training, or 1000 of evaluations, every so many, the last and
/// those of the evaluation `best_step`. A last line that a crash cut short is left out; any other bad line that is read
/// is a DataError.
std::vector<Json> read_metrics(const std::string& path, std::int64_t best_step = -1);

}  // namespace hearth::train
