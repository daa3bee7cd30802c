// SPDX-License-Identifier: Apache-2.0
#include "models/weights/named_tensors.h"

#include <algorithm>
#include <utility>

namespace hearth::models {
namespace {

/// Letters that mean multiples of W.
constexpr std::pair<char, std::int64_t> multiples[] = {{'W', 1}, {'D', 2}, {'Q', 3}, {'F', 4}};

/// No model's, and with room to spare for multiples of it: tensors without elements may claim any extent.
constexpr std::int64_t max_extent = std::int64_t{1} << 40;

}  // namespace

const Tensor* find_weight(const WeightSet& set, std::string_view name) {
  const auto found =
      std::find_if(set.weights.begin(), set.weights.end(), [&](const Weight& weight) { return weight.name == name; });
  return found == set.weights.end() ? nullptr : &found->value;
}

ByName by_name(const WeightSet& set, NameReport& report, const std::function<std::string(const Weight&)>& name_of) {
  ByName result;
  for (const Weight& weight : set.weights)
    if (!result.emplace(name_of ? name_of(weight) : weight.name, weight.value.contiguous()).second)
      report.unexpected.push_back(weight.name + ", which is there twice, under this name or another");
  return result;
}

Tensor NamedTensors::take(const std::string& name, std::string_view shape) {
  const auto found = given_.find(name);
  if (found == given_.end()) {
    report_.missing.push_back(name);
    return {};
  }
  const Tensor tensor = found->second;
  given_.erase(found);
  const auto extents = tensor.shape();
  bool fits = extents.rank() == static_cast<int>(shape.size()) &&
              std::all_of(extents.begin(), extents.end(), [](std::int64_t extent) { return extent <= max_extent; });
  for (std::size_t i = 0; fits && i < shape.size(); ++i) bind(shape[i], tensor.dim(static_cast<int>(i)));
  std::string wanted;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto known = extents_.find(shape[i]);
    fits = fits && known != extents_.end() && tensor.dim(static_cast<int>(i)) == known->second;
    wanted += (i > 0 ? ", " : "") + (known != extents_.end() ? std::to_string(known->second) : std::string("any"));
  }
  if (fits && is_floating(tensor.dtype())) return tensor;
  if (fits) {
    report_.mistyped.push_back(join_text(name, " ", tensor.dtype(), ", expected a floating type"));
    return {};
  }
  report_.misshaped.push_back(join_text(name, " ", tensor.shape(), ", expected [", wanted, "]"));
  return {};
}

void NamedTensors::double_widths(std::string_view forgotten) {
  for (const auto& [letter, times] : multiples)
    if (const auto known = extents_.find(letter); known != extents_.end())
      known->second = checked_mul(known->second, 2, "weights: width");
  for (const char letter : forgotten) extents_.erase(letter);
}

void NamedTensors::finish() {
  for (const auto& [name, tensor] : given_) report_.unexpected.push_back(join_text(name, " ", tensor.shape()));
}

void NamedTensors::bind(char letter, std::int64_t extent) {
  if (letter != 'W') {
    extents_.emplace(letter, extent);
    return;
  }
  for (const auto& [multiple, times] : multiples)
    extents_.emplace(multiple, checked_mul(times, extent, "weights: width"));
}

}  // namespace hearth::models
