// SPDX-License-Identifier: Apache-2.0
#include "train/plan/machine.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/nearest.h"
#include "ops/dispatch/plan_file.h"

extern const unsigned char hearth_embedded_machines_json[];
extern const unsigned long hearth_embedded_machines_json_size;

namespace hearth::train {
namespace {

constexpr double most_efficient = 20;  // Winograd, and ops whose operands stay in caches, pass their limit

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::map<std::string, double> parse_op_rates(const Json& node) {
  std::map<std::string, double> rates;
  for (const JsonMember& member : node.members()) {
    const double part = member.value.is_number() ? member.value.as_number() : 0;
    HEARTH_CHECK(ConfigError, part > 0 && part <= most_efficient,
                 fault_text(member.value.position(), child_pointer("/ops", member.key),
                            join_text("is ", member.value.describe(), "; write the part of its limit that the op ",
                                      "reaches, above 0 and at most ", most_efficient)));
    rates[member.key] = part;
  }
  return rates;
}

}  // namespace

double Machine::peak(ComputeType type) const {
  const double own = type == ComputeType::tf32   ? peak_tflops.tf32
                     : type == ComputeType::bf16 ? peak_tflops.bf16
                     : type == ComputeType::f16  ? peak_tflops.f16
                                                 : peak_tflops.f32;
  return own > 0 ? own : peak_tflops.f32;
}

void describe(Fields<PeakRates>& f) {
  f.number("f32", &PeakRates::f32, {.above = 0}, "TFLOP/s of large products in f32.").required();
  f.number("tf32", &PeakRates::tf32, {.min = 0}, "The same in tf32; 0: as f32.");
  f.number("bf16", &PeakRates::bf16, {.min = 0}, "The same in bf16; 0: as f32.");
  f.number("f16", &PeakRates::f16, {.min = 0}, "The same in f16; 0: as f32.");
}

void describe(Fields<Efficiency>& f) {
  const Limits part{.above = 0, .max = most_efficient};
  f.number("matmul", &Efficiency::matmul, part, "Products and linear layers, as a part of the peak rate.");
  f.number("conv", &Efficiency::conv, part, "Convolutions.");
  f.number("winograd", &Efficiency::winograd, part, "Winograd convolutions; counts the plain one's arithmetic.");
  f.number("depthwise", &Efficiency::depthwise, part, "Depthwise convolutions.");
  f.number("attention", &Efficiency::attention, part, "Attention and window attention.");
  f.number("operands", &Efficiency::operands, part, "Memory traffic of the ops above, as a part of the copy rate.");
  f.number("norm", &Efficiency::norm, part, "Norms.");
  f.number("update", &Efficiency::update, part, "The optimizer's update.");
  f.number("memory", &Efficiency::memory, part, "Every other op.");
}

void describe(Fields<Machine>& f) {
  f.text("name", &Machine::name, "Name of the machine.").required();
  f.choice("device", &Machine::device, {"cpu", "cuda"}, "What computes.").required();
  f.integer("cores", &Machine::cores, {.min = 1}, "Threads that compute; multiprocessors of a GPU.");
  f.integer("memory_bytes", &Machine::memory_bytes, {.min = 0}, "Memory of the device; 0: not known.");
  f.object("peak_tflops", &Machine::peak_tflops, "Rates of large products, by type.");
  f.number("copy_gbs", &Machine::copy_gbs, {.above = 0}, "GB/s of memory; reads and writes count.").required();
  f.number("cache_gbs", &Machine::cache_gbs, {.min = 0}, "The same within cache_bytes; 0: as copy_gbs.");
  f.number("cache_bytes", &Machine::cache_bytes, {.min = 0}, "Operands and results of an op that caches hold.");
  f.number("op_us", &Machine::op_us, {.min = 0},
           "Microseconds of an op call besides its work: launches, threads that begin and end.");
  f.number("host_gbs", &Machine::host_gbs, {.min = 0}, "GB/s from the host's memory to the GPU's; 0: not known.");
  f.number("watts", &Machine::watts, {.min = 0}, "Power at full load; 0: not known.");
  f.text("source", &Machine::source, "Where the numbers are from.");
  f.object("efficiency", &Machine::efficiency, "The part of its limit that each class of op reaches.");
}

Machine parse_machine(const Json& node) {
  HEARTH_CHECK(
      ConfigError, node.is_object(),
      fault_text(node.position(), "", "a machine is described by an object; `hearth doctor --speed` writes one"));
  Json rest = Json::object();
  rest.set_position(node.position());
  std::map<std::string, double> ops;
  for (const JsonMember& member : node.members()) {
    if (member.key == "ops")
      ops = parse_op_rates(member.value);
    else
      rest.set(member.key, member.value, member.key_position);
  }
  auto machine = parse_fields<Machine>(rest);
  HEARTH_CHECK(ConfigError, machine.peak_tflops.f32 > 0,
               fault_text(node.position(), "/peak_tflops", "is missing; give at least {\"f32\": TFLOP/s}"));
  machine.ops = std::move(ops);
  return machine;
}

Json to_json(const Machine& machine) {
  Json node = schema_of<Machine>()->load(&machine);
  Json ops = Json::object();
  for (const auto& [name, part] : machine.ops) ops.set(name, part);
  return node.set("ops", ops);
}

const std::vector<Machine>& known_machines() {
  static const std::vector<Machine> machines = [] {
    const std::string_view text(reinterpret_cast<const char*>(hearth_embedded_machines_json),
                                hearth_embedded_machines_json_size);
    const Json nodes = parse_json(text, "machines.json");
    std::vector<Machine> list;
    for (const Json& node : nodes.items()) list.push_back(parse_machine(node));
    return list;
  }();
  return machines;
}

Machine machine_named(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) return parse_machine(read_json(name));
  std::vector<std::string> names;
  for (const Machine& machine : known_machines()) {
    if (in_lower_case(machine.name) == in_lower_case(name)) return machine;
    names.push_back(machine.name);
  }
  throw UsageError(join_text("no machine \"", name, "\" is built in; ", suggest(name, names, "machines"),
                             "; or give the JSON file of one, as `hearth doctor --speed --json` prints it"));
}

std::string machine_file(DeviceType type) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return "";
  return (folder / (type == DeviceType::cuda ? "machine-cuda.json" : "machine-cpu.json")).string();
}

}  // namespace hearth::train
