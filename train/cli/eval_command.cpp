// SPDX-License-Identifier: Apache-2.0
// eval: loss, accuracy and the metrics of a trained run.
#include <iomanip>
#include <iostream>

#include "hearth/train/checkpoint.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/step.h"
#include "hearth/train/text_metrics.h"

namespace hearth::train {

int eval_command(const Arguments& arguments) {
  const auto session = open_trained(arguments.positional()[0], arguments.values("--set"));
  const std::string wanted = arguments.value("--split").value_or("");
  const auto [split, part] = session->evaluation_part(wanted);
  HEARTH_CHECK(DataError, part != nullptr, "eval: the data of this run has no ",
               wanted.empty() ? "test or valid" : wanted, " part; choose another with --split");
  const Meter meter = evaluate(*session, part);
  Json record = Json::object();
  record.set("split", split)
      .set("step", session->position.step)
      .set("samples", meter.samples)
      .set("loss", meter.loss())
      .set("accuracy", meter.accuracy());
  const data::TokenDataset* const text = part->tokens();
  if (text != nullptr) set_text_metrics(record, session->loss, meter, *text);
  if (arguments.has("--json")) {
    std::cout << to_text(record) << "\n";
    return 0;
  }
  std::cerr << split << ": " << meter.samples << (text != nullptr ? " tokens" : " images") << ", step "
            << session->position.step << ", loss " << std::setprecision(9) << meter.loss() << ", accuracy "
            << std::fixed << std::setprecision(2) << 100 * meter.accuracy() << " %";
  for (const char* key : {"perplexity", "bits_per_character"})
    if (const Json* value = record.find(key))
      std::cerr << ", " << key << ' ' << std::setprecision(4) << value->as_number();
  std::cerr << "\n";
  return 0;
}

}  // namespace hearth::train
