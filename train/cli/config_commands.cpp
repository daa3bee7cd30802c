// SPDX-License-Identifier: Apache-2.0
// schema, config.
#include <iostream>

#include "train/cli/commands.h"
#include "train/config/run_config.h"

namespace hearth::train {
namespace {

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

}  // namespace

CommandSpec schema_spec() {
  return {"schema",
          "",
          0,
          0,
          "Prints the JSON schema of run configs.",
          {{"--markdown", "", "print the reference page instead"}},
          schema_command};
}

CommandSpec config_spec() {
  return {"config",
          "CONFIG.json",
          1,
          1,
          "Prints the resolved config with the origin of each value (file, --set or default).",
          {set_option(), {"--json", "", "print only the resolved config"}},
          config_command};
}

}  // namespace hearth::train
