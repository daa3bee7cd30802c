// SPDX-License-Identifier: Apache-2.0
// What torchvision makes of boxes (golden/make_boxes.py), and the inputs that the file does not have.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json_text.h"
#include "core/tensor.h"
#include "tests/support/places.h"

namespace hearth::test::boxes_golden {

inline const Json& golden(const char* part) {
  static const Json document = read_json(source_dir() + "/tests/golden/boxes.json");
  return document.at(part);
}

/// The numbers of a list, or of a list of lists.
inline std::vector<double> numbers_of(const Json& list) {
  std::vector<double> values;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& item = list.at(i);
    if (!item.is_array()) {
      values.push_back(item.as_number());
      continue;
    }
    const std::vector<double> inner = numbers_of(item);
    values.insert(values.end(), inner.begin(), inner.end());
  }
  return values;
}

inline Tensor boxes_of(const Json& list, Device device) {
  return Tensor::of({static_cast<std::int64_t>(list.size()), 4}, numbers_of(list)).to(device);
}

/// Element i is ((a i + b) % 23 - 11) / 8.
inline Tensor drawn(const Shape& shape, std::int64_t a, std::int64_t b, Device device) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.size(); ++i) values.push_back(static_cast<double>((a * i + b) % 23 - 11) / 8);
  return Tensor::of(shape, values).to(device);
}

/// What `dy` of the file's results is.
inline Tensor arriving(const Tensor& y) { return drawn(y.shape(), 9, 4, y.device()); }

inline void expect_values(const std::string& what, const Tensor& result, const Json& wanted, double tolerance = 1e-12) {
  const std::vector<double> values = result.to_doubles();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = wanted.at(i).as_number();
    EXPECT_NEAR(values[i], value, tolerance * std::max(1.0, std::abs(value))) << what << ", element " << i;
  }
}

}  // namespace hearth::test::boxes_golden
