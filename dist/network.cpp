// SPDX-License-Identifier: Apache-2.0
#include "dist/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace hearth::dist {
namespace {

namespace fs = std::filesystem;

/// The first line of a file of the system; "" where it cannot be read, as the speed of an interface that is down.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::int64_t number_of(const fs::path& path, std::int64_t otherwise, int base = 10) {
  const std::string line = line_of(path);
  char* end = nullptr;
  const std::int64_t number = std::strtoll(line.c_str(), &end, base);
  return end == line.c_str() ? otherwise : number;
}

/// Names in a folder, sorted; none where there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

PciPosition position_of(const fs::path& device) {
  std::error_code absent;
  fs::path path = fs::canonical(device, absent);
  if (absent || path.string().find("/pci") == std::string::npos) return {};
  // Below the device itself there may be what drives it, as virtio0.
  while (path.filename().string().find(':') == std::string::npos) path = path.parent_path();
  return {path, static_cast<int>(number_of(path / "numa_node", -1))};
}

NetworkInterface interface_in(const fs::path& folder, const InterfaceAddresses& addresses) {
  NetworkInterface found{.name = folder.filename()};
  for (const auto& [name, address] : addresses)
    if (name == found.name) found.addresses.push_back(address);
  const std::int64_t flags = number_of(folder / "flags", 0, 16);
  found.is_up = (flags & IFF_UP) != 0 && line_of(folder / "operstate") != "down";
  found.is_loopback = (flags & IFF_LOOPBACK) != 0;
  found.mbit = std::max<std::int64_t>(-1, number_of(folder / "speed", -1));
  found.at = position_of(folder / "device");
  return found;
}

RdmaDevice rdma_in(const fs::path& folder) {
  RdmaDevice found{.name = folder.filename()};
  for (const std::string& port : names_in(folder / "ports")) {
    // "4: ACTIVE"
    const std::string line = line_of(folder / "ports" / port / "state"), state = line.substr(line.find(' ') + 1);
    if (!found.state.empty() && state != "ACTIVE") continue;
    found.state = state;
    found.rate = line_of(folder / "ports" / port / "rate");
    found.layer = line_of(folder / "ports" / port / "link_layer");
  }
  found.at = position_of(folder / "device");
  return found;
}

std::vector<PciGpu> gpus_in(const fs::path& devices) {
  constexpr std::int64_t display = 0x03, nvidia = 0x10de;
  std::vector<PciGpu> found;
  for (const std::string& name : names_in(devices))
    if (number_of(devices / name / "class", 0, 16) >> 16 == display &&
        number_of(devices / name / "vendor", 0, 16) == nvidia)
      found.push_back({name, position_of(devices / name)});
  return found;
}

/// The interface of the line of /proc/net/route whose destination is 0.
std::string default_interface_in(const fs::path& table) {
  std::ifstream file(table);
  std::string line, name, destination;
  while (std::getline(file, line))
    if (std::istringstream(line) >> name >> destination && destination == "00000000") return name;
  return "";
}

}  // namespace

InterfaceAddresses interface_addresses() {
  InterfaceAddresses found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (one->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address;
      std::memcpy(&address, one->ifa_addr, sizeof address);
      inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address;
      std::memcpy(&address, one->ifa_addr, sizeof address);
      if (!IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    }
    if (*text != 0) found.emplace_back(one->ifa_name, text);
  }
  freeifaddrs(all);
  return found;
}

std::map<std::string, std::string> nccl_variables() {
  std::map<std::string, std::string> found;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::size_t equals = text.find('=');
    if (text.starts_with("NCCL_") && equals != text.npos)
      found.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return found;
}

Network look_at_network(const NetworkSources& sources) {
  const fs::path root = sources.root, sys = root / "sys";
  Network found{.nccl = sources.nccl};
  for (const std::string& name : names_in(sys / "class/net"))
    if (fs::is_directory(sys / "class/net" / name))
      found.interfaces.push_back(interface_in(sys / "class/net" / name, sources.addresses));
  for (const std::string& name : names_in(sys / "class/infiniband"))
    found.rdma.push_back(rdma_in(sys / "class/infiniband" / name));
  found.gpus = gpus_in(sys / "bus/pci/devices");
  for (const std::string& name : names_in(sys / "devices/system/node"))
    found.numa_nodes +=
        name.starts_with("node") && name.size() > 4 && name.find_first_not_of("0123456789", 4) == name.npos;
  struct statvfs shared {};
  if (statvfs((root / "dev/shm").c_str(), &shared) == 0)
    found.shared_memory_bytes = static_cast<std::int64_t>(shared.f_blocks * shared.f_frsize);
  found.default_interface = default_interface_in(root / "proc/net/route");
  return found;
}

std::string pci_distance(const PciPosition& a, const PciPosition& b) {
  if (a.path.empty() || b.path.empty()) return "";
  const fs::path one = a.path, other = b.path;
  auto [at_one, at_other] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  // What they have in common ends with a host bridge (pci0000:3a), or with bridges below it.
  std::ptrdiff_t bridges = -1;
  bool below_host = false;
  for (auto part = one.begin(); part != at_one; ++part) {
    below_host = below_host || part->string().starts_with("pci");
    bridges += below_host;
  }
  if (!below_host) return a.numa_node == b.numa_node ? "NODE" : "SYS";
  if (bridges == 0) return "PHB";
  // Below the switch that they share each has the switch's port, and further switches.
  return std::max(std::distance(at_one, one.end()), std::distance(at_other, other.end())) <= 2 ? "PIX" : "PXB";
}

}  // namespace hearth::dist
