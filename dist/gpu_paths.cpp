// SPDX-License-Identifier: Apache-2.0
#include "dist/gpu_paths.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "core/error.h"

namespace hearth::dist {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// All of a file of the system; nothing where it cannot be read.
std::optional<std::string> text_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// A device's registers, of which a user who is not root sees the first 64 bytes only.
class ConfigSpace {
 public:
  explicit ConfigSpace(const fs::path& device) : bytes_(text_in(device / "config").value_or("")) {}

  /// Where a capability begins; 0 where the device has none; nothing where that cannot be seen.
  std::optional<std::size_t> capability(unsigned id) const {
    constexpr std::size_t first = 0x34, visible = 0x40, most = 48;
    if (bytes_.size() <= visible) return std::nullopt;
    std::size_t at = byte(first);
    for (std::size_t i = 0; i < most && at >= visible && at + 1 < bytes_.size(); ++i, at = byte(at + 1))
      if (byte(at) == id) return at;
    return 0;
  }
  std::optional<std::size_t> extended_capability(unsigned id) const {
    constexpr std::size_t first = 0x100, most = 240;
    if (bytes_.size() < first + 4) return std::nullopt;
    std::size_t at = first;
    for (std::size_t i = 0; i < most && at >= first && at + 4 <= bytes_.size(); ++i, at = word(at + 2) >> 4)
      if (word(at) == id) return at;
    return 0;
  }
  unsigned word(std::size_t at) const { return byte(at) | byte(at + 1) << 8; }

