// SPDX-License-Identifier: Apache-2.0
// The three little parameters and the exact gradients that golden/make_optim.py uses.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "autograd/grad_state.h"
#include "autograd/parameters.h"

namespace hearth::test {

class ToyParameters {
 public:
  explicit ToyParameters(DType dtype = DType::f64, Device device = {},
                         std::optional<LowPrecisionCopy> low_precision = {})
      : tensors_{make({3, 4}, 0, dtype).to(device), make({3}, 12, dtype).to(device),
                 make({2, 3}, 15, dtype).to(device)},
        flat_({{"first.weight", &tensors_[0]}, {"first.bias", &tensors_[1]}, {"second.weight", &tensors_[2]}},
              low_precision) {}

  FlatParameters& flat() { return flat_; }

  /// Gradients of step 0, 1, ...: a (w - t) plus a small forcing term.
  void set_gradients(int step) {
    std::int64_t begin = 0;
    for (const auto& entry : flat_.entries()) {
      const std::vector<double> values = entry.value.to_doubles();
      std::vector<double> gradient(values.size());
      for (std::size_t j = 0; j < values.size(); ++j) {
        const std::int64_t i = begin + static_cast<std::int64_t>(j);
        const double a = static_cast<double>(i % 5 + 1) / 8, t = static_cast<double>(i % 7 - 3) / 4;
        gradient[j] = a * (values[j] - t) + static_cast<double>((7 * step + 3 * i) % 11 - 5) / 16;
      }
      write_gradient(entry, gradient);
      begin += entry.size;
    }
  }

  /// Every gradient element becomes `value`.
  void fill_gradients(double value) {
    for (const auto& entry : flat_.entries()) {
      write_gradient(entry, std::vector<double>(static_cast<std::size_t>(entry.size), value));
    }
  }

  std::vector<double> values() const {
    std::vector<double> result;
    for (const auto& entry : flat_.entries()) {
      const std::vector<double> values = entry.value.to_doubles();
      result.insert(result.end(), values.begin(), values.end());
    }
    return result;
  }

 private:
  static Tensor make(const Shape& shape, std::int64_t begin, DType dtype) {
    std::vector<double> values;
    for (std::int64_t i = begin; i < begin + shape.size(); ++i) values.push_back(static_cast<double>(i % 9 - 4) / 8);
    return Tensor::of<double>(shape, values).to(dtype);
  }

  void write_gradient(const FlatParameters::Entry& entry, const std::vector<double>& gradient) {
    grad_of(entry.value).copy_from(Tensor::of<double>(entry.value.shape(), gradient));
  }

  std::array<Tensor, 3> tensors_;
  FlatParameters flat_;
};

}  // namespace hearth::test
