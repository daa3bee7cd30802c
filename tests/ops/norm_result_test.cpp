// SPDX-License-Identifier: Apache-2.0
// Norms of f32 rows whose results have the low-precision type of autocast.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "autograd/backward.h"
#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"
#include "core/random.h"
#include "ops/norm/add_layer_norm.h"
#include "ops/norm/merge_layer_norm.h"
#include "tests/support/devices.h"

namespace hearth::test::norm_result_test {
namespace {

// Rows of which several share a warp, that a warp holds, that a block holds in two sizes, and that are read again; and
// more of them than a device has blocks at once.
const Shape shapes[] = {{5, 1, 1, 37},   {2, 2, 4, 96},   {600, 1, 1, 300},
                        {2, 1, 1, 1536}, {2, 1, 1, 3072}, {2, 1, 1, 9216}};

Tensor numbers(const Shape& shape, double step, DType dtype, Device device) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) * step) * 2 + step;
  return requires_grad(Tensor::of<double>(shape, values).to(dtype).to(device));
}

struct Norm {
  const char* name;
  /// Result, of x, of what is added to it, gamma, beta.
  std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool low_precision)> run;
  std::int64_t gathers = 1;  ///< rows of x in one of y
};
const Norm norms[] = {
    {"layer_norm", [](const Tensor& x, const Tensor&, const Tensor& gamma, const Tensor& beta,
                      bool low_precision) { return layer_norm(x, gamma, beta, 1e-5, low_precision); }},
    {"merge_layer_norm",
     [](const Tensor& x, const Tensor&, const Tensor& gamma, const Tensor& beta, bool low_precision) {
       return merge_layer_norm(x, gamma, beta, 1e-5, low_precision);
     },
     4},
    {"add_layer_norm",
     [](const Tensor& x, const Tensor& f, const Tensor& gamma, const Tensor& beta, bool low_precision) {
       const RandomScope random(3, 1);
       return add_layer_norm(x, f, gamma, beta, {.dropout = 0.25, .low_precision = low_precision}).y;
     }}};

using Values = std::vector<std::vector<double>>;
enum class Form { low_precision, converted, f64 };

/// y rounded to `low`, and the gradients of x, f, gamma and beta.
Values results(const Norm& norm, const Shape& shape, DType low, Form form, Device device) {
  const DType type = form == Form::f64 ? DType::f64 : DType::f32;
  const std::int64_t cols = shape.dim(-1) * norm.gathers;
  const Tensor x = numbers(shape, 1.3, type, device), gamma = numbers({cols}, 0.3, type, device),
               beta = numbers({cols}, 0.7, type, device),
               f = requires_grad(numbers(shape, 0.9, low, device).detach().to(form == Form::f64 ? type : low));
  const AutocastScope autocast(low);
  const Tensor y = norm.run(x, f, gamma, beta, form == Form::low_precision);
  EXPECT_EQ(y.dtype(), form == Form::low_precision ? low : type) << norm.name;
  backward(y, numbers(y.shape(), 2.1, low, device).detach().to(y.dtype()));
  Values values{y.to(low).to_doubles()};
  for (const Tensor& leaf : {x, f, gamma, beta})
    values.push_back(grad_of(leaf).defined() ? grad_of(leaf).to_doubles() : std::vector<double>());
  return values;
}

/// Within the rounding of `low`, or of f32 sums over a row of the largest value.
void expect_near(const Values& found, const Values& exact, double eps, const std::string& what) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    double largest = 0;
    for (const double value : exact[i]) largest = std::max(largest, std::abs(value));
    ASSERT_EQ(found[i].size(), exact[i].size()) << what;
    for (std::size_t j = 0; j < exact[i].size(); ++j)
      ASSERT_NEAR(found[i][j], exact[i][j], eps * std::abs(exact[i][j]) + 5e-5 * largest)
          << what << ", " << i << " at " << j;
  }
}

TEST(NormResultOnDevices, HasTheBitsOfAConversionBehindTheNorm) {
  for (const Device device : devices())
    for (const DType low : {DType::f16, DType::bf16})
      for (const Norm& norm : norms)
        for (const Shape& shape : shapes) {
          const std::string what = join_text(norm.name, " ", shape, " ", low, " ", device);
          const double rounding = low == DType::f16 ? 0x1p-10 : 0x1p-7;
          const Values found = results(norm, shape, low, Form::low_precision, device);
          const Values converted = results(norm, shape, low, Form::converted, device);
          EXPECT_EQ(found[0], converted[0]) << what;
          // On the CPU each type has a gradient's loop of its own, which the compiler may round otherwise.
          if (device.is_cuda())
            EXPECT_EQ(found, converted) << what;
          else
            expect_near(found, converted, rounding, what);
          expect_near(found, results(norm, shape, low, Form::f64, device), rounding, what);
        }
}

TEST(NormResultOnDevices, IsThatOfXWithoutAutocastAndOfOtherTypes) {
  for (const Device device : devices())
    for (const Norm& norm : norms)
      for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
        const DType wide = type == DType::f64 ? type : DType::f32;
        const Shape shape{2, 2, 4, 8};
        const Tensor x = numbers(shape, 1.3, type, device), gamma = numbers({8 * norm.gathers}, 0.3, wide, device);
        EXPECT_EQ(norm.run(x, x, gamma, gamma, true).dtype(), type) << norm.name;
        const AutocastScope autocast(DType::f16);
        if (type == DType::f32) continue;
        EXPECT_EQ(norm.run(x, x, gamma, gamma, true).dtype(), type) << norm.name;
      }
}

}  // namespace
}  // namespace hearth::test::norm_result_test
