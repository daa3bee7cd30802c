// SPDX-License-Identifier: Apache-2.0
#include "train/profile/device_use.h"

#include <utility>

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

DevicePeak known_peak(std::string_view device_name) {
  // The first whose name is part of the device's.
  constexpr std::pair<std::string_view, DevicePeak> known[] = {
      {"B200", {2250, 8000}}, {"H200", {989, 4800}},           {"H100 PCIe", {756, 2000}}, {"H100 NVL", {835, 3900}},
      {"H100", {989, 3350}},  {"A100-SXM4-80GB", {312, 2039}}, {"A100 80GB", {312, 1935}}, {"A100", {312, 1555}},
      {"L40S", {362, 864}},   {"RTX 4090", {165, 1008}},       {"RTX 3090", {71, 936}},
  };
  for (const auto& [name, peak] : known)
    if (device_name.find(name) != std::string_view::npos) return peak;
  return {};
}

void write_use(Json& record, const StepWork& work, double seconds, const DevicePeak& peak) {
  if (seconds <= 0) return;
  if (peak.tflops > 0) record.set("mfu", 1e-12 * work.flops / seconds / peak.tflops);
  if (peak.gbs > 0 && work.bytes > 0) record.set("bandwidth", 1e-9 * work.bytes / seconds / peak.gbs);
}

}  // namespace hearth::train