 private:
  unsigned byte(std::size_t at) const { return at < bytes_.size() ? static_cast<unsigned char>(bytes_[at]) : 0; }
  std::string bytes_;
};

/// The bridges above a device, the nearest first.
Words bridges_above(const PciPosition& at) {
  Words bridges;
  for (fs::path path = fs::path(at.path).parent_path();
       !path.filename().string().starts_with("pci") && path.filename().string().find(':') != std::string::npos;
       path = path.parent_path())
    bridges.push_back(path);
  return bridges;
}

Check check_memory(const fs::path& root) {
  Check check{.name = "peer memory"};
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"})
    if (fs::exists(root / "sys/module" / module))
      return {check.name, CheckState::ok, join_text("the module ", module, " is loaded"), ""};
  const std::optional<std::string> driver = text_in(root / "proc/driver/nvidia/version");
  if (!driver) return {check.name, CheckState::unknown, "there is no /proc/driver/nvidia/version", "load the driver"};
  // The kernel's own way (dma-buf) came with Linux 5.12, and needs the driver's open modules.
  int major = 0, minor = 0;
  const std::string release = text_in(root / "proc/sys/kernel/osrelease").value_or("");
  const bool knows = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  const bool is_open = driver->find("Open Kernel Module") != std::string::npos;
  if (is_open && knows && (major > 5 || (major == 5 && minor >= 12)))
    return {check.name, CheckState::ok, "dma-buf, by the open modules of the driver", ""};
  return {check.name, CheckState::wrong,
          is_open ? "no peer memory module is loaded, and this kernel has no dma-buf of devices"
                  : "no peer memory module is loaded, and the driver has no dma-buf",
          "modprobe nvidia_peermem"};
}

/// Switches whose ports send on by the root of the bus what goes from one device below them to another.
Check check_acs(const Network& network) {
  constexpr unsigned access_control = 0x0d, redirects = 0x4 | 0x8;
  Check check{.name = "ACS"};
  std::set<std::string> bridges;
  for (const PciGpu& gpu : network.gpus) {
    for (const RdmaDevice& device : network.rdma) {
      const Words above = bridges_above(gpu.at), other = bridges_above(device.at);
      if (above.empty() || other.empty() || above.back() != other.back()) continue;
      // What both have lies above the switch's ports.
      for (const auto& [mine, others] : {std::pair(&above, &other), {&other, &above}})
        for (const std::string& bridge : *mine)
          if (std::ranges::find(*others, bridge) == others->end()) bridges.insert(bridge);
    }
  }
  if (bridges.empty()) return {check.name, CheckState::ok, "no GPU shares a PCIe switch with an RDMA device", ""};
  Words redirecting;
  for (const std::string& bridge : bridges) {
    const ConfigSpace config(bridge);
    const std::optional<std::size_t> at = config.extended_capability(access_control);
    if (!at)
      return {check.name, CheckState::unknown, "the registers of bridges can be read by root only", "run as root"};
    if (*at > 0 && (config.word(*at + 6) & redirects) != 0) redirecting.push_back(fs::path(bridge).filename());
  }
  if (redirecting.empty()) return {check.name, CheckState::ok, "off in the bridges", ""};
  return {check.name, CheckState::wrong, "on in " + joined(redirecting) + ": transfers go by the CPU",
          join_text("turn ACS off in the firmware, or `setpci -s ", redirecting.front(),
                    " ECAP_ACS+6.w=0` for each at every start; virtual machines need it")};
}

Check check_iommu(const Network& network, const fs::path& root) {
  Check check{.name = "IOMMU"};
  Words translating;
  bool is_known = fs::exists(root / "sys/bus/pci/devices");
  for (const PciGpu& gpu : network.gpus) {
    const fs::path group = fs::path(gpu.at.path) / "iommu_group";
    if (!fs::exists(group)) continue;
    const std::string type = text_in(group / "type").value_or("");
    is_known = is_known && !type.empty();
    if (type.starts_with("DMA")) translating.push_back(gpu.name);
  }
  if (!translating.empty())
    return {check.name, CheckState::wrong, "it translates the addresses of " + joined(translating),
            "iommu=pt on the kernel's command line, or turn it off in the firmware"};
  if (!is_known) return {check.name, CheckState::unknown, "the kernel does not tell the mode", "see /proc/cmdline"};
  return {check.name, CheckState::ok, "off, or passes addresses on", ""};
}

Check check_ordering(const Network& network) {
  constexpr unsigned express = 0x10, relaxed = 0x10;
  Check check{.name = "relaxed ordering"};
  if (const auto set = network.nccl.find("NCCL_IB_PCI_RELAXED_ORDERING");
      set != network.nccl.end() && set->second == "0")
    return {check.name, CheckState::wrong, "NCCL_IB_PCI_RELAXED_ORDERING=0", "unset NCCL_IB_PCI_RELAXED_ORDERING"};
  Words strict;
  for (const RdmaDevice& device : network.rdma) {
    if (device.at.path.empty()) continue;
    const ConfigSpace config(device.at.path);
    const std::optional<std::size_t> at = config.capability(express);
    if (!at)
      return {check.name, CheckState::unknown, "the registers of devices can be read by root only", "run as root"};
    if (*at > 0 && (config.word(*at + 8) & relaxed) == 0) strict.push_back(device.name);
  }
  if (strict.empty()) return {check.name, CheckState::ok, "on in the RDMA devices", ""};
  return {check.name, CheckState::wrong, "off in " + joined(strict),
          "`mlxconfig -d DEVICE set PCI_WR_ORDERING=1`, and start the machine again"};
}

/// The largest region of memory that a device shows on the bus.
std::optional<std::uint64_t> largest_region(const fs::path& device) {
  const std::optional<std::string> text = text_in(device / "resource");
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  std::uint64_t largest = 0, begin = 0, end = 0, flags = 0;
  constexpr std::uint64_t memory = 0x200;
  while (lines >> std::hex >> begin >> end >> flags)
    if ((flags & memory) != 0 && end > begin) largest = std::max(largest, end - begin + 1);
  return largest;
}

Check check_bar(const Network& network) {
  constexpr std::uint64_t window = std::uint64_t{256} << 20;
  Check check{.name = "BAR"};
  std::uint64_t least = ~std::uint64_t{0};
  Words small;
  for (const PciGpu& gpu : network.gpus) {
    const std::optional<std::uint64_t> bytes = largest_region(gpu.at.path);
    if (!bytes)
      return {check.name, CheckState::unknown, "the kernel does not tell the regions of " + gpu.name, "lspci -v"};
    least = std::min(least, *bytes);
    if (*bytes <= window) small.push_back(gpu.name);
  }
  const std::string size = join_text(least >> 20, " MiB");
  if (small.empty()) return {check.name, CheckState::ok, "the least of the GPUs shows " + size, ""};
  return {check.name, CheckState::wrong, join_text(joined(small), " shows ", size, " of its memory at a time"),
          "turn on Above 4G Decoding and Resizable BAR in the firmware"};
}

/// A distance's place among those of NCCL_NET_GDR_LEVEL, from the shortest; -1 where it is none.
int level_of(const std::string& text) {
  const Words names{"LOC", "PIX", "PXB", "PHB", "NODE", "SYS"};
  const auto named = std::ranges::find(names, text);
  if (named != names.end()) return static_cast<int>(named - names.begin());
  // The older form, which has no NODE.
  const std::map<std::string, int> numbers{{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 5}};
  const auto number = numbers.find(text);
  return number == numbers.end() ? -1 : number->second;
}

Check check_level(const Network& network) {
  Check check{.name = "NCCL_NET_GDR_LEVEL"};
  const auto set = network.nccl.find("NCCL_NET_GDR_LEVEL");
  const bool is_set = set != network.nccl.end();
  // Its default.
  const std::string text = is_set ? set->second : "PXB";
  const int level = level_of(text);
  if (level < 0)
    return {check.name, CheckState::wrong, text + " is no distance", "set it to PIX, PXB, PHB, NODE or SYS"};
  if (level == 0)
    return {check.name, CheckState::wrong, text + " turns GPUDirect RDMA off", "unset NCCL_NET_GDR_LEVEL"};
  Words far;
  std::string needed = "PIX";
  for (const PciGpu& gpu : network.gpus) {
    std::string nearest;
    for (const RdmaDevice& device : network.rdma) {
      const std::string distance = pci_distance(gpu.at, device.at);
      if (!distance.empty() && (nearest.empty() || level_of(distance) < level_of(nearest))) nearest = distance;
    }
    if (nearest.empty())
      return {check.name, CheckState::unknown, "the position of a device on the bus is not known", "lspci -t"};
    if (level_of(nearest) > level) far.push_back(gpu.name + " (" + nearest + ")");
    if (level_of(nearest) > level_of(needed)) needed = nearest;
  }
  const std::string limit = text + (is_set ? "" : ", the default,");
  if (far.empty()) return {check.name, CheckState::ok, limit + " takes in an RDMA device of each GPU", ""};
  return {check.name, CheckState::wrong, join_text(limit, " leaves out the nearest RDMA device of ", joined(far)),
          join_text("NCCL_NET_GDR_LEVEL=", needed, ", if a measurement is the better for it, or move the cards")};
}

Check check_read(const Network& network) {
  Check check{.name = "NCCL_NET_GDR_READ"};
  const auto set = network.nccl.find("NCCL_NET_GDR_READ");
  if (set != network.nccl.end() && set->second == "0")
    return {check.name, CheckState::wrong, "0 has what is sent go by the host's memory", "unset NCCL_NET_GDR_READ"};
  return {check.name, CheckState::ok, set == network.nccl.end() ? "not set" : set->second, ""};
}

}  // namespace

