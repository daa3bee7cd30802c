// SPDX-License-Identifier: Apache-2.0
#include "dist/nccl_log/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <tuple>

#include "core/io/printable.h"

namespace hearth::dist {
namespace {

// Far above what NCCL writes for thousands of ranks.
constexpr std::size_t most_names = 256, most_hosts = 4096, most_links = 65536, most_warnings = 8, most_text = 200;
constexpr int most_ranks = 1 << 20, most_channels = 64;

/// Of a name or a sentence from the log.
std::string kept_text(std::string_view text) { return printable(text.substr(0, most_text)); }

void keep(std::set<std::string>& names, std::string_view name) {
  if (!name.empty() && names.size() < most_names) names.insert(kept_text(name));
}

/// A message, read from its start.
class Message {
 public:
  explicit Message(std::string_view text) : rest_(text) {}

  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  bool skip_past(std::string_view text) {
    const std::size_t at = rest_.find(text);
    if (at == rest_.npos) return false;
    rest_.remove_prefix(at + text.size());
    return true;
  }
  /// Nothing, and the text as it was, where there is no number of 0 to `most`.
  std::optional<int> number(int most) {
    std::string_view digits = rest_;
    while (digits.starts_with(' ')) digits.remove_prefix(1);
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || value < 0 || value > most) return std::nullopt;
    rest_ = digits.substr(static_cast<std::size_t>(end - digits.data()));
    return value;
  }
  std::string_view until(std::string_view ends) const { return rest_.substr(0, rest_.find_first_of(ends)); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

/// The number after a name: of "cudaDev 0 busId 3d000" and "busId" that is 0x3d000.
std::optional<std::uint64_t> value_after(std::string_view text, std::string_view name, int base) {
  const std::size_t at = text.find(name);
  if (at == text.npos) return std::nullopt;
  std::string_view digits = text.substr(at + name.size());
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// "0000:3d:00.0" of 0x3d000, which is that address without what stands between its digits.
std::string bus_address(std::uint64_t id) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", static_cast<unsigned>(id >> 20),
                static_cast<unsigned>(id >> 12 & 0xff), static_cast<unsigned>(id >> 4 & 0xff),
                static_cast<unsigned>(id & 0xf));
  return text.data();
}

/// "node1" of "[2026-01-02 03:04:05] node1:4711:4712 [0] NCCL INFO ...", before "NCCL"; "" where there is none.
std::string_view host_in(std::string_view prefix) {
  while (!prefix.empty()) {
    const std::size_t last = prefix.find_last_not_of(' ');
    if (last == prefix.npos) return "";
    prefix = prefix.substr(0, last + 1);
    std::string_view word = prefix.substr(prefix.find_last_of(' ') + 1);
    prefix.remove_suffix(word.size());
    // Two numbers behind colons.
    std::string_view host = word;
    bool fits = true;
    for (int i = 0; i < 2 && fits; ++i) {
      const std::size_t colon = host.find_last_of(':');
      const std::string_view digits = colon == host.npos ? "" : host.substr(colon + 1);
      fits = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
      if (fits) host = host.substr(0, colon);
    }
    // A launcher may have put "[rank3]:" or "3:" in front.
    if (fits && !host.empty()) return host.substr(host.find_last_of(":]") + 1);
  }
  return "";
}

class Reader {
 public:
  /// Whether the line tells of a choice.
  bool take(std::string_view line) {
    constexpr std::string_view info = "NCCL INFO ", warn = "NCCL WARN ";
    const std::size_t at = line.find(info);
    if (at != line.npos) return take_message(line.substr(at + info.size()), host_in(line.substr(0, at)));
    const std::size_t warning = line.find(warn);
    if (warning == line.npos) return false;
    if (log.warnings.size() < most_warnings) log.warnings.push_back(kept_text(line.substr(warning + warn.size())));
    return true;
  }

  NcclLog log;

 private:
  std::map<std::tuple<int, int, std::string, bool, bool>, std::size_t> places_;  ///< of the links

  bool take_message(std::string_view text, std::string_view host) {
    if (text.starts_with("Channel ")) return take_link(text);
    if (text.starts_with("NCCL version ")) {
      log.version = kept_text(Message(text.substr(13)).until(" "));
      return true;
    }
    if (text.find("Init COMPLETE") != text.npos) return take_rank(text, host);
    return take_transport(text) || take_channels(text) || take_graph(text, host) || take_variable(text);
  }

  /// "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"; before 2.18 with addresses on the bus in the brackets.
  bool take_link(std::string_view text) {
    Message words(text.substr(8));
    const std::optional<int> channel = words.number(most_channels - 1);
    if (!channel || !words.skip_past(" : ")) return false;
    const std::optional<int> from = words.number(most_ranks);
    if (!from || !words.skip_past("] -> ")) return false;
    const std::optional<int> to = words.number(most_ranks);
    const bool receives = words.rest().find(" [receive] ") != text.npos;
    if (!to || !words.skip_past(" via ")) return false;
    Message kind(words.rest());
    const bool gpu_direct = kind.rest().find("/GDRDMA") != text.npos;
    NcclLink link{.from = *from, .to = *to, .receives = receives, .gpu_direct = gpu_direct};
    if (kind.skip("SHM"))
      link.by = "SHM";
    else if (kind.skip("NET/"))
      link.by = "NET/" + kept_text(kind.until("/"));
    else if (kind.skip("P2P/"))
      link.by = "P2P/" + kept_text(kind.until("/ "));
    else
      return false;
    add(link, *channel);
    return true;
  }

