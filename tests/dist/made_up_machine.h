// SPDX-License-Identifier: Apache-2.0
// Machines of folders and files, as the kernel shows real ones below /proc and /sys.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "dist/network.h"
#include "tests/support/temp_dir.h"

namespace hearth::dist {

class MadeUpMachine {
 public:
  void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void pci(const std::string& path, int node, const char* kind, const char* vendor) {
    const std::filesystem::path folder = std::filesystem::path("sys/devices") / path;
    write(folder / "class", kind);
    write(folder / "vendor", vendor);
    write(folder / "numa_node", std::to_string(node));
    std::filesystem::create_directories(root_ / "sys/bus/pci/devices");
    std::filesystem::create_directory_symlink(root_ / folder, root_ / "sys/bus/pci/devices" / folder.filename());
  }
  /// Of cores as the kernel lists them, "0-31,64-95"; without any it is of memory only.
  void numa_node(int number, const std::string& cores) {
    write("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cores);
  }
  void online(const std::string& cores) { write("sys/devices/system/cpu/online", cores); }
  /// An NVIDIA GPU below a port of its own.
  void gpu_at(const std::string& address, int node) {
    pci("pci" + address.substr(0, 7) + "/" + address.substr(0, 7) + ":00.0/" + address, node, "0x030200", "0x10de");
  }
  void device_of(const std::filesystem::path& folder, const std::string& path) {
    if (!path.empty())
      std::filesystem::create_directory_symlink(root_ / "sys/devices" / path, root_ / folder / "device");
  }
  void interface(const std::string& name, const char* flags, const char* state, int mbit = -1,
                 const std::string& device = "") {
    const std::filesystem::path folder = std::filesystem::path("sys/class/net") / name;
    write(folder / "flags", flags);
    write(folder / "operstate", state);
    if (mbit > 0) write(folder / "speed", std::to_string(mbit));
    device_of(folder, device);
  }
  void rdma(const std::string& name, const char* state, const std::string& device) {
    const std::filesystem::path folder = std::filesystem::path("sys/class/infiniband") / name;
    write(folder / "ports/1/state", state);
    write(folder / "ports/1/rate", "100 Gb/sec (4X EDR)");
    write(folder / "ports/1/link_layer", "InfiniBand");
    device_of(folder, device);
  }
  Network look(std::map<std::string, std::string> nccl = {}) const {
    return look_at_network({.root = root_.path(), .addresses = addresses_, .nccl = std::move(nccl)});
  }
  std::string root() const { return root_.path(); }

 protected:
  test::TempDir root_;
  InterfaceAddresses addresses_;
};

}  // namespace hearth::dist
