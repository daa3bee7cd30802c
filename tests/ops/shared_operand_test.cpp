// SPDX-License-Identifier: Apache-2.0
// Ops that read one tensor twice, and sums of which several hand it the same gradient: finite differences of the whole.
#include <gtest/gtest.h>

#include "core/creation.h"
#include "ops/ops.h"
#include "tests/support/op_test.h"

namespace hearth::test::shared_operand_test {
namespace {

OP_TEST(SharedOperand) {
  const auto of = [](Tensor (*f)(const Tensor& h, Draw& draw)) {
    check([f](Draw& draw) {
      const Tensor x = draw.normal({4, 4});
      return f(mul(x, x), draw);
    });
  };
  of([](const Tensor& h, Draw&) { return h + h; });
  of([](const Tensor& h, Draw&) { return (h + h) + (h + h); });
  of([](const Tensor& h, Draw&) { return h - h * 3 + h; });
  of([](const Tensor& h, Draw&) { return h + transpose(h, {1, 0}); });
  of([](const Tensor& h, Draw&) { return h + reshape(h, {16}).reshape({4, 4}); });
  of([](const Tensor& h, Draw& draw) { return (h + draw.normal({4, 4})) + (h - draw.normal({4, 4})); });
  of([](const Tensor& h, Draw&) { return concat({h, h}, 0); });
  of([](const Tensor& h, Draw&) { return matmul(h, h); });
  of([](const Tensor& h, Draw&) { return add_drop_path(h, h, 0.5, false); });
  of([](const Tensor& h, Draw&) {
    const DType type = h.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor gamma = Tensor::full({4}, 1.5, type, h.device()), beta = Tensor::full({4}, 0.5, type, h.device());
    return add_layer_norm(h, h, gamma, beta).y;
  });
}

}  // namespace
}  // namespace hearth::test::shared_operand_test
