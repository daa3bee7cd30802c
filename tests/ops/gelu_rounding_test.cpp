// SPDX-License-Identifier: Apache-2.0
// GELU behind a product in 16 bits, of every number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cpu/amx.h"
#include "core/run_on.h"
#include "core/tensor.h"
#include "ops/dispatch/candidates.h"
#include "ops/epilogue/epilogue.h"
#include "ops/epilogue/gelu_bf16_vectors.h"
#include "tests/support/error_message.h"

namespace hearth::gelu_rounding_test {
namespace {

/// The distance from the 16-bit number that `value` rounds to, towards 0, to the next.
double step_at(double value, DType dtype) {
  const int digits = dtype == DType::bf16 ? 8 : 11, lowest = dtype == DType::bf16 ? -125 : -13;
  int exponent = 0;
  (void)std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent, lowest) - digits);
}

double cumulative(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double value(double x) { return x * cumulative(x); }
double slope(double x) {
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
  return cumulative(x) + (density == 0 ? 0 : x * density);
}

/// All numbers of a type, on the CPU.
Tensor all_numbers(DType dtype) {
  std::vector<std::int32_t> all;
  for (std::int32_t bits = 0; bits < 1 << 15; ++bits) all.push_back(bits | (bits - (1 << 15)) * (1 << 16));
  const Tensor words = Tensor::of({256, 128}, all);
  return Tensor::view(words.storage(), {256, 256}, contiguous_strides({256, 256}), 0, dtype, Device{});
}

/// Each within half a step, but for what an approximation may miss, and for `slack`.
void expect_rounded(const Tensor& x, const Tensor& found, double (&wanted)(double), double slack) {
  const std::vector<double> of = x.to_doubles(), from = found.to_doubles();
  for (std::size_t i = 0; i < of.size(); ++i) {
    const double to = wanted(of[i]);
    if (std::abs(to) < (x.dtype() == DType::f16 ? 65504 : 3e38))
      EXPECT_LE(std::abs(from[i] - to), 0.515 * step_at(to, x.dtype()) + slack) << x.dtype() << " at " << of[i];
    else
      EXPECT_TRUE(from[i] == to || !(from[i] == from[i] || to == to)) << x.dtype() << " at " << of[i];
  }
}

/// Where slopes pass through zero those of f16 are right to 3e-7; what lies below the normal numbers of f32 may be 0.
void expect_rounded_on(Device device) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = all_numbers(dtype), there = x.to(device);
    const Tensor y = Tensor::empty_like(there), ones = Tensor::full({256, 256}, 1, dtype, device);
    run_on(device, [&](auto& stream) { kernels::activate(stream, Activation::gelu, there, y); });
    expect_rounded(x, y, value, 2e-37);
    for (const Tensor& db : {Tensor(), Tensor::empty({256}, dtype, device)}) {
      run_on(device, [&](auto& stream) { kernels::activate_grad(stream, Activation::gelu, there, ones, y, db); });
      expect_rounded(x, y, slope, dtype == DType::f16 ? 3e-7 : 2e-37);
    }
  }
}

TEST(GeluOf16Bits, IsRoundedOnce) { expect_rounded_on(Device{}); }

TEST(GeluOf16Bits, IsRoundedOnceByThePortableKernel) {
  const ForceCandidate force("activation", "portable");
  expect_rounded_on(Device{});
}

/// What ran the activation of `x`, its gradient, and that with the bias's gradient, which is `db`.
struct Choices {
  std::string forward, gradient, with_sums;
  Tensor db;
};

Choices choices_of(Activation activation, const Tensor& x) {
  cpu::Stream& stream = cpu::stream_of({});
  const Tensor y = Tensor::empty_like(x), db = Tensor::empty({256}, DType::f32);
  const auto choice = [] { return last_choice("activation"); };
  kernels::activate(stream, activation, x, y);
  Choices made{choice(), {}, {}, db};
  kernels::activate_grad(stream, activation, x, x, y, {});
  made.gradient = choice();
  kernels::activate_grad(stream, activation, x, x, y, db);
  made.with_sums = choice();
  return made;
}

void expect_choices(const Choices& made, const std::string& name) {
  for (const std::string& choice : {made.forward, made.gradient, made.with_sums}) EXPECT_EQ(choice, name);
}

Tensor numbers_between(DType dtype) {
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 100 - 2;
  return Tensor::of({2, 256}, x).to(dtype);
}

TEST(ActivationCandidates, AreChosenByTypeAndFunction) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const Activation activation : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
      SCOPED_TRACE(testing::Message() << name_of(activation) << " of " << dtype);
      const bool vectors = dtype == DType::bf16 && activation == Activation::gelu && cpu::amx::has_bf16_vectors();
      expect_choices(choices_of(activation, numbers_between(dtype)), vectors ? "avx512_bf16" : "portable");
    }
}

TEST(ActivationCandidates, RunWhereTheyAreForced) {
  const Tensor x = numbers_between(DType::bf16);
  const ForceCandidate force("activation", "portable");
  const Choices portable = choices_of(Activation::gelu, x);
  expect_choices(portable, "portable");
  if (!cpu::amx::has_bf16_vectors()) GTEST_SKIP() << "needs AVX-512 with bf16";
  const ForceCandidate vectors("activation", "avx512_bf16");
  const Choices by_vectors = choices_of(Activation::gelu, x);
  expect_choices(by_vectors, "avx512_bf16");
  const Tensor dx = Tensor::empty_like(x), db = Tensor::empty({256}, DType::f32);
  kernels::gelu_bf16_vectors::gradients_and_sums(x.data<bf16>(), x.data<bf16>(), dx.data<bf16>(), db.data<float>(), 2,
                                                 256);
  EXPECT_EQ(by_vectors.db.to_doubles(), db.to_doubles());
  EXPECT_NE(portable.db.to_doubles(), db.to_doubles()) << "exponentials of another polynomial";
}

TEST(ActivationCandidates, SayWhyTheyRefuse) {
  const ForceCandidate force("activation", "avx512_bf16");
  const auto message = [](Activation activation, DType dtype) {
    return test::error_message<UsageError>([&] { (void)choices_of(activation, numbers_between(dtype)); });
  };
  EXPECT_PRED2(test::contains, message(Activation::gelu, DType::f32), "avx512_bf16: f32, not bf16");
  EXPECT_PRED2(test::contains, message(Activation::silu, DType::bf16), "avx512_bf16: silu, not gelu");
}

TEST(CudaGeluOf16Bits, IsRoundedOnce) {
  if (device_count(DeviceType::cuda) == 0) GTEST_SKIP() << "there is no CUDA device";
  expect_rounded_on({DeviceType::cuda, 0});
}

}  // namespace
}  // namespace hearth::gelu_rounding_test
