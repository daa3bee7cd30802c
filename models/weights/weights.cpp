// SPDX-License-Identifier: Apache-2.0
#include "models/weights/weights.h"

#include <algorithm>
#include <map>

#include "core/io/printable.h"
#include "core/nearest.h"
#include "models/swin.h"
#include "models/weights/import.h"
#include "models/weights/named_tensors.h"
#include "models/weights/non_finite.h"
#include "models/weights/safetensors_set.h"
#include "models/weights/swin_weights.h"
#include "models/weights/torch_file.h"
#include "models/weights/transformers_weights.h"

namespace hearth::models {
namespace {

WeightSet from_torch(const WeightSet& theirs, NameReport& report) {
  WeightSet ours{{}, theirs.metadata};
  for (const Weight& weight : theirs.weights) {
    if (counts_batches(weight)) continue;  // of no interest to a reader of what was left out
    if (is_position_index(weight, theirs))
      report.left_out.push_back(weight.name);
    else
      ours.weights.push_back({weight.name, from_torch_layout(weight.name, weight.value)});
  }
  return ours;
}

WeightSet to_torch(const WeightSet& ours) {
  WeightSet theirs{{}, ours.metadata};
  for (const Weight& weight : ours.weights) {
    theirs.weights.push_back({weight.name, to_torch_layout(weight.name, weight.value)});
    if (!weight.name.ends_with(swin_table_ending)) continue;
    if (const Tensor index = relative_position_index(weight.value); index.defined())
      theirs.weights.push_back({replaced(weight.name, swin_table_ending, swin_index_ending), index});
  }
  return theirs;
}

bool begins_with_any(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

/// Floating values of any type are weights; an integer or a boolean is not made one.
bool converts(DType from, DType to) { return from == to || (is_floating(from) && is_floating(to)); }

/// "NAME: 2 NaN of 12 values"; "" where all are finite.
std::string non_finite_text(const std::string& name, const Tensor& value) {
  const Tensor on_host = value.to(Device{}).contiguous();
  const NonFinite found = count_non_finite(on_host.dtype(), {on_host.bytes(), on_host.byte_size()});
  return found.any() ? join_text(name, ": ", found.text(), " of ", on_host.size(), " values") : std::string();
}

/// What keeps values from being those of `to`: some are not finite, or would not be in its smaller type; "" if
/// nothing.
std::string fault_of(const NamedTensor& to, const Tensor& value) {
  const std::string fault = non_finite_text(to.name, value);
  if (!fault.empty() || size_of(value.dtype()) <= size_of(to.tensor->dtype())) return fault;
  const std::string beyond = non_finite_text(to.name, value.to(to.tensor->dtype()));
  return beyond.empty() ? "" : join_text(beyond, " as ", to.tensor->dtype(), ", which the file has as ", value.dtype());
}

/// ConfigError for a beginning that no name has.
void check_rule(const char* rule, const std::vector<std::string>& beginnings, const std::vector<std::string>& names,
                const char* which) {
  for (const std::string& beginning : beginnings)
    HEARTH_CHECK(
        ConfigError,
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(beginning); }),
        "/weights/", rule, ": \"", beginning, "\" begins the name of no tensor ", which,
        "; correct it, or leave it out");
}

}  // namespace

WeightFormat weight_format_named(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [each, format] : weight_formats) {
    if (each == name) return format;
    names.emplace_back(each);
  }
  std::sort(names.begin(), names.end());
  throw UsageError(join_text("weights: the format \"", name, "\" is not known; ", suggest(name, names, "formats")));
}

std::string_view name_of(WeightFormat format) {
  return std::find_if(weight_formats.begin(), weight_formats.end(), [&](const auto& f) { return f.second == format; })
      ->first;
}

std::string NameReport::faults(const std::string& prefix) const {
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) text += (text.empty() ? "" : "\n") + printable(prefix + what + " " + name);
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("wrong shape:", misshaped);
  add("wrong type:", mistyped);
  add("not finite:", non_finite);
  return text;
}

std::vector<std::filesystem::path> weight_files(const std::string& path) {
  if (const std::string file = torch_file_at(path); !file.empty()) return {file};
  return SafetensorsSet{path}.paths();
}

