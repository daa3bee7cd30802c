// SPDX-License-Identifier: Apache-2.0
// What a report tells of a model: what its task makes of a split, and its layers.

#include "autograd/grad_mode.h"
#include "models/nn/summary.h"
#include "train/report/page.h"
#include "train/report/report.h"
#include "train/step/step.h"
#include "train/step/visit_batches.h"
#include "train/task/report/training_inputs.h"
#include "train/task/report_sections.h"

namespace hearth::train {
namespace {

void add_task(Session& session, const ModelReport& options, ReportSections& sections) {
  const std::string& wanted = options.split;
  const auto [name, part] = wanted.empty() ? session.validation_part() : session.evaluation_part(wanted);
  const bool is_there = part != nullptr && part->size() > 0;
  HEARTH_CHECK(DataError, wanted.empty() || is_there, "report: the data of this run has no ", wanted,
               " split; choose another with --split");
  if (!is_there) return;
  ReportSections own;
  // Structured bindings are no captures.
  const VisitBatches visit = [&session, &split = part, &options](const std::function<void(const data::Batch&)>& use) {
    visit_batches(session, split, options.most, use);
  };
  session.task->report(session, part, visit, own);
  if (options.samples) {
    const EvaluationScope as_in_evaluations(session);
    const std::vector<Figure> samples = session.task->samples(session, part);
    if (!samples.empty()) own.heading("Samples");
    own.figures(samples);
  }
  if (own.html().empty()) return;
  const std::string some = part->size() <= options.most ? "all" : join_text("the first ", options.most, " of");
  sections.heading("What the model predicts");
  sections.paragraph(join_text("The model of step ", options.weights_step.value_or(session.position.step), " on ", some,
                               " ", part->size(), " samples of the ", name, " split."));
  sections.append(own);
}

void add_layers(Session& session, ReportSections& sections) {
  std::vector<nn::ModuleReport> rows;
  {
    const data::Batch input = sample_batch(session, 1, session.device().type).to(session.device());
    const SwitchScope switches(session.switches());
    const AutocastScope autocast(session.autocast());
    const nn::Inputs inputs = session.task->inputs(session, input);
    // The first call chooses implementations.
    (void)nn::summarize(*session.model, inputs);
    rows = nn::summarize(*session.model, inputs);
  }
  // A call of a GPU's kernels takes next to nothing on the host.
  const bool is_timed = session.device().is_cpu();
  std::vector<std::string> headings{"layer", "kind", "output", "parameters", "MFLOP"};
  if (is_timed) headings.emplace_back("ms");
  std::vector<std::vector<std::string>> table;
  for (const nn::ModuleReport& row : rows) {
    std::vector<std::string> cells{row.path.empty() ? "(model)" : row.path, row.type, join_text(row.output),
                                   join_text(row.parameters), rounded(row.flops / 1e6, 4)};
    if (is_timed) cells.push_back(rounded(row.milliseconds, 3));
    table.push_back(std::move(cells));
  }
  sections.heading("Layers");
  sections.paragraph(join_text("Arithmetic", is_timed ? " and time" : "",
                               " of the forward pass of one sample; a layer includes those below it."));
  sections.table(headings, table);
}

}  // namespace

std::string model_sections(Session& session, const ModelReport& options) {
  HEARTH_CHECK(UsageError, options.most >= 1, "report: ", options.most, " samples; give 1 or more");
  ReportSections sections;
  add_task(session, options, sections);
  add_training_inputs(session.data, session.config().seed, sections);
  add_layers(session, sections);
  return sections.html();
}

}  // namespace hearth::train
