// SPDX-License-Identifier: Apache-2.0
// An op of one's own: the struct that built-in ops are made of, with a kernel for the CPU, a gradient, and a check of
// that gradient by finite differences.
#include <hearth/hearth.h>

#include <array>
#include <cmath>
#include <iostream>

namespace {

using namespace hearth;

// Squared ReLU: y = max(x, 0)^2. So et al., "Primer" (2021), arXiv:2109.08668.
struct SquaredRelu {
  static constexpr OpInfo info{.name = "squared_relu"};
  struct Kept {
    KeptTensor x;
  };

  Tensor forward(Kept& kept, const Tensor& given) const {
    const Tensor x = given.contiguous();
    if (is_recording()) kept.x = x;
    const Tensor y = Tensor::empty_like(x);
    visit(x, [&]<class T>(const T* in) {
      T* out = y.data<T>();
      for (std::int64_t i = 0; i < x.size(); ++i) out[i] = in[i] > 0 ? in[i] * in[i] : T(0);
    });
    return y;
  }

  // dx = 2 max(x, 0) dy.
  std::array<Tensor, 1> backward(const Kept& kept, Tensor dy, const GradWants& wants) const {
    const Tensor& x = kept.x.get();
    const Tensor slope = dy.contiguous();
    const Tensor dx = wants.make(0, x.shape(), x.dtype());
    visit(x, [&]<class T>(const T* in) {
      const T* upper = slope.data<T>();
      T* out = dx.data<T>();
      for (std::int64_t i = 0; i < x.size(); ++i) out[i] = in[i] > 0 ? 2 * in[i] * upper[i] : T(0);
    });
    return {dx};
  }

 private:
  template <class F>
  static void visit(const Tensor& x, F&& f) {
    if (x.dtype() == DType::f32) return f(x.data<float>());
    if (x.dtype() == DType::f64) return f(x.data<double>());
    throw DTypeError(join_text("squared_relu: ", name_of(x.dtype()), " is not supported; convert x to f32 or f64"));
  }
};

Tensor squared_relu(const Tensor& x) { return record(SquaredRelu{}, x); }

// sum(w * squared_relu(x)), a scalar that depends on every element.
Tensor projected(const Tensor& x, const Tensor& w) { return sum(mul(squared_relu(x), w)); }

}  // namespace

int main() {
  const std::int64_t n = 64;
  const Tensor w = Tensor::empty({n}, DType::f64), start = Tensor::empty({n}, DType::f64);
  Random random(7, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    w.data<double>()[i] = random.normal();
    start.data<double>()[i] = random.normal();
  }
  const Tensor x = as_leaf(start);
  backward(projected(x, w));
  const std::vector<double> gradient = grad_of(x).to_doubles();

  // Central differences: (f(x + h) - f(x - h)) / 2h. The curvature is constant on either side of 0.
  const NoGrad no_grad;
  const double h = 1e-6;
  double worst = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    double* value = x.data<double>() + i;
    const double before = *value;
    *value = before + h;
    const double above = projected(x, w).item();
    *value = before - h;
    const double below = projected(x, w).item();
    *value = before;
    worst = std::max(worst, std::abs((above - below) / (2 * h) - gradient[static_cast<std::size_t>(i)]));
  }
  std::cout << "squared_relu: largest difference from finite differences " << worst << std::endl;
  return worst < 1e-6 ? 0 : 1;
}
