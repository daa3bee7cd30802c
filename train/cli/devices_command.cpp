// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/cpu/isa.h"
#include "core/cpu/parallel.h"
#include "core/cuda/emulation.h"
#include "core/cuda/stream.h"
#include "ops/onednn/onednn.h"
#include "train/checkpoint/run_info.h"
#include "train/cli/commands.h"
#include "train/cli/devices.h"

namespace hearth::train {

std::vector<Json> described_cuda_devices() {
  std::vector<Json> list;
  for (int i = 0; i < device_count(DeviceType::cuda); ++i) {
    const cuda::DeviceInfo info = cuda::device_info({DeviceType::cuda, i});
    Json gpu = Json::object();
    gpu.set("device", name_of(Device{DeviceType::cuda, i}))
        .set("name", info.name)
        .set("emulated", cuda::is_emulated())
        .set("compute_capability", info.capability)
        .set("multiprocessors", info.multiprocessors)
        .set("memory_mb", info.memory_bytes >> 20)
        .set("driver", info.driver)
        .set("runtime", info.runtime)
        .set("why_unused", info.unsupported);
    list.push_back(gpu);
  }
  return list;
}

Json described_cpu() {
  Json cpu = Json::object();
  cpu.set("device", "cpu")
      .set("processor", processor_name())
      .set("threads", cpu::threads())
      .set("instructions", name_of(cpu::isa()))
      .set("library", cpu::dnn::library())
      .set("bf16_in_hardware", cpu::dnn::has_hardware_bf16());
  return cpu;
}

namespace {

int devices_command(const Arguments& arguments) {
  Json devices = Json::array();
  devices.push_back(described_cpu());
  for (const Json& gpu : described_cuda_devices()) devices.push_back(gpu);
  if (arguments.has("--json")) {
    std::cout << to_text(Json::object().set("devices", devices).set("why_no_cuda", cuda::why_no_device())) << "\n";
    return 0;
  }
  for (const Json& device : devices.items())
    for (const JsonMember& member : device.members())
      std::cout << member.key << ": " << (member.value.is_string() ? member.value.as_string() : to_text(member.value))
                << "\n";
  if (const std::string reason = cuda::why_no_device(); !reason.empty()) std::cout << "cuda: " << reason << "\n";
  return 0;
}

}  // namespace

CommandSpec devices_spec() {
  return {
      "devices",      "", 0, 0, "Lists what this build can compute on.", {{"--json", "", "print as JSON on stdout"}},
      devices_command};
}

}  // namespace hearth::train
