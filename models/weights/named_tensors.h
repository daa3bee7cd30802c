// SPDX-License-Identifier: Apache-2.0
// A file's tensors by name, of which those that a model expects are taken one by one and the rest reported.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "models/weights/weights.h"

namespace hearth::models {

/// The entry of the metadata with the names of a classifier's classes, an array of JSON.
inline constexpr const char* classes_note = "hearth.classes";

/// The text with the first `what` in it, if any, replaced.
inline std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  if (const std::size_t at = result.find(what); at != std::string::npos) result.replace(at, what.size(), by);
  return result;
}

/// The tensor of that name; null if there is none.
const Tensor* find_weight(const WeightSet& set, std::string_view name);

/// Contiguous tensors in host memory.
using ByName = std::map<std::string, Tensor, std::less<>>;

/// The set's tensors under their names, or under name_of(weight) if given; for all but one of a name, a word in the
/// report.
ByName by_name(const WeightSet& set, NameReport& report, const std::function<std::string(const Weight&)>& name_of = {});

/// Tensors by name, and the numbers behind the letters of shapes: the first tensor with a letter says what it means,
/// and W, a width, also that D, Q and F are two, three and four times as much.
class NamedTensors {
 public:
  NamedTensors(ByName given, NameReport& report) : given_(std::move(given)), report_(report) {}

  const ByName& given() const { return given_; }
  bool has(std::string_view name) const { return given_.contains(name); }
  /// The tensor of that name if it has the shape and a floating type; otherwise undefined, and a word in the report.
  Tensor take(const std::string& name, std::string_view shape);
  /// Makes the widths twice as large, and forgets what these letters mean.
  void double_widths(std::string_view forgotten);
  /// What nothing was taken of is unexpected.
  void finish();

 private:
  void bind(char letter, std::int64_t extent);

  ByName given_;
  NameReport& report_;
  std::map<char, std::int64_t> extents_;
};

}  // namespace hearth::models
