// SPDX-License-Identifier: Apache-2.0
#include "train/plan/audit.h"

#include <algorithm>
#include <iomanip>
#include <tuple>
#include <utility>

#include "core/text_stream.h"

namespace hearth::train {
bool AuditFinding::is_like(const AuditFinding& other) const {
  return std::tie(kind, layer, op, what) == std::tie(other.kind, other.layer, other.op, other.what);
}

Json to_json(const std::vector<AuditFinding>& findings) {
  Json list = Json::array();
  for (const AuditFinding& finding : findings)
    list.push_back(Json::object()
                       .set("kind", finding.kind)
                       .set("layer", finding.layer)
                       .set("op", finding.op)
                       .set("what", finding.what)
                       .set("remedy", finding.remedy)
                       .set("calls", finding.calls)
                       .set("share", finding.share));
  return list;
}

std::vector<AuditFinding> findings_of(const Json& node) {
  std::vector<AuditFinding> findings;
  for (const Json& item : node.items()) {
    AuditFinding finding{.kind = item.at("kind").as_string(),
                         .layer = item.at("layer").as_string(),
                         .op = item.at("op").as_string(),
                         .what = item.at("what").as_string(),
                         .remedy = "",
                         .calls = item.at("calls").as_integer()};
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::string to_text(const std::vector<AuditFinding>& findings) {
  if (findings.empty()) return "nothing found\n";
  // What several layers have in common is one line.
  std::vector<std::pair<AuditFinding, std::vector<std::string>>> lines;
  for (const AuditFinding& finding : findings) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.first.kind == finding.kind && line.first.op == finding.op && line.first.what == finding.what;
    });
    const bool is_first = same == lines.end();
    auto& [line, layers] = is_first ? lines.emplace_back(finding, std::vector<std::string>()) : *same;
    layers.push_back(finding.layer.empty() ? "no layer" : finding.layer);
    if (is_first) continue;
    line.calls += finding.calls;
    line.share += finding.share;
  }
  TextStream out;
  for (const auto& [line, layers] : lines) {
    out << std::left << std::setw(10) << line.kind << line.op << ": ";
    if (line.kind == "launches") {
      out << line.calls << " " << line.what << "\n";
      continue;
    }
    out << line.what << "\n          in " << layers.front();
    if (layers.size() > 1) out << " and " << layers.size() - 1 << " more";
    out << ", " << line.calls << (line.calls == 1 ? " call, " : " calls, ") << std::fixed << std::setprecision(1)
        << 100 * line.share << " % of the step\n          -> " << line.remedy << "\n";
  }
  return out.str();
}

std::vector<AuditFinding> unexpected(const std::vector<AuditFinding>& found,
                                     const std::vector<AuditFinding>& expected) {
  std::vector<AuditFinding> rest;
  for (const AuditFinding& finding : found)
    if (std::none_of(expected.begin(), expected.end(), [&](const AuditFinding& other) {
          return finding.is_like(other) && (finding.kind != "launches" || finding.calls <= other.calls);
        }))
      rest.push_back(finding);
  return rest;
}

}  // namespace hearth::train
