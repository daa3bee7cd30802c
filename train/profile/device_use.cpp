// SPDX-License-Identifier: Apache-2.0
#include "train/profile/device_use.h"

#include "core/cuda/counters.h"
#include "core/profiler.h"

namespace hearth::train {
namespace {

StepWork work_so_far() {
  const cuda::Counters counted = cuda::counters();
  return {profiler::total_flops(), static_cast<double>(counted.bytes_moved),
          counted.launches + counted.library_calls + counted.copies_within};
}

}  // namespace

void StepWorkMeter::begin_step() { before_ = work_so_far(); }

void StepWorkMeter::end_step() {
  const StepWork now = work_so_far();
  if (now.flops > before_.flops)
    last_ = {now.flops - before_.flops, now.bytes - before_.bytes, now.launches - before_.launches};
  sum_ = {sum_.flops + last_.flops, sum_.bytes + last_.bytes, sum_.launches + last_.launches};
}

DevicePeak known_peak(std::string_view device_name, Products products) {
  struct DataSheet {
    std::string_view device;
    double half, tf32, f32, gbs;
  };
  // The first whose name is part of the device's.
  constexpr DataSheet known[] = {
      {"B200", 2250, 1125, 75, 8000},      {"H200", 989, 494.5, 67, 4800},    {"H100 PCIe", 756, 378, 51, 2000},
      {"H100 NVL", 835, 417.5, 60, 3900},  {"H100", 989, 494.5, 67, 3350},    {"A100-SXM4-80GB", 312, 156, 19.5, 2039},
      {"A100 80GB", 312, 156, 19.5, 1935}, {"A100", 312, 156, 19.5, 1555},    {"L40S", 362, 183, 91.6, 864},
      {"RTX 4090", 165, 82.6, 82.6, 1008}, {"RTX 3090", 71, 35.6, 35.6, 936},
  };
  for (const DataSheet& sheet : known) {
    if (device_name.find(sheet.device) == std::string_view::npos) continue;
    const double tflops = products == Products::half ? sheet.half : products == Products::tf32 ? sheet.tf32 : sheet.f32;
    return {tflops, sheet.gbs};
  }
  return {};
}

void write_use(Json& record, const StepWork& work, double seconds, const DevicePeak& peak) {
  if (seconds <= 0) return;
  if (peak.tflops > 0) record.set("mfu", 1e-12 * work.flops / seconds / peak.tflops);
  if (peak.gbs > 0 && work.bytes > 0) record.set("bandwidth", 1e-9 * work.bytes / seconds / peak.gbs);
}

}  // namespace hearth::train
