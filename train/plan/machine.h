// SPDX-License-Identifier: Apache-2.0
// What a machine can do: the description that `hearth plan` predicts times from. A few are built in; `hearth doctor
// --speed` writes that of the machine at hand; users write others as JSON files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device.h"
#include "core/export.h"
#include "train/config/run_config.h"

namespace hearth::train {

/// TFLOP/s of large products by type; 0 where the machine has none of its own.
struct PeakRates {
  double f32 = 0;
  double tf32 = 0;
  double bf16 = 0;
  double f16 = 0;
};

/// The part of its limit that each class of op reaches at sizes of the reference models: of the peak rate for those
/// with arithmetic, of the copy rate for the others. Winograd counts the arithmetic of the plain convolution, so that
/// it may be above 1.
struct Efficiency {
  double matmul = 0.8;
  double conv = 0.7;
  double winograd = 1.5;
  double depthwise = 0.05;
  double attention = 0.35;
  double operands = 0.8;  ///< memory traffic of ops with arithmetic
  double norm = 0.55;
  double update = 0.85;
  double memory = 0.8;
};

struct HEARTH_API Machine {
  std::string name;
  std::string device = "cpu";  ///< or "cuda"
  std::int64_t cores = 1;      ///< threads that compute; multiprocessors of a GPU
  std::int64_t memory_bytes = 0;
  PeakRates peak_tflops;
  double copy_gbs = 0;      ///< memory, reads and writes counted
  double cache_gbs = 0;     ///< the same within `cache_bytes`; 0: as copy_gbs
  double cache_bytes = 0;   ///< of an op's operands and results that are found in caches
  double op_us = 0;         ///< of an op call besides: launches, threads that begin and end
  double host_gbs = 0;      ///< from the host's memory to a GPU's
  double watts = 0;         ///< at full load; 0: not known
  std::string source = "";  ///< where the numbers are from
  Efficiency efficiency;
  /// By op, in place of the class: "conv2d (backward)", "conv2d:winograd", each also with "/bf16" behind it.
  std::map<std::string, double> ops{};

  bool is_cuda() const { return device == "cuda"; }
  DeviceType type() const { return is_cuda() ? DeviceType::cuda : DeviceType::cpu; }
  /// TFLOP/s of products in a type; that of f32 where the type has no rate of its own.
  double peak(ComputeType type) const;
};

HEARTH_API void describe(Fields<PeakRates>&);
HEARTH_API void describe(Fields<Efficiency>&);
HEARTH_API void describe(Fields<Machine>&);

/// ConfigError for unknown keys, values out of range and what is missing.
HEARTH_API Machine parse_machine(const Json& node);
/// parse_machine() reads it back.
HEARTH_API Json to_json(const Machine& machine);
/// Those built in.
HEARTH_API const std::vector<Machine>& known_machines();
/// A built-in machine by its name, whatever the case, or the one that a file describes: anything with a "/" or that
/// ends in ".json". UsageError for a name that is not known, with the nearest.
HEARTH_API Machine machine_named(const std::string& name);

/// Where `hearth doctor --speed` keeps the description of this machine's CPU or GPU; empty where there is no folder for
/// caches.
HEARTH_API std::string machine_file(DeviceType type);

}  // namespace hearth::train
