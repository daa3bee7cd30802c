// SPDX-License-Identifier: Apache-2.0
// Tensors from values, ranges and random numbers, and as text.
#include "core/creation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iomanip>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "core/random.h"
#include "tests/support/error_message.h"

namespace hearth::creation_test {
namespace {

using Values = std::vector<double>;

std::string text_of(const Tensor& tensor) {
  std::ostringstream out;
  out << tensor;
  return out.str();
}

TEST(Creation, OfNestedValues) {
  const Tensor matrix = tensor({{1, 2, 3}, {4, 5.5, -6}});
  EXPECT_EQ(matrix.shape(), (Shape{2, 3}));
  EXPECT_EQ(matrix.dtype(), DType::f32);
  EXPECT_EQ(matrix.to_doubles(), (Values{1, 2, 3, 4, 5.5, -6}));
  EXPECT_EQ(tensor({1, 2}).shape(), (Shape{2}));
  EXPECT_EQ(tensor({{{1}, {2}}, {{3}, {4}}}, DType::i64).shape(), (Shape{2, 2, 1}));
  const auto message = test::error_message<ShapeError>([] { (void)tensor({{1, 2}, {3}}); });
  EXPECT_PRED2(test::contains, message, "a row of shape [1] beside one of [2]");
  EXPECT_THROW((void)tensor({{1, 2}, 3}), ShapeError);
}

TEST(Creation, Ranges) {
  EXPECT_EQ(arange(4).to_doubles(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(arange(1, 2, 0.25).to_doubles(), (Values{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(arange(3, 0, -2, DType::i64).to_doubles(), (Values{3, 1}));
  EXPECT_EQ(arange(2, 2).size(), 0);
  EXPECT_EQ(linspace(0, 1, 5).to_doubles(), (Values{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, 1, 1).to_doubles(), (Values{3}));
  EXPECT_EQ(eye(2).to_doubles(), (Values{1, 0, 0, 1}));
  EXPECT_EQ(ones({2}, DType::bf16).to_doubles(), (Values{1, 1}));
  EXPECT_THROW((void)arange(0, 1, 0), UsageError);
  EXPECT_THROW((void)arange(0, 1, -1), UsageError);
  EXPECT_THROW((void)arange(0, INFINITY), UsageError);
  EXPECT_THROW((void)arange(0, 1e300), UsageError);
  const auto message = test::error_message<UsageError>([] { (void)arange(0, 1e18); });
  EXPECT_PRED2(test::contains, message, "1e+18 values");
  EXPECT_PRED2(test::contains, test::error_message<UsageError>([] { (void)arange(0, 1, -1); }), "leads from the one");
  EXPECT_THROW((void)arange(0, 1e15), OutOfMemory);
  EXPECT_THROW((void)linspace(0, 1, 0), UsageError);
  EXPECT_THROW((void)eye(-1), ShapeError);
}

TEST(Creation, RandomValuesFollowTheSeed) {
  manual_seed(7);
  const Tensor first = randn({1000}), second = randn({1000});
  manual_seed(7);
  EXPECT_EQ(randn({1000}).to_doubles(), first.to_doubles());
  EXPECT_NE(second.to_doubles(), first.to_doubles());
  double sum = 0, squares = 0;
  for (const double v : first.to_doubles()) sum += v, squares += v * v;
  EXPECT_NEAR(sum / 1000, 0, 0.1);
  EXPECT_NEAR(squares / 1000, 1, 0.15);
  const RandomScope scope(9, 1);
  const Tensor in_scope = rand({3});
  const RandomScope same(9, 1);
  EXPECT_EQ(rand({3}).to_doubles(), in_scope.to_doubles());
}

TEST(Creation, UniformValuesAreBelowOneInAnyType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const double v : rand({5000}, dtype).to_doubles()) {
      ASSERT_GE(v, 0);
      ASSERT_LT(v, 1) << dtype;
    }
  const std::vector<double> drawn = randint(-2, 3, {500}).to_doubles();
  EXPECT_EQ(std::set<double>(drawn.begin(), drawn.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  EXPECT_THROW((void)randint(3, 3, {1}), UsageError);
  EXPECT_THROW((void)randn({1}, DType::i32), DTypeError);
  EXPECT_THROW((void)rand({1}, DType::boolean), DTypeError);
}

TEST(Creation, IntegersAreDrawnWithinTheirType) {
  struct Case {
    DType dtype;
    std::int64_t low, high;  // the widest range that is drawn
    const char* holds;
  };
  const std::int64_t f32 = std::int64_t{1} << 24, f64 = std::int64_t{1} << 53, i32 = std::int64_t{1} << 31;
  for (const Case& c : {Case{DType::u8, 0, 256, "u8 holds 0 to 255"},
                        {DType::boolean, 0, 2, "bool holds 0 to 1"},
                        {DType::i32, -i32, i32, "i32 holds -2147483648 to 2147483647"},
                        {DType::f16, -2048, 2049, "f16 holds every integer from -2048 to 2048"},
                        {DType::bf16, -256, 257, "bf16 holds every integer from -256 to 256"},
                        {DType::f32, -f32, f32 + 1, "f32 holds every integer from -16777216 to 16777216"},
                        {DType::f64, -f64, f64 + 1, "f64 holds every integer from -9007199254740992"}}) {
    EXPECT_NO_THROW((void)randint(c.low, c.high, {8}, c.dtype)) << c.holds;
    const auto message = [&](std::int64_t low, std::int64_t high) {
      return test::error_message<UsageError>([&] { (void)randint(low, high, {8}, c.dtype); });
    };
    EXPECT_PRED2(test::contains, message(c.low, c.high + 1), c.holds);
    EXPECT_PRED2(test::contains, message(c.low - 1, c.high), c.holds);
  }
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_NO_THROW((void)randint(-largest - 1, largest, {8}));
}

TEST(Creation, WhatDoesNotFitIsOutOfMemory) {
  const std::int64_t huge = std::int64_t{1} << 50;
  for (const auto& create : std::vector<std::function<Tensor()>>{
           [&] { return randn({huge}); }, [&] { return rand({huge}); }, [&] { return randint(0, 2, {huge}); },
           [&] { return linspace(0, 1, huge); }, [&] { return arange(0, 0x1p50); },
           [&] { return eye(std::int64_t{1} << 25); }, [&] { return ones({huge}); }})
    EXPECT_THROW((void)create(), OutOfMemory);
}

TEST(Creation, TensorsAsText) {
  EXPECT_EQ(text_of(tensor({{1, 2.5}, {-3, 4}})), "[[1, 2.5],\n [-3, 4]] f32 [2, 2]");
  EXPECT_EQ(text_of(Tensor::full({}, 7, DType::i64)), "7 i64 []");
  EXPECT_EQ(text_of(Tensor::of<bool>({2}, {true, false})), "[true, false] bool [2]");
  EXPECT_EQ(text_of(Tensor::zeros({0, 2})), "[] f32 [0, 2]");
  EXPECT_EQ(text_of(Tensor::zeros({2, 0})), "[[],\n []] f32 [2, 0]");
  EXPECT_EQ(text_of(Tensor::zeros({std::int64_t{1} << 33, 0})),
            "[[],\n [],\n [],\n ...,\n [],\n [],\n []] f32 [8589934592, 0]");
  EXPECT_EQ(text_of(Tensor()), "absent");
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(text_of(Tensor::of<std::int64_t>({3}, {largest, -largest - 1, (std::int64_t{1} << 53) + 1})),
            "[9223372036854775807, -9223372036854775808, 9007199254740993] i64 [3]");
  EXPECT_EQ(text_of(Tensor::of<std::int32_t>({2}, {2147483647, -2147483647 - 1})), "[2147483647, -2147483648] i32 [2]");
  EXPECT_EQ(text_of(Tensor::of<std::uint8_t>({1}, {255})), "[255] u8 [1]");
  EXPECT_EQ(text_of(arange(2000)), "[0, 1, 2, ..., 1997, 1998, 1999] f32 [2000]");
  std::ostringstream formatted;
  formatted << std::setprecision(2) << std::hex << tensor({255.125}) << ' ' << 255;
  EXPECT_EQ(formatted.str(), "[255.125] f32 [1] ff") << "independent of the stream's format, which stays";
}

TEST(Creation, ADeviceByName) {
  EXPECT_EQ(Device("cpu"), Device{});
  EXPECT_EQ(Device("cuda"), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(Device("cuda:3"), (Device{DeviceType::cuda, 3}));
  EXPECT_EQ(arange(2).to("cpu").device(), Device(DeviceType::cpu));
  for (const char* name : {"gpu", "cuda:", "cuda:-1", "cuda:x", "", "CPU"}) EXPECT_THROW(Device{name}, ConfigError);
}

TEST(Creation, ItemsOfATypeOfTheCallersChoice) {
  EXPECT_EQ(tensor({2.75}).item<float>(), 2.75f);
  EXPECT_EQ(tensor({2.75}).item<std::int32_t>(), 2);
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  EXPECT_EQ(Tensor::of<std::int64_t>({1}, {large}).item<std::int64_t>(), large);
  EXPECT_TRUE(tensor({2}).item<bool>());
  EXPECT_THROW((void)arange(2).item<float>(), UsageError);
}

}  // namespace
}  // namespace hearth::creation_test
