// SPDX-License-Identifier: Apache-2.0
// Small ops for tests of the tape, on plain loops.
#pragma once

#include <array>
#include <vector>

#include "autograd/record.h"

namespace hearth::test {

inline Tensor map2(const Tensor& a, const Tensor& b, double (*f)(double, double)) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  std::vector<double> z(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) z[i] = f(x[i], y[i]);
  return Tensor::of<double>(a.shape(), z).to(a.dtype());
}

struct Multiply {
  static constexpr OpInfo info{.name = "multiply"};
  struct Saved {
    SavedTensor a, b;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.a = a;
    saved.b = b;
    return map2(a, b, [](double x, double y) { return x * y; });
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 2> gradients;
    const auto product = [](double x, double y) { return x * y; };
    if (needs[0]) gradients[0] = map2(dy, saved.b.get(), product);
    if (needs[1]) {
      gradients[1] = needs.make(1, saved.b.get().shape(), dy.dtype());
      gradients[1].copy_from(map2(dy, saved.a.get(), product));
    }
    return gradients;
  }
};
inline Tensor multiply(const Tensor& a, const Tensor& b) { return record(Multiply{}, a, b); }

struct Sum {
  static constexpr OpInfo info{.name = "sum"};
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.shape = x.shape();
    double total = 0;
    for (const double value : x.to_doubles()) total += value;
    return Tensor::full({}, total, x.dtype());
  }
  std::array<Tensor, 1> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    return {Tensor::full(saved.shape, dy.item(), dy.dtype())};
  }
};
inline Tensor total(const Tensor& x) { return record(Sum{}, x); }

inline Tensor leaf(std::initializer_list<double> values) {
  return requires_grad(Tensor::of<double>({static_cast<std::int64_t>(values.size())}, values));
}

/// y = a + b, whose gradients are added in place where they can be.
struct AddInPlace {
  static constexpr OpInfo info{.name = "add_in_place"};
  struct Saved {};
  int* in_place;
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return map2(a, b, [](double x, double y) { return x + y; });
  }
  std::array<Tensor, 2> backward(const Saved&, Tensor dy, const NeedsGrad& needs) const {
    std::array<Tensor, 2> gradients;
    for (std::size_t i = 0; i < 2; ++i) {
      const Tensor sum = needs.sum_so_far(i, dy.shape(), dy.dtype());
      gradients[i] = sum.defined() ? sum : needs.make(i, dy.shape(), dy.dtype());
      gradients[i].copy_from(sum.defined() ? map2(sum, dy, [](double x, double y) { return x + y; }) : dy);
      *in_place += sum.defined();
    }
    return gradients;
  }
};

}  // namespace hearth::test
