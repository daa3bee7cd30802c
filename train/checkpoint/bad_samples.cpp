// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint/bad_samples.h"

#include <algorithm>
#include <span>
#include <utility>

#include "dist/agreement.h"

namespace hearth::train {
namespace {

using data::Quarantine;

/// "cat/10.png"; empty where samples have no names.
std::string name_of_sample(const data::DataSplits& data, std::size_t split, std::int64_t sample) {
  const data::DatasetPointer splits[] = {data.train, data.valid, data.test};
  return splits[split]->sample_name(sample);
}

Json to_json(std::span<const Quarantine::Entry> entries) {
  Json list = Json::array();
  for (const Quarantine::Entry& entry : entries)
    list.push_back(Json::object().set("sample", entry.sample).set("fault", entry.fault));
  return list;
}

std::vector<Quarantine::Entry> entries_in(const Json& list) {
  std::vector<Quarantine::Entry> entries;
  for (const Json& entry : list.items())
    entries.push_back({entry.at("sample").as_integer(), entry.at("fault").as_string()});
  return entries;
}

}  // namespace

void register_quarantines(const data::DataSplits& data, State& state) {
  for (const auto& one : data.quarantines)
    if (one) one->register_state(state, quarantine_state + one->split());
}

Json bad_samples_to_json(const data::DataSplits& data, std::int64_t most) {
  Json all = Json::object();
  for (std::size_t i = 0; i < data.quarantines.size(); ++i) {
    const auto& one = data.quarantines[i];
    if (!one || one->count() == 0) continue;
    const std::vector<Quarantine::Entry> entries = one->delivered();
    const auto listed = std::min(static_cast<std::size_t>(most), entries.size());
    Json list = to_json(std::span(entries).first(listed));
    for (std::size_t k = 0; k < listed; ++k)
      if (std::string name = name_of_sample(data, i, entries[k].sample); !name.empty())
        list.items()[k].set("name", name);
    all.set(one->split(), Json::object()
                              .set("count", static_cast<std::int64_t>(entries.size()))
                              .set("limit", one->limit())
                              .set("first", std::move(list)));
  }
  return all.size() > 0 ? all : Json();
}

void restore_bad_samples(const data::DataSplits& data, const Json* noted) {
  for (const auto& one : data.quarantines) {
    if (!one) continue;
    const Json* const of_split = noted != nullptr ? noted->find(one->split()) : nullptr;
    try {
      one->after_load(of_split != nullptr ? entries_in(of_split->at("first")) : std::vector<Quarantine::Entry>());
    } catch (const ConfigError& error) {
      throw FileError(join_text("the bad samples that the checkpoint names: ", error.what()));
    }
  }
}

void clear_bad_samples(const data::DataSplits& data) {
  for (const auto& one : data.quarantines)
    if (one) one->clear();
}

std::int64_t count_of_bad_samples(const data::DataSplits& data) {
  std::int64_t count = -1;
  for (const auto& one : data.quarantines)
    if (one) count = std::max<std::int64_t>(count, 0) + one->count();
  return count;
}

std::vector<std::string> take_new_bad_samples(const data::DataSplits& data, Collective& group) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < data.quarantines.size(); ++i) {
    const auto& one = data.quarantines[i];
    if (!one) continue;
    std::vector<Quarantine::Entry> found = one->take_new();
    for (const std::string& text : dist::gather(group, to_text(to_json(found))))
      one->deliver(entries_in(parse_json(text, "bad samples of a rank")));
    for (Quarantine::Entry& entry : one->take_new()) found.push_back(std::move(entry));
    for (const Quarantine::Entry& entry : found) {
      const std::string name = name_of_sample(data, i, entry.sample);
      lines.push_back(join_text("sample ", entry.sample, name.empty() ? "" : " (" + name + ")", " of the ",
                                one->split(), " split is bad, and another stands in for it: ", entry.fault));
    }
  }
  return lines;
}

}  // namespace hearth::train
