// SPDX-License-Identifier: Apache-2.0
// Loading without a model, as `hearth bench data` measures it: the pipeline, each of its stages by itself, and what the
// machine could do with the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/splits.h"
#include "train/bench/bench.h"
#include "train/config/run_config.h"
#include "train/profile/input_use.h"

namespace hearth::train {

/// Samples a second that the machine could do; nothing where that cannot be measured of this data.
struct DataLimits {
  std::optional<double> disk_cold;  ///< reading the files of the data, on the disk only
  std::optional<double> disk_warm;  ///< the same from the system's memory
  std::optional<double> decode;     ///< decoding files in memory
  int at_once = 1;                  ///< threads that find a core
  double threads = 0;               ///< all stages on one thread, times these threads
  double bytes_a_sample = 0;        ///< of the files; 0 where not known

  /// The lowest but for disk_cold, which counts for data larger than memory only.
  double lowest() const;
};

struct DataBench {
  BenchCase pipeline;             ///< a batch, with the configured workers
  std::vector<BenchCase> stages;  ///< a batch in one stage by itself, on one thread
  InputUse use;                   ///< of the pipeline, whose taker does nothing else
  InputAdvice bottleneck;
  DataLimits limits;
  double samples_per_s = 0;  ///< of the pipeline
  double open_seconds = 0;   ///< from the configuration to datasets; text that is not packed is tokenised meanwhile
  std::int64_t epoch_samples = 0;

  /// Samples a second of a first epoch: opening, and the pipeline after it.
  double first_epoch_per_s() const;
};

/// Each of the measurements takes about so many seconds.
DataBench bench_data(const LoadedConfig& loaded, Device device, double seconds);

/// The same run on its data as `hearth data pack` puts them into `folder`. ConfigError for data that are neither text
/// nor parallel text, or packed already.
LoadedConfig packed_config(const LoadedConfig& loaded, const std::string& folder);

/// How many times faster `packed` is.
struct PackedSpeedup {
  double first_epoch = 0;
  double later_epochs = 0;
};
PackedSpeedup speedup_of(const DataBench& packed, const DataBench& loose);

/// Bench lines: of the pipeline with "stages", "limits" and "bottleneck", then of each stage.
std::vector<Json> to_json(const DataBench& measured);
/// The same for people.
std::string to_text(const DataBench& measured);

}  // namespace hearth::train
