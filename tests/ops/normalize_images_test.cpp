// SPDX-License-Identifier: Apache-2.0
#include "ops/image/padded_images.h"

#include <utility>

#include "tests/support/op_test.h"

namespace hearth::test::normalize_images_test {
namespace {

struct Case {
  const char* what;
  Shape pixels;
  std::int64_t channel_capacity = 0;
  bool erases = false, mixes = false, cuts = false;
};

// 8 x 8 images of one channel are whole packs of 16 bytes in every type, 7 x 5 of three in none.
const Case cases[] = {
    {"one pixel", {1, 1, 1, 1}},
    {"grey in packs", {3, 8, 8, 1}},
    {"colour in packs", {2, 8, 8, 3}},
    {"odd", {3, 7, 5, 3}},
    {"odd with boxes, mixed", {3, 7, 5, 3}, 0, true, true},
    {"room for 4", {2, 6, 4, 3}, 4},
    {"room for 8", {5, 5, 3, 3}, 8, true, true},
    {"grey with room for 8", {4, 9, 9, 1}, 8, false, true},
    {"odd room", {2, 5, 3, 2}, 5, true},
    {"more than one block an image", {2, 40, 37, 3}, 0, true, true},
    {"more than one block an image, with room for 8", {3, 40, 37, 3}, 8, true, true, true},
    {"a box mixed", {5, 8, 8, 3}, 0, false, true, true},
    {"a box mixed, odd, with boxes erased", {3, 7, 5, 3}, 4, true, true, true},
    {"more than one block an image, with room for 4", {3, 40, 37, 3}, 4, true, true, true},
    {"more channels than shared memory takes", {2, 3, 3, 40}, 0, true, true},
};

struct Inputs {
  Tensor pixels, values;
  NormalizeImagesOptions options;
  std::int64_t channel_capacity = 0;
};

Inputs draw_inputs(Draw& draw, const Case& c) {
  Inputs in;
  const std::int64_t n = c.pixels[0], channels = c.pixels[3];
  in.pixels = draw.integers(c.pixels, 256, DType::u8);
  // Of few bits, so that every type holds them, and none of them 0.
  std::vector<double> values;
  for (std::int64_t i = 0; i < 256 * channels; ++i)
    values.push_back((static_cast<double>(i % 256) - 100.5) / 64 * (1 + static_cast<double>(i / 256 % 3)));
  for (double& value : values) value = static_cast<float>(bf16(static_cast<float>(value)));
  in.values = draw.constant({channels, 256}, values).to(DType::f32);
  in.options.dtype = draw.dtype();
  in.channel_capacity = c.channel_capacity;
  if (c.erases) {
    // An empty box, boxes at the borders, and one that leaves the image.
    const std::vector<std::vector<double>> boxes{{0, 0, 0, 0}, {1, 1, 2, 2}, {2, 0, 9, 1}};
    std::vector<double> all;
    for (std::int64_t i = 0; i < n; ++i)
      all.insert(all.end(), boxes[static_cast<std::size_t>(i % 3)].begin(),
                 boxes[static_cast<std::size_t>(i % 3)].end());
    in.options.erased = draw.indices({n, 4}, all, DType::i32);
  }
  const auto height = static_cast<double>(c.pixels[1]), width = static_cast<double>(c.pixels[2]);
  const std::vector<double> whole{0.625, 0, 0, height, width}, cut{0.625, 1, 2, height - 2, width - 2};
  if (c.mixes) in.options.lambda = draw.constant({5}, c.cuts ? cut : whole).to(DType::f32);
  return in;
}

std::vector<double> naive(const Inputs& in) {
  const std::vector<double> pixels = in.pixels.to_doubles(), values = in.values.to_doubles();
  const std::vector<double> mix = in.options.lambda.defined() ? in.options.lambda.to_doubles() : std::vector<double>(5);
  const std::vector<double> boxes =
      in.options.erased.defined() ? in.options.erased.to_doubles() : std::vector<double>();
  const Shape& s = in.pixels.shape();
  const auto value = [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    if (!boxes.empty()) {
      const double* box = boxes.data() + 4 * n;
      const auto row = static_cast<double>(h), column = static_cast<double>(w);
      if (row >= box[0] && row < box[0] + box[2] && column >= box[1] && column < box[1] + box[3]) return 0.0;
    }
    const auto pixel = pixels[static_cast<std::size_t>(((n * s[1] + h) * s[2] + w) * s[3] + c)];
    return values[static_cast<std::size_t>(256 * c) + static_cast<std::size_t>(pixel)];
  };
  std::vector<double> y;
  for (std::int64_t n = 0; n < s[0]; ++n)
    for (std::int64_t h = 0; h < s[1]; ++h)
      for (std::int64_t w = 0; w < s[2]; ++w)
        for (std::int64_t c = 0; c < s[3]; ++c) {
          double result = value(n, h, w, c);
          // Exact in f32: 5/8 and 3/8 of numbers of few bits.
          const auto row = static_cast<double>(h), column = static_cast<double>(w);
          if (row >= mix[1] && row < mix[1] + mix[3] && column >= mix[2] && column < mix[2] + mix[4])
            result = 0.625 * result + 0.375 * value(s[0] - 1 - n, h, w, c);
          y.push_back(result);
        }
  return y;
}

OP_TEST(NormalizeImages) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    check(
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, c);
          return detail::normalize_images(in.pixels, in.values, in.options, in.channel_capacity);
        },
        [&](Draw& draw) { return naive(draw_inputs(draw, c)); }, {.no_gradient = true});
  }
}