WeightSet read_weights(const std::string& path) {
  if (const std::string file = torch_file_at(path); !file.empty()) return read_torch_file(file);
  const SafetensorsSet set{path};
  set.verify();
  std::uint64_t bytes = 0;
  for (const SafetensorsSet::Item& item : set.items()) bytes += item.record->end - item.record->begin;
  require_readable_size(path, bytes, {UINT64_MAX, "weights"});
  WeightSet result{{}, set.metadata()};
  for (const SafetensorsSet::Item& item : set.items()) {
    const Tensor tensor = Tensor::empty(item.record->shape, item.record->dtype);
    item.read({tensor.bytes(), tensor.byte_size()});
    result.weights.push_back({item.record->name, tensor});
  }
  return result;
}

bool counts_batches(const Weight& weight) {
  return weight.name.ends_with(".num_batches_tracked") && weight.value.rank() == 0 &&
         !is_floating(weight.value.dtype());
}

WeightSet to_hearth(const WeightSet& theirs, WeightFormat from, NameReport& report) {
  if (from == WeightFormat::hearth) return theirs;
  if (from == WeightFormat::torch) return from_torch(theirs, report);
  if (is_swin(from)) return swin_to_hearth(theirs, from, report);
  return transformers_to_hearth(theirs, from, report);
}

WeightSet from_hearth(const WeightSet& ours, WeightFormat to, NameReport& report) {
  if (to == WeightFormat::hearth) return ours;
  WeightSet theirs = to == WeightFormat::torch ? to_torch(ours)
                     : is_swin(to)             ? swin_from_hearth(ours, to, report)
                                               : transformers_from_hearth(ours, to, report);
  theirs.metadata.erase(model_note);
  theirs.metadata.erase(classes_note);
  return theirs;
}

NameReport load_weights(const std::vector<NamedTensor>& tensors, const WeightSet& ours, const LoadRules& rules) {
  NameReport report;
  std::map<std::string, const Tensor*> given;
  for (const Weight& weight : ours.weights) given[weight.name] = &weight.value;
  std::vector<std::pair<Tensor*, const Tensor*>> copies;
  std::vector<std::string> of_network, left;
  for (const NamedTensor& named : tensors) {
    const auto found = given.find(named.name);
    const Tensor* const value = found == given.end() ? nullptr : found->second;
    if (value) given.erase(found);
    of_network.push_back(named.name);
    if (begins_with_any(named.name, rules.reinitialize))
      report.left_out.push_back(named.name + ", reinitialized");
    else if (!value)
      report.missing.push_back(join_text(named.name, " ", named.tensor->shape()));
    else if (value->shape() != named.tensor->shape())
      report.misshaped.push_back(join_text(named.name, " ", value->shape(), ", expected ", named.tensor->shape()));
    else if (!converts(value->dtype(), named.tensor->dtype()))
      report.mistyped.push_back(join_text(named.name, " ", value->dtype(), ", expected ", named.tensor->dtype()));
    else if (const std::string fault = fault_of(named, *value); !fault.empty())
      report.non_finite.push_back(fault);
    else
      copies.emplace_back(named.tensor, value);
  }
  for (const auto& [name, value] : given) {
    left.push_back(name);
    if (begins_with_any(name, rules.unused) || begins_with_any(name, rules.reinitialize))
      report.left_out.push_back(name + ", unused");
    else
      report.unexpected.push_back(join_text(name, " ", value->shape()));
  }
  check_rule("reinitialize", rules.reinitialize, of_network, "of the model");
  check_rule("unused", rules.unused, left, "of the file that the model has no place for");
  if (report.fits())
    for (const auto& [to, from] : copies) to->copy_from(*from);
  return report;
}

std::vector<std::string> non_finite_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> found;
  for (const NamedTensor& named : tensors)
    if (std::string text = non_finite_text(named.name, *named.tensor); !text.empty()) found.push_back(std::move(text));
  return found;
}

std::vector<std::string> non_finite_tensors(const WeightSet& set) {
  std::vector<std::string> found;
  for (const Weight& weight : set.weights)
    if (std::string text = non_finite_text(weight.name, weight.value); !text.empty()) found.push_back(std::move(text));
  return found;
}

}  // namespace hearth::models
