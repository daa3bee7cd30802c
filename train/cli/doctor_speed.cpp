// SPDX-License-Identifier: Apache-2.0
// `hearth doctor --speed`: the description of this machine that `hearth plan` predicts times from.
#include <filesystem>
#include <iostream>
#include <thread>

#include "core/cpu/parallel.h"
#include "core/cuda/emulation.h"
#include "core/cuda/stream.h"
#include "core/io/file.h"
#include "train/cli/devices.h"
#include "train/cli/doctor.h"
#include "train/cli/shared_cores.h"
#include "train/plan/measure_machine.h"

namespace hearth::train {

int doctor_speed(const Arguments& arguments) {
  const Device device = device_of_run(arguments.value("--device").value_or("auto"));
  const std::string name =
      device.is_cuda() ? cuda::device_info(device).name : described_cpu().at("processor").as_string();
  const int others = other_threads();
  const Machine machine = measure_machine(device, name);
  if (device.is_cpu() && others + cpu::threads() > static_cast<int>(std::thread::hardware_concurrency()))
    std::cerr << "warning   " << others << (others == 1 ? " thread" : " threads")
              << " of other programs ran too; measure again on an idle machine\n";
  const std::string text = to_text(to_json(machine), 2) + "\n",
                    file = cuda::is_emulated() && device.is_cuda() ? "" : machine_file(device.type);
  if (!file.empty()) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_file_synced(file, text);
  }
  std::cerr << (file.empty()
                    ? "not kept: an emulated GPU has no speed of its own, or there is no folder: set HEARTH_CACHE_DIR\n"
                    : "kept in " + file + ", which `hearth plan` reads\n");
  if (arguments.has("--json")) {
    std::cout << text;
    return 0;
  }
  const auto rate = [](double tflops) { return tflops > 0 ? join_text(1e3 * tflops, " GFLOP/s") : std::string("-"); };
  print_line("machine",
             join_text(machine.name, ", ", machine.cores, device.is_cuda() ? " multiprocessors" : " threads"));
  print_line("products", join_text("f32 ", rate(machine.peak_tflops.f32), ", bf16 ", rate(machine.peak_tflops.bf16),
                                   ", f16 ", rate(machine.peak_tflops.f16)));
  print_line("memory", join_text(machine.copy_gbs, " GB/s, in caches ", machine.cache_gbs, " GB/s"));
  for (const auto& [op, part] : machine.ops) print_line("op", join_text(op, ": ", 100 * part, " % of its limit"));
  return 0;
}

}  // namespace hearth::train
