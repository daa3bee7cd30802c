// SPDX-License-Identifier: Apache-2.0
#include "train/tune/lock_file.h"

#include "core/cuda/stream.h"
#include "core/error.h"
#include "core/io/printable.h"
#include "core/text_stream.h"
#include "train/checkpoint/run_info.h"

namespace hearth::train {
namespace {

constexpr const char* lock_format = "hearth tune 1";

/// What the times depend on, by name.
Json surroundings(const TuneTarget& target) {
  return Json::object()
      .set("versions", software_versions())
      .set("machine", machine_facts())
      .set("device", target.device)
      .set("ranks", target.ranks);
}

void add_differences(std::vector<std::string>& all, const std::string& path, const Json& of_lock, const Json& here) {
  if (of_lock.is_object() && here.is_object()) {
    for (const JsonMember& member : here.members()) {
      const Json* const other = of_lock.find(member.key);
      add_differences(all, path + (path.empty() ? "" : ".") + member.key, other == nullptr ? Json() : *other,
                      member.value);
    }
  } else if (to_text(of_lock) != to_text(here)) {
    all.push_back(join_text(path, " was ", printable(to_text(of_lock)), " and is ", printable(to_text(here))));
  }
}

const Json& part_of(const Json& lock, const char* name) {
  const Json* const part = lock.find(name);
  HEARTH_CHECK(ConfigError, part != nullptr && part->is_object(), "lock: it has no \"", name,
               "\"; `hearth tune CONFIG.json` writes a whole one");
  return *part;
}

Json to_json(const TuneDecision& decision) {
  Json result = Json::object().set("choice", decision.choice).set("variant", decision.variant);
  if (decision.ratio) result.set("time_ratio", *decision.ratio);
  return result.set("taken", decision.taken).set("reason", decision.reason);
}

}  // namespace

std::string device_model(Device device) { return device.is_cuda() ? cuda::device_info(device).name : "cpu"; }

Json make_lock(const LoadedConfig& loaded, const TuneTarget& target, const TuneResult& result, const Json& guard) {
  Json set = Json::object(), decisions = Json::array();
  for (const auto& [path, value] : result.overrides) set.set(path, parse_json(value, path));
  for (const TuneDecision& decision : result.decisions) decisions.push_back(to_json(decision));
  return Json::object()
      .set("format", lock_format)
      .set("set", set)
      .set("found", surroundings(target))
      .set("config", loaded.resolved)
      .set("receipt", Json::object().set("speed", result.speed).set("decisions", decisions).set("guard", guard));
}

std::vector<std::string> words_of_lock(const Json& lock, const LoadedConfig& loaded, const TuneTarget& target) {
  const Json* const format = lock.is_object() ? lock.find("format") : nullptr;
  HEARTH_CHECK(ConfigError, format != nullptr && format->is_string() && format->as_string() == lock_format,
               "lock: it is no file of this version of `hearth tune`; write it again");
  std::vector<std::string> all;
  add_differences(all, "", part_of(lock, "found"), surroundings(target));
  for (const std::string& path : differences_that_matter(part_of(lock, "config"), loaded.resolved))
    all.push_back("the configuration differs at " + path);
  std::string text;
  for (const std::string& difference : all) text += (text.empty() ? "" : "; ") + difference;
  HEARTH_CHECK(ConfigError, all.empty(), "lock: it was found elsewhere: ", text,
               "; run `hearth tune` again, or train without --lock");
  std::vector<std::string> words;
  for (const JsonMember& member : part_of(lock, "set").members())
    words.push_back(member.key + "=" + to_text(member.value));
  return words;
}

}  // namespace hearth::train
