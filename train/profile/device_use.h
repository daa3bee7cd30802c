// SPDX-License-Identifier: Apache-2.0
// What the steps of a run ask of its device, and how much of what the device could do that is.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/export.h"
#include "core/io/json_text.h"

namespace hearth::train {

/// What a step asks of the device.
struct StepWork {
  double flops = 0;
  double bytes = 0;           ///< that its kernels and library calls move, on a CUDA device
  std::int64_t launches = 0;  ///< kernels, library calls, copies and fills there
};

/// Adds up what is asked from step to step. A replay asks for what the step before it asked for.
class HEARTH_API StepWorkMeter {
 public:
  void begin_step();
  void end_step();
  /// Of the last step.
  const StepWork& last() const { return last_; }
  /// Of all steps since clear().
  const StepWork& sum() const { return sum_; }
  void clear() { sum_ = {}; }

 private:
  StepWork before_, last_, sum_;
};

/// What a device can do at most; 0 where it is not known here.
struct DevicePeak {
  double tflops = 0;  ///< dense products
  double gbs = 0;     ///< of its memory
};
/// Products by the type of their factors; sums are f32.
enum class Products : std::uint8_t { half, tf32, f32 };
/// What the maker's data sheet says of a GPU: dense products of this type, and its memory.
HEARTH_API DevicePeak known_peak(std::string_view device_name, Products products = Products::half);

/// Sets "mfu" and "bandwidth", the parts of the peak's arithmetic and memory rate that `work` within so many seconds
/// is; neither where the peak is not known.
HEARTH_API void write_use(Json& record, const StepWork& work, double seconds, const DevicePeak& peak);

}  // namespace hearth::train
