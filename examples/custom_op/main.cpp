// SPDX-License-Identifier: Apache-2.0
// Checks the gradient of an op of one's own by finite differences on the CPU, and every CUDA device against the CPU.
#include <hearth/hearth.h>

#include <cmath>
#include <iostream>

#include "squared_relu.h"

namespace {

using namespace hearth;

// sum(w * squared_relu(x)), a scalar that depends on every element.
Tensor projected(const Tensor& x, const Tensor& w) { return sum(mul(squared_relu(x), w)); }

std::vector<double> gradient(const Tensor& start, const Tensor& w, Device device) {
  const Tensor x = requires_grad(start.to(device));
  backward(projected(x, w.to(device)));
  return grad_of(x).to_doubles();
}

// Central differences: (f(x + h) - f(x - h)) / 2h. The curvature is constant on either side of 0.
std::vector<double> differences(const Tensor& x, const Tensor& w) {
  const NoGrad no_grad;
  const double h = 1e-6;
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    double* value = x.data<double>() + i;
    const double before = *value;
    *value = before + h;
    const double above = projected(x, w).item();
    *value = before - h;
    const double below = projected(x, w).item();
    *value = before;
    slopes.push_back((above - below) / (2 * h));
  }
  return slopes;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

int main() {
  const std::int64_t n = 67;
  const Tensor w = Tensor::empty({n}, DType::f64), x = Tensor::empty({n}, DType::f64);
  Random random(7, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    w.data<double>()[i] = random.normal();
    x.data<double>()[i] = random.normal();
  }
  const std::vector<double> on_cpu = gradient(x, w, Device{});
  double worst = largest_difference(differences(x, w), on_cpu);
  std::cout << "squared_relu: largest difference from finite differences " << worst << "\n";
  for (int i = 0; i < device_count(DeviceType::cuda); ++i) {
    const Device device{DeviceType::cuda, i};
    const double distance = largest_difference(gradient(x, w, device), on_cpu);
    std::cout << "squared_relu: largest difference of " << name_of(device) << " from the CPU " << distance << "\n";
    worst = std::max(worst, distance);
  }
  return worst < 1e-6 ? 0 : 1;
}