OP_TEST(NormalizeImagesRoom) {
  for (const std::int64_t room : {4, 8})
    check(
        [&](Draw& draw) {
          const Inputs in = draw_inputs(draw, {"", {3, 4, 3, 3}, room, true, true});
          const Tensor y = detail::normalize_images(in.pixels, in.values, in.options, in.channel_capacity);
          EXPECT_EQ(y.shape(), in.pixels.shape());
          EXPECT_EQ(y.strides()[2], room);
          EXPECT_TRUE(detail::is_padded(y));
          // The whole pixels: what lies behind the channels is zeros.
          return Tensor::view(y.storage(), {36, room}, contiguous_strides({36, room}), 0, y.dtype(), y.device());
        },
        [&](Draw& draw) {
          const std::vector<double> channels = naive(draw_inputs(draw, {"", {3, 4, 3, 3}, room, true, true}));
          std::vector<double> y;
          for (std::size_t i = 0; i < channels.size(); i += 3) {
            y.insert(y.end(), channels.begin() + static_cast<std::ptrdiff_t>(i),
                     channels.begin() + static_cast<std::ptrdiff_t>(i) + 3);
            y.insert(y.end(), static_cast<std::size_t>(room - 3), 0.0);
          }
          return y;
        },
        {.no_gradient = true});
}

OP_TEST(NormalizeImagesWithAShareOf0ExchangesTheBox) {
  check(
      [](Draw& draw) {
        Inputs in = draw_inputs(draw, {"", {2, 5, 4, 1}});
        in.options.lambda = draw.constant({5}, {0, 2, 1, 2, 3}).to(DType::f32);
        return normalize_images(in.pixels, in.values, in.options);
      },
      [](Draw& draw) {
        std::vector<double> y = naive(draw_inputs(draw, {"", {2, 5, 4, 1}}));
        for (std::size_t row = 2; row < 4; ++row)
          for (std::size_t column = 1; column < 4; ++column) std::swap(y[4 * row + column], y[20 + 4 * row + column]);
        return y;
      },
      {.no_gradient = true});
}

TEST(NormalizeImagesSizes, NoImages) {
  const Tensor values = Tensor::zeros({3, 256});
  EXPECT_EQ(normalize_images(Tensor::zeros({0, 4, 4, 3}, DType::u8), values).shape(), (Shape{0, 4, 4, 3}));
  const Tensor y = detail::normalize_images(Tensor::zeros({2, 0, 4, 3}, DType::u8), values, {}, 8);
  EXPECT_EQ(y.shape(), (Shape{2, 0, 4, 3}));
}

TEST(NormalizeImagesArguments, Refused) {
  const char* const op = "normalize_images";
  const Tensor pixels = Tensor::zeros({2, 4, 4, 3}, DType::u8), values = Tensor::zeros({3, 256});
  const auto with = [&](const NormalizeImagesOptions& options) { return normalize_images(pixels, values, options); };
  const auto with_room = [&](std::int64_t channel_capacity) {
    return detail::normalize_images(pixels, values, {}, channel_capacity);
  };
  refuses<UsageError>(op, [&] { return normalize_images(Tensor(), values); });
  refuses<UsageError>(op, [&] { return normalize_images(pixels, Tensor()); });
  refuses<DTypeError>(op, [&] { return normalize_images(pixels.to(DType::f32), values); });
  refuses<DTypeError>(op, [&] { return normalize_images(pixels, values.to(DType::f64)); });
  refuses<DTypeError>(op, [&] { return with({.dtype = DType::i32}); });
  refuses<DTypeError>(op, [&] { return with({.erased = Tensor::zeros({2, 4}, DType::i64)}); });
  refuses<DTypeError>(op, [&] { return with({.lambda = Tensor::zeros({5}, DType::f16)}); });
  refuses<ShapeError>(op, [&] { return normalize_images(pixels.as_shape({2, 4, 12}), values); });
  refuses<ShapeError>(op, [&] { return normalize_images(pixels, Tensor::zeros({1, 256})); });
  refuses<ShapeError>(op, [&] { return normalize_images(pixels, Tensor::zeros({3, 255})); });
  refuses<ShapeError>(op, [&] { return with_room(2); });
  refuses<ShapeError>(op, [&] { return with_room(-1); });
  refuses<ShapeError>(op, [&] { return with_room(std::int64_t{1} << 31); });
  refuses<ShapeError>(op, [&] { return with({.erased = Tensor::zeros({1, 4}, DType::i32)}); });
  refuses<ShapeError>(op, [&] { return with({.lambda = Tensor::zeros({1})}); });
}

}  // namespace
}  // namespace hearth::test::normalize_images_test
