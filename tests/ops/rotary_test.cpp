// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/rotary.h"

#include <cmath>
#include <limits>
#include <vector>

#include "ops/shape/view.h"
#include "tests/support/op_test.h"

namespace hearth::test::rotary_test {
namespace {

/// The definition; heads from `rotated` on stay as they are.
std::vector<double> naive(const std::vector<double>& x, std::int64_t t, std::int64_t heads, std::int64_t rotated,
                          std::int64_t width, const RotaryOptions& options) {
  std::vector<double> y = x;
  const std::int64_t half = width / 2;
  for (std::size_t row = 0; row < x.size() / static_cast<std::size_t>(heads * width); ++row)
    for (std::int64_t h = 0; h < rotated; ++h)
      for (std::int64_t d = 0; d < half; ++d) {
        const double position = static_cast<double>(options.first_position + static_cast<std::int64_t>(row) % t);
        const double angle =
            position / std::pow(options.base, 2.0 * static_cast<double>(d) / static_cast<double>(width));
        const std::size_t first =
            row * static_cast<std::size_t>(heads * width) + static_cast<std::size_t>(h * width + d);
        const std::size_t second = first + static_cast<std::size_t>(half);
        y[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
        y[second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
      }
  return y;
}

OP_TEST(Rotary) {
  for (const Shape& shape :
       {Shape{1, 1, 1, 2}, {2, 7, 3, 8}, {1, 130, 2, 6}, {2, 5, 1, 256}, {0, 3, 2, 4}, {2, 3, 0, 4}})
    for (const RotaryOptions& options : {RotaryOptions{}, RotaryOptions{.base = 500.0, .first_position = 1000}})
      check([&](Draw& draw) { return rotary(draw.normal(shape), options); },
            [&](Draw& draw) {
              const auto x = draw.normal(shape).to_doubles();
              return x.empty() ? x : naive(x, shape[1], shape[2], shape[2], shape[3], options);
            });
}

OP_TEST(RotaryOfQkv) {
  check(
      [&](Draw& draw) {
        return rotary_of_qkv(draw.normal({2, 9, 3 * 4 * 10}), 4, {.first_position = 3});
      },
      [&](Draw& draw) {
        return naive(draw.normal({2, 9, 3 * 4 * 10}).to_doubles(), 9, 12, 8, 10, {.first_position = 3});
      });
}

// Rows of 2 and 7 positions, then of 4, 1 and 4.
OP_TEST(RotaryOfSegments) {
  const std::vector<double> firsts{0, 0, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 4, 5, 5, 5, 5};
  std::vector<double> segments;
  for (const double first : firsts) segments.insert(segments.end(), {first, 9});
  check(
      [&](Draw& draw) {
        const Tensor qkv = draw.normal({2, 9, 3 * 4 * 10});
        return rotary_of_qkv(qkv, 4, {.first_position = 3, .segments = draw.indices({2, 9, 2}, segments, DType::i32)});
      },
      [&](Draw& draw) {
        const std::vector<double> x = draw.normal({2, 9, 3 * 4 * 10}).to_doubles();
        std::vector<double> y;
        for (std::size_t row = 0; row < firsts.size(); ++row) {
          const auto from = x.begin() + static_cast<std::ptrdiff_t>(120 * row);
          const std::int64_t position = 3 + static_cast<std::int64_t>(row % 9) - static_cast<std::int64_t>(firsts[row]);
          const std::vector<double> one = naive({from, from + 120}, 1, 12, 8, 10, {.first_position = position});
          y.insert(y.end(), one.begin(), one.end());
        }
        return y;
      });
}

// f32 alone would lose the angle: its neighbours lie 0.008 apart at 100 000.
OP_TEST(RotaryFarFromTheBeginning) {
  check([&](Draw& draw) { return rotary(draw.normal({1, 3, 1, 4}), {.first_position = 100000}); });
}

TEST(RotaryRefusal, Arguments) {
  const Tensor x = Tensor::zeros({2, 3, 4, 8});
  refuses<UsageError>("rotary", [&] { return rotary(Tensor()); });
  refuses<DTypeError>("rotary", [&] { return rotary(Tensor::zeros({2, 3, 4, 8}, DType::i64)); });
  refuses<ShapeError>("rotary", [&] { return rotary(Tensor::zeros({3, 4, 8})); });
  refuses<ShapeError>("rotary", [&] { return rotary(Tensor::zeros({2, 3, 4, 7})); });
  refuses<ShapeError>("rotary", [&] { return rotary(Tensor::zeros({2, 3, 4, 258})); });
  refuses<UsageError>("rotary", [&] { return rotary(x, {.base = 1.0}); });
  refuses<ShapeError>("rotary", [&] { return rotary(x, {.segments = Tensor::zeros({2, 3}, DType::i32)}); });
  refuses<DTypeError>("rotary", [&] { return rotary(x, {.segments = Tensor::zeros({2, 3, 2})}); });
  refuses<UsageError>("rotary", [&] { return rotary(x, {.first_position = -1}); });
  constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();
  refuses<ShapeError>("rotary", [&] { return rotary(x, {.first_position = last - 2}); });
  refuses<ShapeError>("rotary_of_qkv", [&] {
    return rotary_of_qkv(Tensor::zeros({2, 3, 12}), 2, {.first_position = last});
  });
  refuses<ShapeError>("rotary_of_qkv", [&] { return rotary_of_qkv(x, 2); });
  refuses<ShapeError>("rotary_of_qkv", [&] { return rotary_of_qkv(Tensor::zeros({2, 3, 16}), 2); });
  refuses<UsageError>("rotary_of_qkv", [&] { return rotary_of_qkv(Tensor::zeros({2, 3, 12}), 0); });
}

}  // namespace
}  // namespace hearth::test::rotary_test
