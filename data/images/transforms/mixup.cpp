// SPDX-License-Identifier: Apache-2.0
// Mixing the samples of a batch in pairs, in place: mixup and CutMix.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/images/transforms/transforms.h"

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
void mix_run(T* a, T* b, std::int64_t elements, float lambda) {
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto x = static_cast<float>(a[i]);
    const auto y = static_cast<float>(b[i]);
    a[i] = T(lambda * x + (1.0f - lambda) * y);
    b[i] = T(lambda * y + (1.0f - lambda) * x);
  }
}

// As in timm: the sides have the root of the partner's part of those of the image, and the box's centre lies anywhere,
// so that the image's edge may cut the box.
Box draw_cut(int height, int width, double lambda, Random& random) {
  const double side = std::sqrt(1.0 - lambda);
  const int half_height = static_cast<int>(height * side) / 2, half_width = static_cast<int>(width * side) / 2;
  const int y = static_cast<int>(random.below(static_cast<std::uint64_t>(height)));
  const int x = static_cast<int>(random.below(static_cast<std::uint64_t>(width)));
  const int top = std::max(y - half_height, 0), left = std::max(x - half_width, 0);
  return {top, left, std::min(y + half_height, height) - top, std::min(x + half_width, width) - left};
}

}  // namespace

double draw_symmetric_beta(double alpha, Random& random) {
  HEARTH_CHECK(ConfigError, alpha > 0, "mixup: alpha ", alpha, " is not above 0");
  const double a = draw_log_gamma(alpha, random);
  const double b = draw_log_gamma(alpha, random);
  return 1.0 / (1.0 + std::exp(b - a));
}

PairMix draw_pair_mix(double mixup_alpha, double cutmix_alpha, int height, int width, Random& random) {
  HEARTH_CHECK(ConfigError, mixup_alpha >= 0 && cutmix_alpha >= 0 && height > 0 && width > 0, "mixing images: alphas ",
               mixup_alpha, " and ", cutmix_alpha, " for ", height, " x ", width,
               " pixels; alphas are at least 0, sides at least 1");
  if (mixup_alpha == 0 && cutmix_alpha == 0) return {1.0, {0, 0, height, width}, 1.0};
  const bool cuts = cutmix_alpha > 0 && (mixup_alpha == 0 || random.below(2) == 1);
  const double lambda = draw_symmetric_beta(cuts ? cutmix_alpha : mixup_alpha, random);
  if (!cuts) return {lambda, {0, 0, height, width}, lambda};
  const Box cut = draw_cut(height, width, lambda, random);
  const double area = static_cast<double>(cut.height) * cut.width / (static_cast<double>(height) * width);
  return {0.0, cut, 1.0 - area};
}

void mix_images(DType dtype, std::byte* images, std::int64_t n, ImageShape shape, const PairMix& mix) {
  const auto lambda = static_cast<float>(mix.lambda);
  const Box& box = mix.box;
  HEARTH_CHECK(ShapeError,
               box.top >= 0 && box.left >= 0 && box.height >= 0 && box.width >= 0 &&
                   box.top <= shape.height - box.height && box.left <= shape.width - box.width,
               "mixup: a box of ", box.height, " x ", box.width, " at ", box.top, ", ", box.left, " leaves images of ",
               shape.height, " x ", shape.width);
  const std::int64_t pitch = static_cast<std::int64_t>(shape.width) * shape.channels, elements = shape.height * pitch;
  const std::int64_t first = box.left * static_cast<std::int64_t>(shape.channels);
  const std::int64_t run = box.width * static_cast<std::int64_t>(shape.channels);
  visit_dtype("mixup", dtype, Types<float, bf16, f16>{}, [&]<class T>() {
    T* values = reinterpret_cast<T*>(images);
    for (std::int64_t i = 0; i < n / 2; ++i)
      for (std::int64_t row = box.top; row < box.top + box.height; ++row) {
        const std::int64_t place = row * pitch + first;
        mix_run(values + i * elements + place, values + (n - 1 - i) * elements + place, run, lambda);
      }
  });
}

void mix_labels(const std::int64_t* labels, std::int64_t n, std::int64_t classes, double weight, float* soft_labels) {
  for (std::int64_t i = 0; i < n; ++i) {
    HEARTH_CHECK(IndexError, labels[i] >= 0 && labels[i] < classes, "mixup: the label of sample ", i, " is ", labels[i],
                 ", outside the ", classes, " classes");
  }
  const auto lambda = static_cast<float>(weight);
  std::fill_n(soft_labels, n * classes, 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    soft_labels[i * classes + labels[i]] += lambda;
    soft_labels[i * classes + labels[n - 1 - i]] += 1.0f - lambda;
  }
}

}  // namespace hearth::data
