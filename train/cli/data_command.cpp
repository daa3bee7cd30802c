// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "hearth/data/registry.h"
#include "hearth/train/cli/cli.h"
#include "hearth/train/run_config.h"

namespace hearth::train {
namespace {

Json describe_part(const data::Dataset& part, bool read_all, bool& sound) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(part.classes()));
  data::Image image;
  Json problems = Json::array();
  std::int64_t unreadable = 0;
  for (std::int64_t i = 0; i < part.size(); ++i) {
    ++counts[static_cast<std::size_t>(part.label(i))];
    if (!read_all) continue;
    try {
      (void)part.read(i, image);
    } catch (const Error& error) {
      if (unreadable++ < 20) problems.push_back(error.what());
    }
  }
  sound = sound && unreadable == 0;
  const data::ImageShape shape = part.image_shape();
  Json classes = Json::object();
  for (std::size_t i = 0; i < counts.size(); ++i) classes.set(part.class_names()[i], counts[i]);
  Json result = Json::object();
  result.set("source", part.source())
      .set("samples", part.size())
      .set("height", shape.height)
      .set("width", shape.width)
      .set("channels", shape.channels)
      .set("classes", classes);
  const data::Warnings warnings = part.warnings();
  if (warnings.count > 0)
    result.set("passed_over", warnings.count).set("first_passed_over", Json::array_of(warnings.first));
  if (read_all) result.set("unreadable", unreadable).set("problems", problems);
  return result;
}

}  // namespace

int data_command(const Arguments& arguments) {
  const std::string& what = arguments.positional()[0];
  HEARTH_CHECK(UsageError, what == "inspect" || what == "verify", "data: \"", what,
               "\" is not known; use inspect or verify (pack is not in this build)");
  const LoadedConfig loaded = load_config(arguments.positional()[1], arguments.values("--set"));
  const data::DataSplits data = data::make_data(loaded.config.data);
  bool sound = true;
  Json all = Json::object();
  for (const auto& [name, part] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}})
    if (part) all.set(name, describe_part(*part, what == "verify", sound));
  std::cout << to_text(all, arguments.has("--json") ? 0 : 2) << "\n";
  HEARTH_CHECK(DataError, sound,
               "data verify: some samples cannot be read; \"problems\" above names the first of each part");
  return 0;
}

}  // namespace hearth::train
