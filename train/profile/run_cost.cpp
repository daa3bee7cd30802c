// SPDX-License-Identifier: Apache-2.0
#include "train/profile/run_cost.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "dist/agreement.h"

namespace hearth::train {
namespace {

constexpr double seconds_of_hour = 3600, joules_of_kwh = 3.6e6;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

Json json_of(const RankEnergy& energy) {
  const auto value = [](const std::optional<double>& joules) { return joules ? Json(*joules) : Json(); };
  return Json::object()
      .set("device", value(energy.device))
      .set("machine", value(energy.machine))
      .set("host", energy.host);
}

RankEnergy energy_in(const Json& json) {
  const auto value = [&](const char* key) {
    return json.at(key).is_null() ? std::nullopt : std::optional(json.at(key).as_number());
  };
  return {value("device"), value("machine"), json.at("host").as_string()};
}

double number_before(const Json& before, const char* key) {
  const Json* const value = before.is_object() ? before.find(key) : nullptr;
  return value != nullptr && value->is_number() ? value->as_number() : 0;
}

void set_sum(Json& cost, const Json& before, const char* key, const std::optional<double>& joules) {
  const double sum = number_before(before, key) + joules.value_or(0) / joules_of_kwh;
  if (joules || sum > 0) cost.set(key, sum);
}

}  // namespace

void EnergyMeters::write(Json& record, bool reads_first) {
  device_.write(record, reads_first);
  machine_.write(record);
}

RankEnergy EnergyMeters::read() { return {device_.read_joules(), machine_.read_joules(), host_name()}; }

std::vector<RankEnergy> EnergyMeters::read_all(Collective& group) {
  std::vector<RankEnergy> all;
  for (const std::string& text : dist::gather(group, to_text(json_of(read()))))
    all.push_back(energy_in(parse_json(text, "the energy of a rank")));
  return all;
}

Json run_cost(const Json& before, double seconds, const std::vector<RankEnergy>& ranks,
              std::optional<double> price_per_hour) {
  std::optional<double> devices, machines;
  // Ranks on a machine all see its whole counter.
  std::map<std::string, double> by_host;
  for (const RankEnergy& rank : ranks) {
    if (rank.device) devices = devices.value_or(0) + *rank.device;
    if (rank.machine) by_host[rank.host] = std::max(by_host[rank.host], *rank.machine);
  }
  for (const auto& [host, joules] : by_host) machines = machines.value_or(0) + joules;
  Json cost = Json::object();
  const double hours = number_before(before, "hours") + seconds / seconds_of_hour;
  cost.set("hours", hours);
  set_sum(cost, before, "device_kwh", devices);
  set_sum(cost, before, "machine_kwh", machines);
  if (price_per_hour) cost.set("price", hours * *price_per_hour);
  return cost;
}

}  // namespace hearth::train
