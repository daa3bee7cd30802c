// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/nvml/links.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/cuda/nvml/functions.h"

namespace hearth::cuda {
namespace {

/// "00000000:3D:00.0" as the system writes it, "0000:3d:00.0".
std::string system_address(std::string address) {
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::size_t domain = 8;
  return address.find(':') == domain && address.starts_with("0000") ? address.substr(4) : address;
}

}  // namespace

std::vector<NvLink> nv_links(const std::vector<std::string>& gpus) {
  NvmlFunctions& api = nvml_api();
  std::string why_not;
  if (!starts_nvml(why_not) || api.device_by_bus == nullptr || api.link_state == nullptr || api.link_peer == nullptr)
    return {};
  std::vector<NvLink> links;
  for (const std::string& gpu : gpus) {
    NvmlHandle device = nullptr;
    if (api.device_by_bus(gpu.c_str(), &device) != nvml::success) continue;
    std::map<std::string, int> counts;
    for (unsigned link = 0; link < nvml::most_links; ++link) {
      unsigned active = 0;
      nvml::Pci peer{};
      if (api.link_state(device, link, &active) == nvml::success && active != 0 &&
          api.link_peer(device, link, &peer) == nvml::success)
        ++counts[system_address(peer.address)];
    }
    for (const auto& [to, count] : counts) links.push_back({gpu, to, count});
  }
  return links;
}

}  // namespace hearth::cuda
