// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "hearth/data/inspect.h"
#include "hearth/data/registry.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/run_config.h"

namespace hearth::train {

int data_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  HEARTH_CHECK(UsageError, what == "inspect" || what == "verify", "data: \"", what,
               "\" is not known; use inspect or verify (pack is not in this build)");
  const LoadedConfig loaded = load_config(arguments.positional()[1], arguments.values("--set"));
  const data::DataSplits data = data::make_data(loaded.config.data);
  std::int64_t problems = 0;
  Json all = Json::object();
  for (const auto& [name, part] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}}) {
    if (!part) continue;
    const data::Inspection found = what == "verify" ? data::verify(*part) : data::inspect(*part);
    problems += found.problems;
    all.set(name, data::to_json(found));
    if (!arguments.has("--json")) std::cout << name << "\n" << data::to_text(found) << "\n";
  }
  if (arguments.has("--json")) std::cout << to_text(all) << "\n";
  HEARTH_CHECK(DataError, what == "inspect" || problems == 0, "data verify: ", problems,
               " samples cannot be read; the first ones of each part are listed above");
  return 0;
}

}  // namespace hearth::train
