// SPDX-License-Identifier: Apache-2.0
#include "train/report/input_section.h"

#include <algorithm>

#include "core/text_stream.h"
#include "train/report/page.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

/// Sums over the lines of metrics that tell of the input.
struct Told {
  std::size_t lines = 0, waited = 0;
  const Json* advice = nullptr;  // the last line with some
  double workers = 0, dry = 0, least = -1;
  std::vector<std::pair<std::string, double>> shares{};  // of the workers' time by stage

  void add(const Json& record, const Json& stages) {
    ++lines;
    workers = number_at(record, "data_workers").value_or(0);
    dry += number_at(record, "queue_dry").value_or(0);
    if (const auto depth = number_at(record, "queue_depth_min")) least = least < 0 ? *depth : std::min(least, *depth);
    if (!text_at(record, "data_advice").empty()) ++waited, advice = &record;
    for (const JsonMember& stage : stages.members()) {
      if (!stage.value.is_number()) continue;
      const auto known =
          std::find_if(shares.begin(), shares.end(), [&](const auto& share) { return share.first == stage.key; });
      (known == shares.end() ? shares.emplace_back(stage.key, 0) : *known).second += stage.value.as_number();
    }
  }
};

}  // namespace

std::string input_section(const std::vector<Json>& records) {
  Told told;
  for (const Json& record : records)
    if (const Json* const stages = record.find("data_stages"); stages != nullptr && stages->is_object())
      told.add(record, *stages);
  if (told.lines == 0) return "";
  ReportSections sections;
  sections.heading("Input");
  if (told.advice != nullptr)
    sections.paragraph(join_text(text_at(*told.advice, "data_advice"), ". Steps waited in ", told.waited, " of ",
                                 told.lines, " log intervals, step ", text_at(*told.advice, "step"), " the last."));
  else
    sections.paragraph("The steps did not wait for their input.");
  if (told.workers > 0)
    sections.paragraph(
        join_text("Time of ", told.workers, told.workers == 1 ? " worker" : " workers",
                  " by stage; in \"room\" as many batches were ready as may be. The queue was found empty ", told.dry,
                  " times after the warm-up; the fewest batches that were ready: ", told.least, "."));
  else
    sections.paragraph("Time of the steps by stage, as no worker makes batches beside them.");
  std::vector<ReportSections::Bar> bars;
  for (const auto& [name, sum] : told.shares) {
    const double share = sum / static_cast<double>(told.lines);
    bars.push_back({name, percent_text(share), std::clamp(share, 0.0, 1.0)});
  }
  sections.bars(bars);
  return sections.html();
}

}  // namespace hearth::train
