// SPDX-License-Identifier: Apache-2.0
// What a process listens on, as the kernel's tables have it.
#pragma once

#include <arpa/inet.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hearth::test {

/// Inodes of the sockets that a process of this user has open.
inline std::set<std::string> sockets_of(const std::string& pid) {
  std::set<std::string> inodes;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc/" + pid + "/fd", gone), end; !gone && entry != end;
       entry.increment(gone)) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(entry->path(), closed);
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

/// "0100007F", and 32 such digits in the table of IPv6: words of four bytes in this machine's order.
inline std::string address_of_table(const std::string& hex) {
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i + 8 <= hex.size(); i += 8)
    words.push_back(static_cast<std::uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16)));
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(words.size() == 1 ? AF_INET : AF_INET6, words.data(), text, sizeof text);
  return text;
}

/// Addresses and ports that a process listens on by TCP.
inline std::multiset<std::pair<std::string, int>> listening(const std::string& pid = "self") {
  const std::set<std::string> own = sockets_of(pid);
  std::multiset<std::pair<std::string, int>> found;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file("/proc/" + pid + table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      // number, local and remote address, state, five more, inode
      std::istringstream in(line);
      std::string number, local, remote, state, skipped, inode;
      in >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) in >> skipped;
      in >> inode;
      const std::size_t colon = local.find(':');
      if (state == "0A" && own.count(inode) > 0)
        found.emplace(address_of_table(local.substr(0, colon)), std::stoi(local.substr(colon + 1), nullptr, 16));
    }
  }
  return found;
}

}  // namespace hearth::test
