// SPDX-License-Identifier: Apache-2.0
#include "train/profile/machine_energy.h"

#include <filesystem>
#include <fstream>
#include <utility>

namespace hearth::train {
namespace {

namespace fs = std::filesystem;
constexpr double micro = 1e-6;

template <class T>
std::optional<T> first_in(const fs::path& file) {
  std::ifstream stream(file);
  T value{};
  return stream >> value ? std::optional(std::move(value)) : std::nullopt;
}

}  // namespace

std::map<std::string, EnergyZone> read_energy_zones(const std::string& root) {
  std::map<std::string, EnergyZone> zones;
  std::error_code error;
  for (fs::directory_iterator at(root + "/sys/class/powercap", error), end; !error && at != end; at.increment(error)) {
    const std::string folder = at->path().filename().string();
    const std::string name = first_in<std::string>(at->path() / "name").value_or("");
    // Zones of cores are parts of packages, and packages parts of the platform ("psys").
    if (!folder.starts_with("intel-rapl:") || (!name.starts_with("package") && name != "dram")) continue;
    if (const auto energy = first_in<double>(at->path() / "energy_uj"))
      zones[folder] = {micro * *energy, micro * first_in<double>(at->path() / "max_energy_range_uj").value_or(0)};
  }
  return zones;
}

void MachineEnergy::read() {
  const std::map<std::string, EnergyZone> before = std::exchange(before_, read_energy_zones(root_));
  const Clock::time_point now = Clock::now();
  seconds_ += std::chrono::duration<double>(now - std::exchange(at_, now)).count();
  for (const auto& [name, zone] : before_) {
    const auto known = before.find(name);
    if (known == before.end()) continue;
    double joules = zone.joules - known->second.joules;
    if (joules < 0) joules += zone.range;
    if (joules < 0) continue;
    interval_ = interval_.value_or(0) + joules;
    all_ = all_.value_or(0) + joules;
  }
}

void MachineEnergy::write(Json& record) {
  read();
  if (interval_) {
    record.set("machine_energy", *interval_);
    if (seconds_ > 0) record.set("machine_power", *interval_ / seconds_);
  }
  interval_.reset();
  seconds_ = 0;
}

std::optional<double> MachineEnergy::read_joules() {
  read();
  return all_;
}

}  // namespace hearth::train
