// SPDX-License-Identifier: Apache-2.0
#include "train/profile/profile_rows.h"

#include <algorithm>
#include <iomanip>
#include <utility>
#include <vector>

#include "core/text_stream.h"

namespace hearth::train {

Json to_json(const ProfileLimits& limits) {
  return Json::object().set("copy_gbs", limits.copy_gbs).set("tflops", limits.tflops).set("source", limits.source);
}

void ProfileRow::add_work(double more_bytes, double more_flops, const ProfileLimits& limits) {
  bytes += more_bytes;
  flops += more_flops;
  floor_us += std::max(limits.copy_gbs > 0 ? 1e-3 * more_bytes / limits.copy_gbs : 0,
                       limits.tflops > 0 ? 1e-6 * more_flops / limits.tflops : 0);
}

Json to_json(const ProfileRows& rows) {
  constexpr std::size_t max_rows = 40;
  std::vector<std::pair<std::string, ProfileRow>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  if (sorted.size() > max_rows) sorted.resize(max_rows);
  Json list = Json::array();
  for (const auto& [name, row] : sorted)
    list.push_back(Json::object()
                       .set("name", name)
                       .set("count", row.count)
                       .set("us", row.us)
                       .set("bytes", row.bytes)
                       .set("flops", row.flops)
                       .set("floor_us", row.floor_us)
                       .set("percent_of_limit", row.us > 0 ? 100 * row.floor_us / row.us : 0.0));
  return list;
}

std::string profile_tables(const Json& profile) {
  TextStream out;
  const auto number = [](const Json& of, const char* key) { return of.find(key)->as_number(); };
  const bool by_host = profile.find("clock") != nullptr && profile.find("clock")->as_string() == "host";
  out << std::fixed << std::setprecision(3) << (by_host ? "a step " : "on the device ")
      << number(profile, "milliseconds") << (by_host ? " ms: in operations " : " ms: busy ")
      << number(profile, "busy_milliseconds") << (by_host ? " ms, in none " : " ms, gaps ")
      << number(profile, "gap_milliseconds") << " ms";
  if (by_host)
    out << "; least at the limits " << number(profile, "floor_milliseconds") << " ms, " << std::setprecision(1)
        << 100 * number(profile, "floor_milliseconds") / number(profile, "milliseconds") << " %";
  out << "\n";
  for (const char* what : {"phases", "ops", "kernels"}) {
    out << std::left << std::setw(44) << what << std::right << std::setw(7) << "count" << std::setw(12) << "us"
        << std::setw(11) << "MB" << std::setw(11) << "GFLOP" << std::setw(13) << "% of limit\n";
    for (const Json& row : profile.find(what)->items())
      out << std::left << std::setw(44) << row.find("name")->as_string() << std::right << std::setprecision(1)
          << std::setw(7) << row.find("count")->as_integer() << std::setw(12) << number(row, "us") << std::setw(11)
          << number(row, "bytes") / 1e6 << std::setw(11) << number(row, "flops") / 1e9 << std::setw(12)
          << number(row, "percent_of_limit") << "\n";
  }
  return out.str();
}

}  // namespace hearth::train
