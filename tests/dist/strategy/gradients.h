// SPDX-License-Identifier: Apache-2.0
// Parameters whose gradients a test gives.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_state.h"
#include "autograd/parameters.h"
#include "autograd/record.h"
#include "core/random.h"
#include "dist/data_parallel.h"

namespace hearth::dist::strategy_test {

/// y = 0, whose gradient is `gradient`.
struct WithGradient {
  static constexpr OpInfo info{.name = "with_gradient"};
  Tensor gradient;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return Tensor::zeros({1}, x.dtype()); }
  std::array<Tensor, 1> backward(const Saved&, const Tensor&, const NeedsGrad&) const { return {gradient.clone()}; }
};
struct AddOf {
  static constexpr OpInfo info{.name = "add_of_strategies"};
  struct Saved {};
  Tensor forward(Saved&, const Tensor& a, const Tensor&) const { return a.clone(); }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad&) const { return {dy, dy}; }
};

using Shapes = std::vector<Shape>;

/// Parameters of these shapes, zeros.
struct Parameters {
  explicit Parameters(const Shapes& shapes, DType dtype = DType::f32) {
    tensors.reserve(shapes.size());
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      tensors.push_back(requires_grad(Tensor::zeros(shapes[i], dtype)));
      named.push_back({"p" + std::to_string(i), &tensors.back()});
    }
    flat = std::make_unique<FlatParameters>(named);
  }
  /// Normal numbers of each rank and step.
  std::vector<Tensor> draw(int rank, std::int64_t step) const {
    Random random(static_cast<std::uint64_t>(step) + 1, static_cast<std::uint64_t>(rank) + 77);
    std::vector<Tensor> all;
    for (const Tensor& x : tensors) {
      const Tensor g = Tensor::zeros(x.shape());
      for (std::int64_t i = 0; i < g.size(); ++i) g.data<float>()[i] = static_cast<float>(0.01 * random.normal());
      all.push_back(g);
    }
    return all;
  }
  /// A backward pass that gives these gradients; those that are undefined have no part in the loss.
  void backward_of(const std::vector<Tensor>& gradients) const {
    flat->zero_grads();
    Tensor loss;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor term = record(WithGradient{gradients[i]}, tensors[i]);
      loss = loss.defined() ? record(AddOf{}, loss, term) : term;
    }
    backward(loss);
  }
  /// All gradients, gaps between parameters left out.
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (const FlatParameters::Entry& entry : flat->entries()) {
      const float* const g = flat->grads().data<const float>() + entry.begin;
      all.insert(all.end(), g, g + entry.size);
    }
    return all;
  }

  std::vector<Tensor> tensors;
  std::unique_ptr<FlatParameters> flat;
};

inline std::vector<float> values_of(const std::vector<Tensor>& tensors) {
  std::vector<float> all;
  for (const Tensor& x : tensors) all.insert(all.end(), x.data<const float>(), x.data<const float>() + x.size());
  return all;
}

/// Matrices above and below what strategies make smaller, filters, and vectors; sizes that fill no block.
inline const Shapes some_shapes = {{64, 48}, {37}, {5, 3}, {33, 3, 3, 16}, {1}, {90, 40}};
/// Several buckets of them.
inline DataParallelOptions options_with(StrategyFactory compress) {
  DataParallelOptions options{.bucket_mb = 0.01, .first_bucket_mb = 0.005};
  options.compress = std::move(compress);
  return options;
}

}  // namespace hearth::dist::strategy_test
