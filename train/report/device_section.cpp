// SPDX-License-Identifier: Apache-2.0
#include "train/report/device_section.h"

#include <algorithm>

#include "core/text_stream.h"
#include "train/report/page.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

constexpr std::size_t max_rows = 20;

void write_rows(std::ostream& out, const Json& profile, const char* what) {
  const Json* const rows = profile.find(what);
  if (rows == nullptr || !rows->is_array() || rows->items().empty()) return;
  out << "<div class=\"across\"><table class=\"numbers\"><tr><th>" << what
      << "</th><th>count</th><th>us</th><th>MB</th><th>GFLOP</th><th>% of limit</th></tr>";
  for (std::size_t i = 0; i < std::min(max_rows, rows->items().size()); ++i) {
    const Json& row = rows->items()[i];
    const auto cell = [&](const char* key, double unit, int digits) {
      out << "<td>" << rounded(number_at(row, key).value_or(0) / unit, digits) << "</td>";
    };
    out << "<tr><th>" << html_escaped(text_at(row, "name")) << "</th>";
    cell("count", 1, 6);
    cell("us", 1, 4);
    cell("bytes", 1e6, 4);
    cell("flops", 1e9, 4);
    cell("percent_of_limit", 1, 3);
    out << "</tr>";
  }
  out << "</table></div>";
}

}  // namespace

std::string device_section(const Json& profile) {
  const auto whole = number_at(profile, "milliseconds"), gaps = number_at(profile, "gap_milliseconds");
  if (!whole || !gaps) return "";
  TextStream out;
  const bool by_host = text_at(profile, "clock") == "host";
  out << "<section><h2>" << (by_host ? "A step, operation by operation" : "A step on the device")
      << "</h2><p class=\"sub\">" << rounded(*whole, 4) << (by_host ? " ms, " : " ms by the device's clock, ")
      << rounded(*gaps, 4) << (by_host ? " ms of them in no operation" : " ms of them between kernels")
      << ". Limit: the time that bytes and arithmetic take at "
      << (profile.find("limits") != nullptr ? html_escaped(text_at(*profile.find("limits"), "source")) : "")
      << " rates.</p>";
  for (const char* what : {"phases", "ops", "kernels"}) write_rows(out, profile, what);
  out << "</section>";
  return out.str();
}

}  // namespace hearth::train
