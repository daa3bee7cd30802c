// SPDX-License-Identifier: Apache-2.0
// The folder of a run: config.json, metrics.jsonl, checkpoints/, event files, report.html and run.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/io/json_text.h"

namespace hearth::train {

class MetricsLog;
class TensorBoardWriter;

/// Whether a run was written into this folder: its run.json or a checkpoint is there.
HEARTH_API bool holds_run(const std::string& folder);

/// Refuses a folder whose run would overwrite the configuration that it was read from (UsageError); the config.json of
/// a run's own folder is no such file.
HEARTH_API void require_apart(const std::string& folder, const std::string& config_path);

/// A file that one process at a time holds, until it ends or the object does. Where the file system has no locks,
/// nothing is held.
class HEARTH_API FileLock {
 public:
  /// Makes the file if need be. FileError if it cannot be opened.
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// False where another process, or object, holds it.
  bool held() const { return held_; }
  /// Who holds it, "pid 123 on alice"; "" where that is this object or cannot be told.
  const std::string& holder() const { return holder_; }

 private:
  int descriptor_;
  bool held_;
  std::string holder_;
};

class HEARTH_API RunFolder {
 public:
  /// Makes the folder if need be, and locks it for the life of the object. UsageError for an empty path; FileError if
  /// it cannot be written, or another process trains into it. Without `writes` nothing is made, locked, written or
  /// deleted: for ranks whose run is written by rank 0.
  explicit RunFolder(std::string path, bool writes = true);
  ~RunFolder();

  const std::string& path() const { return path_; }
  bool writes() const { return lock_ != nullptr; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Deletes what an earlier run left: only the files and checkpoints that a run writes. FileError, and nothing is
  /// deleted, where there are files of these names but no run.
  void clear();
  /// Opens the metrics for writing, cut to `metrics_bytes` or fewer, and the event file if wanted; `first_step` is the
  /// first that will be added. Writes config.json. Returns MetricsLog::lost().
  std::string open(const Json& resolved_config, std::int64_t metrics_bytes, bool tensorboard,
                   std::int64_t first_step = 0);
  /// One line of metrics.jsonl, and its numbers as TensorBoard scalars "<split>/<key>".
  void add(const Json& record);
  /// Bytes of metrics.jsonl so far.
  std::int64_t metrics_bytes() const;
  /// Makes metrics.jsonl durable.
  void sync_metrics();

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorBoardWriter> events_;
};

}  // namespace hearth::train
