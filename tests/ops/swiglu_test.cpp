// SPDX-License-Identifier: Apache-2.0
#include "ops/pointwise/swiglu.h"

#include <cmath>
#include <vector>

#include "tests/support/op_test.h"

namespace hearth::test::swiglu_test {
namespace {

OP_TEST(Swiglu) {
  for (const Shape& shape : {Shape{2}, {3, 26}, {2, 5, 64}, {40, 2200}, {0, 4}, {3, 0}})
    check([&](Draw& draw) { return swiglu(draw.normal(shape, 2.0)); },
          [&](Draw& draw) {
            const std::vector<double> x = draw.normal(shape, 2.0).to_doubles();
            const auto cols = static_cast<std::size_t>(shape.dim(-1) / 2);
            std::vector<double> y(x.size() / 2);
            for (std::size_t i = 0; i < y.size(); ++i) {
              const double a = x[i / cols * 2 * cols + i % cols];
              y[i] = a / (1 + std::exp(-a)) * x[i / cols * 2 * cols + cols + i % cols];
            }
            return y;
          },
          {.tolerance_scale = 2.0});
}

// Where the gate's exponential overflows or vanishes.
OP_TEST(SwigluOfLargeValues) {
  check([](Draw& draw) { return swiglu(draw.uniform({4, 30}, -150, 150)); }, {.tolerance_scale = 2.0});
}

TEST(SwigluRefusal, Arguments) {
  refuses<UsageError>("swiglu", [] { return swiglu(Tensor()); });
  refuses<DTypeError>("swiglu", [] { return swiglu(Tensor::zeros({4}, DType::i32)); });
  refuses<DTypeError>("swiglu", [] { return swiglu(Tensor::zeros({4}, DType::u8)); });
  refuses<ShapeError>("swiglu", [] { return swiglu(Tensor::zeros({})); });
  refuses<ShapeError>("swiglu", [] { return swiglu(Tensor::zeros({2, 5})); });
}

}  // namespace
}  // namespace hearth::test::swiglu_test
