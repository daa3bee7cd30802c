// SPDX-License-Identifier: Apache-2.0
// Mixing the samples of a batch in pairs, in place.
#include <algorithm>
#include <cmath>

#include "hearth/core/error.h"
#include "hearth/data/transforms.h"

namespace hearth::data {
namespace {

// A draw from Gamma(shape, 1). Shapes below 1 are drawn one higher and brought back by a power of a uniform value,
// as a logarithm, because the power underflows for small shapes.
double draw_log_gamma(double shape, Random& random) {
  double boost = 0;
  if (shape < 1) {
    boost = std::log(1.0 - random.uniform()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = random.normal();
    const double root = 1.0 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1.0 - random.uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + boost;
  }
}

template <class T>
void mix_pair(T* a, T* b, std::int64_t elements, float lambda) {
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto x = static_cast<float>(a[i]);
    const auto y = static_cast<float>(b[i]);
    a[i] = T(lambda * x + (1.0f - lambda) * y);
    b[i] = T(lambda * y + (1.0f - lambda) * x);
  }
}

}  // namespace

double draw_symmetric_beta(double alpha, Random& random) {
  HEARTH_CHECK(ConfigError, alpha > 0, "mixup: alpha ", alpha, " is not above 0");
  const double a = draw_log_gamma(alpha, random);
  const double b = draw_log_gamma(alpha, random);
  return 1.0 / (1.0 + std::exp(b - a));
}

void mixup(DType dtype, std::byte* images, const std::int64_t* labels, std::int64_t n, std::int64_t elements,
           std::int64_t classes, double lambda, float* soft_labels) {
  mixup_labels(labels, n, classes, lambda, soft_labels);
  const auto share = static_cast<float>(lambda);
  visit_dtype("mixup", dtype, Types<float, bf16, f16>{}, [&]<class T>() {
    T* values = reinterpret_cast<T*>(images);
    for (std::int64_t i = 0; i < n / 2; ++i) {
      mix_pair(values + i * elements, values + (n - 1 - i) * elements, elements, share);
    }
  });
}

void mixup_labels(const std::int64_t* labels, std::int64_t n, std::int64_t classes, double lambda, float* soft_labels) {
  for (std::int64_t i = 0; i < n; ++i) {
    HEARTH_CHECK(IndexError, labels[i] >= 0 && labels[i] < classes, "mixup: the label of sample ", i, " is ", labels[i],
                 ", outside the ", classes, " classes");
  }
  const auto share = static_cast<float>(lambda);
  std::fill_n(soft_labels, n * classes, 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    soft_labels[i * classes + labels[i]] += share;
    soft_labels[i * classes + labels[n - 1 - i]] += 1.0f - share;
  }
}

}  // namespace hearth::data
