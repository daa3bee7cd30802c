// SPDX-License-Identifier: Apache-2.0
#include "train/plan/run_peak.h"

#include "core/cpu/parallel.h"
#include "core/cuda/stream.h"
#include "core/io/file.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "core/warning.h"
#include "train/plan/machine.h"

namespace hearth::train {
namespace {

Products products_of(ComputeType type) {
  switch (type) {
    case ComputeType::f32:
      return Products::f32;
    case ComputeType::tf32:
      return Products::tf32;
    default:
      return Products::half;
  }
}

DevicePeak peak_of_cpu(ComputeType type) {
  const std::string path = machine_file(DeviceType::cpu);
  if (path.empty() || !file_exists(path)) return {};
  try {
    const Machine machine = parse_machine(read_json(path));
    if (machine.cores == cpu::threads()) return {.tflops = machine.peak(type), .gbs = 0};
  } catch (const Error& error) {
    warn(join_text(printable(path), " is not read: ", error.what(), "; `hearth doctor --speed` writes it anew"));
  }
  return {};
}

}  // namespace

DevicePeak run_peak(Device device, ComputeType type) {
  return device.is_cuda() ? known_peak(cuda::device_info(device).name, products_of(type)) : peak_of_cpu(type);
}

}  // namespace hearth::train