std::vector<GpuPath> gpu_paths(const Network& network, const std::vector<cuda::NvLink>& links) {
  const auto is_gpu = [&](const std::string& address) {
    return std::ranges::any_of(network.gpus, [&](const PciGpu& gpu) { return gpu.name == address; });
  };
  // Links to switches lead to every GPU that has such.
  std::map<std::string, int> to_switches;
  for (const cuda::NvLink& link : links)
    if (!is_gpu(link.to)) to_switches[link.gpu] += link.count;
  std::vector<GpuPath> paths;
  for (std::size_t i = 0; i < network.gpus.size(); ++i)
    for (std::size_t j = i + 1; j < network.gpus.size(); ++j) {
      const PciGpu &from = network.gpus[i], &to = network.gpus[j];
      int count = std::min(to_switches[from.name], to_switches[to.name]);
      for (const cuda::NvLink& link : links)
        if (link.gpu == from.name && link.to == to.name) count += link.count;
      paths.push_back({from.name, to.name, count > 0 ? join_text("NV", count) : pci_distance(from.at, to.at)});
    }
  return paths;
}

std::vector<GpuPath> gpu_paths(const Network& network) {
  std::vector<std::string> gpus;
  for (const PciGpu& gpu : network.gpus) gpus.push_back(gpu.name);
  return gpu_paths(network, gpus.empty() ? std::vector<cuda::NvLink>() : cuda::nv_links(gpus));
}

std::vector<Check> gpu_direct_checks(const Network& network, const std::string& root) {
  if (network.gpus.empty() || network.rdma.empty()) return {};
  const fs::path top = root.empty() ? "/" : root;
  return {check_memory(top),  check_acs(network),   check_iommu(network, top), check_ordering(network),
          check_bar(network), check_level(network), check_read(network)};
}

}  // namespace hearth::dist
