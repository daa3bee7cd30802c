// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "core/io/printable.h"
#include "data/inspect.h"
#include "data/registry.h"
#include "data/text/text_data.h"
#include "data/text/text_inspect.h"
#include "train/cli/commands.h"
#include "train/run/run_config.h"

namespace hearth::train {

namespace {

int pack(const Arguments& arguments) {
  HEARTH_CHECK(UsageError, arguments.positional().size() == 3,
               "data pack: name the folder to write to: ", "hearth data pack CONFIG.json FOLDER");
  const LoadedConfig loaded = load_config(arguments.positional()[1], arguments.values("--set"));
  const std::string& folder = arguments.positional()[2];
  Json all = Json::array();
  for (const data::PackedFile& file : data::pack_text(loaded.config.data, folder)) {
    all.push_back(Json::object()
                      .set("path", file.path)
                      .set("tokens", file.tokens)
                      .set("sequences", file.sequences)
                      .set("characters", file.characters)
                      .set("bytes_an_id", file.bytes_an_id));
    std::cerr << printable(file.path) << ": " << file.tokens << " ids of " << file.bytes_an_id << " bytes, "
              << file.sequences << " sequences, " << file.characters << " characters\n";
  }
  if (arguments.has("--json"))
    std::cout << to_text(all) << "\n";
  else
    std::cerr << "read them with \"data\": {\"type\": \"" << loaded.config.data.type() << "\", \"packed\": \""
              << printable(folder) << "\", ...}\n";
  return 0;
}

/// One part's report, as JSON and as text; adds samples that cannot be read, or have bad labels, to `problems`.
std::pair<Json, std::string> report(const data::Dataset& part, bool whole, std::int64_t batch_size,
                                    std::int64_t& problems) {
  if (const data::TokenDataset* tokens = part.tokens()) {
    const data::TextInspection found = data::inspect_text(*tokens, batch_size);
    return {data::to_json(found), data::to_text(found)};
  }
  const data::ImageDataset* const images = part.images();
  HEARTH_CHECK(UsageError, images != nullptr, "data: ", part.source(),
               " holds neither images nor sequences of tokens, which is what this command looks at");
  const data::Inspection found = whole ? data::verify(*images) : data::inspect(*images);
  problems += found.problems.count;
  return {data::to_json(found), data::to_text(found)};
}

}  // namespace

int data_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  HEARTH_CHECK(UsageError, what == "inspect" || what == "verify" || what == "pack", "data: \"", what,
               "\" is not known; use inspect, verify or pack");
  if (what == "pack") return pack(arguments);
  HEARTH_CHECK(UsageError, arguments.positional().size() == 2, "data ", what, ": takes one config; \"",
               arguments.positional().back(), "\" is too much");
  const LoadedConfig loaded = load_config(arguments.positional()[1], arguments.values("--set"));
  const data::DataSplits data = data::make_data(loaded.config.data);
  std::int64_t problems = 0;
  Json all = Json::object();
  for (const auto& [name, part] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}}) {
    if (!part) continue;
    auto [json, text] = report(*part, what == "verify", loaded.config.train.batch_size, problems);
    all.set(name, std::move(json));
    if (!arguments.has("--json")) std::cout << name << "\n" << text << "\n";
  }
  if (arguments.has("--json")) std::cout << to_text(all) << "\n";
  HEARTH_CHECK(DataError, what == "inspect" || problems == 0, "data verify: ", problems,
               " samples cannot be read or have a bad label; the first ones of each part are listed above");
  return 0;
}

}  // namespace hearth::train
