// SPDX-License-Identifier: Apache-2.0
#include "data/fingerprint.h"

#include "core/io/checksum.h"
#include "data/images/image_dataset.h"
#include "data/text/labelled.h"

namespace hearth::data {
namespace {

constexpr const char* split_names[] = {"train", "valid", "test"};

/// Sequences are known by how many rows, ids and characters there are, and by their labels: hashing all ids of a large
/// corpus would take longer than opening it.
Json fingerprint_of(const TokenDataset& set) {
  Sha256 digest;
  digest.update(join_text(set.predicted_tokens(), '\n', set.characters()));
  if (const LabelledText* const labelled = set.labelled())
    for (std::int64_t i = 0; i < set.size(); ++i) digest.update(join_text('\n', labelled->label_of(i)));
  return Json::object().set("samples", set.size()).set("classes", Json::array()).set("sha256", digest.hex());
}

Json fingerprint_of(const Dataset& set) {
  if (const TokenDataset* const sequences = set.tokens()) return fingerprint_of(*sequences);
  const ImageDataset* const images = set.images();
  std::vector<std::int64_t> histogram(static_cast<std::size_t>(images != nullptr ? images->classes() : 0));
  Sha256 digest;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    if (images != nullptr) {
      const std::int64_t label = images->label(i);
      if (label >= 0 && label < set.classes()) ++histogram[static_cast<std::size_t>(label)];
      digest.update(join_text(label, '\n'));
    }
    set.identify(i, digest);
  }
  return Json::object()
      .set("samples", set.size())
      .set("classes", Json::array_of(histogram))
      .set("sha256", digest.hex());
}

/// "; \"cat\" 12, was 11" of the first classes whose counts differ.
std::string class_changes(const Json& before, const Json& now, const std::vector<std::string>& names) {
  constexpr int most = 5;
  if (before.size() != now.size() || now.size() != names.size()) return "";
  std::string text;
  int changed = 0;
  for (std::size_t label = 0; label < names.size(); ++label) {
    if (before.at(label) == now.at(label)) continue;
    if (++changed <= most)
      text +=
          join_text("; \"", names[label], "\" ", now.at(label).as_integer(), ", was ", before.at(label).as_integer());
  }
  return changed <= most ? text : text + join_text("; and ", changed - most, " classes more");
}

}  // namespace

Json fingerprint(const DataSplits& data) {
  Json all = Json::object();
  for (const auto& [name, set] : {std::pair{"train", data.train}, {"valid", data.valid}, {"test", data.test}})
    if (set) all.set(name, fingerprint_of(*set));
  return all;
}

std::vector<std::string> fingerprint_changes(const Json& before, const Json& now,
                                             const std::vector<std::string>& class_names) {
  std::vector<std::string> changes;
  for (const char* split : split_names) {
    const Json *const old = before.find(split), *const fresh = now.find(split);
    if (old == nullptr || fresh == nullptr) {
      if (old != nullptr) changes.push_back(join_text("the ", split, " split is gone"));
      if (fresh != nullptr) changes.push_back(join_text("there is a ", split, " split, which there was not"));
      continue;
    }
    if (*old == *fresh) continue;
    const std::int64_t count = fresh->at("samples").as_integer(), was = old->at("samples").as_integer();
    const std::string classes = class_changes(old->at("classes"), fresh->at("classes"), class_names);
    if (count == was && classes.empty())
      changes.push_back(join_text("the ", split, " split has as many samples, ", count, ", but not the same"));
    else
      changes.push_back(join_text("the ", split, " split has ", count, " samples, was ", was, classes));
  }
  return changes;
}

}  // namespace hearth::data
