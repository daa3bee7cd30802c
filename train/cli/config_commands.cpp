// SPDX-License-Identifier: Apache-2.0
// schema, config.
#include <iostream>

#include "train/cli/commands.h"
#include "train/config/run_config.h"

namespace hearth::train {

int schema_command(const Arguments& arguments) {
  const Schema& schema = *schema_of<RunConfig>();
  if (arguments.has("--markdown"))
    std::cout << reference_markdown(schema, "Configuration");
  else
    std::cout << to_text(json_schema(schema, "Hearth run"), 2) << "\n";
  return 0;
}

int config_command(const Arguments& arguments) {
  const LoadedConfig loaded = load_config(arguments.positional()[0], arguments.values("--set"));
  for (const std::string& hint : loaded.hints) std::cerr << "warning   " << hint << "\n";
  if (arguments.has("--json")) {
    std::cout << to_text(loaded.resolved, 2) << "\n";
    return 0;
  }
  const Json all = Json::object().set("config", loaded.resolved).set("origins", origins(loaded.resolved));
  std::cout << to_text(all, 2) << "\n";
  return 0;
}

}  // namespace hearth::train
