// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "hearth/core/cpu/dnn.h"
#include "hearth/core/cpu/isa.h"
#include "hearth/core/cpu/parallel.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/run_info.h"

namespace hearth::train {

int devices_command(const Arguments& arguments) {
  Json cpu = Json::object();
  cpu.set("device", "cpu")
      .set("processor", processor_name())
      .set("threads", cpu::threads())
      .set("instructions", name_of(cpu::isa()))
      .set("library", cpu::dnn::library())
      .set("bf16_in_hardware", cpu::dnn::has_hardware_bf16());
  if (arguments.has("--json")) {
    std::cout << to_text(Json::object().set("devices", Json::array().push_back(cpu))) << "\n";
    return 0;
  }
  for (const JsonMember& member : cpu.members())
    std::cout << member.key << ": " << (member.value.is_string() ? member.value.as_string() : to_text(member.value))
              << "\n";
  std::cout << "cuda: not in this build\n";
  return 0;
}

}  // namespace hearth::train