  void add(const NcclLink& link, int channel) {
    const auto [known, is_new] =
        places_.try_emplace({link.from, link.to, link.by, link.receives, link.gpu_direct}, log.links.size());
    if (is_new && log.links.size() == most_links) {
      places_.erase(known);
      log.is_cut = true;
      return;
    }
    if (is_new) log.links.push_back(link);
    log.links[known->second].channels.insert(channel);
  }

  /// "comm 0x55 rank 0 nranks 2 cudaDev 0 busId 3d000 - Init COMPLETE", later with a nvmlDev and a commId.
  bool take_rank(std::string_view text, std::string_view host) {
    const auto rank = value_after(text, " rank ", 10), size = value_after(text, " nranks ", 10);
    if (!rank || !size || *size > most_ranks || *rank >= *size) return false;
    log.size = std::max(log.size, static_cast<int>(*size));
    if (const auto group = value_after(text, " commId 0x", 16)) keep(log.groups, std::to_string(*group));
    if (log.ranks.size() >= static_cast<std::size_t>(most_ranks)) return true;
    NcclRank& place = log.ranks[static_cast<int>(*rank)];
    place.host = kept_text(host);
    if (const auto bus = value_after(text, " busId ", 16)) place.gpu = bus_address(*bus);
    return true;
  }

  /// The names of " [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.5<0>".
  static void keep_devices(std::set<std::string>& names, std::string_view list) {
    list = list.substr(0, list.find(';'));
    for (std::size_t at = list.find(']'); at != list.npos; at = list.find(']', at + 1))
      keep(names, Message(list.substr(at + 1)).until(":/ "));
  }

  bool take_transport(std::string_view text) {
    Message words(text);
    if (words.skip("Using ") && words.skip("network")) {
      log.between_hosts = kept_text(words.rest().substr(words.rest().starts_with(' ')));
    } else if (words.skip("NET/IB : Using")) {
      keep_devices(log.rdma, words.rest());
    } else if (words.skip("NET/IB : No device found")) {
      log.no_rdma = true;
    } else if (words.skip("NET/Socket : Using")) {
      keep_devices(log.interfaces, words.rest());
    } else if (words.skip("NET/Plugin: Loaded net plugin ")) {
      keep(log.plugins, words.rest().substr(0, words.rest().find(" (v")));
    } else if (text.find("GPU Direct RDMA Disabled for ") != text.npos) {
      keep(log.no_gpu_direct, text);
    } else if (words.skip("P2P is disabled between ")) {
      keep(log.no_peer, Message(text).until("."));
    } else {
      return false;
    }
    return true;
  }

  /// "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer", of which
  /// older versions have fewer.
  bool take_channels(std::string_view text) {
    if (text == "Connected all rings" || text.starts_with("Connected all rings,")) return log.has_rings = true;
    if (text == "Connected all trees") return log.has_trees = true;
    if (text == "Connected NVLS tree") return log.has_nvls_tree = true;
    if (text.starts_with("NVLS multicast support is ")) {
      log.has_multicast = log.has_multicast.value_or(true) && text.find("not available") == text.npos;
      return true;
    }
    Message words(text);
    const std::optional<int> count = words.number(most_ranks);
    if (!count || !words.skip(" coll channels")) return false;
    log.channels = std::max(log.channels, *count);
    while (words.skip(", ")) {
      const int more = words.number(most_ranks).value_or(0);
      if (words.skip(" nvls channels"))
        log.nvls_channels = std::max(log.nvls_channels.value_or(0), more);
      else if (words.skip(" p2p channels per peer"))
        break;
      else if (words.skip(" p2p channels"))
        log.p2p_channels = std::max(log.p2p_channels, more);
      else if (!words.skip(" collnet channels"))
        break;
    }
    return true;
  }

  /// NCCL draws what it has found of the machine, as "      + NVL[264.0] - NVS/0".
  bool take_graph(std::string_view text, std::string_view host) {
    const bool begins = text.starts_with("=== System :"), has_link = text.find("+ NVL[") != text.npos;
    if (!begins && !has_link) return false;
    for (std::set<std::string>* const hosts : {&log.hosts_with_graph, &log.hosts_with_nvlink})
      if ((hosts == &log.hosts_with_graph || has_link) && hosts->size() < most_hosts) hosts->insert(kept_text(host));
    return true;
  }

  /// "NCCL_IB_DISABLE set by environment to 1."
  bool take_variable(std::string_view text) {
    if (!text.starts_with("NCCL_") || log.variables.size() >= most_names) return false;
    Message words(text);
    const std::string_view name = words.until(" ");
    if (!words.skip(name) || !(words.skip(" set by environment to ") || words.skip(" set to "))) return false;
    std::string_view value = words.rest();
    if (value.ends_with('.')) value.remove_suffix(1);
    log.variables[kept_text(name)] = kept_text(value);
    return true;
  }
};

template <class F>
void for_each_line(std::string_view text, const F& f) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

}  // namespace

NcclLog read_nccl_log(std::string_view text) {
  Reader reader;
  for_each_line(text, [&](std::string_view line) { (void)reader.take(line); });
  return reader.log;
}

std::string nccl_lines_of_interest(std::string_view text) {
  constexpr std::size_t most = std::size_t{1} << 20;
  Reader reader;
  std::string lines;
  for_each_line(text, [&](std::string_view line) {
    if (lines.size() + line.size() < most && reader.take(line)) lines.append(line) += '\n';
  });
  return lines;
}

std::string nccl_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::string_view text = name.data();
  return std::string(text.substr(0, text.find('.')));
}

}  // namespace hearth::dist
